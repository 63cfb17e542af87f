"""Which partitions a pause mark pauses (SPEC P1, P2)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from crkafka_core.model.desired import Mark
from crkafka_core.model.offsets import TP


def paused(tp: TP, marks: Iterable[Mark], member: str) -> bool:
    """Whether one of the marks pauses this partition while `member` holds it."""
    return any(_hits(mark, tp, member) for mark in marks)


def _hits(mark: Mark, tp: TP, member: str) -> bool:
    if mark.member not in ("", member):
        return False
    match mark.kind:
        case "partition":
            return mark.what == str(tp)
        case "topic":
            return mark.what == tp.topic
        case "pattern":
            return re.search(mark.what, tp.topic) is not None
        case _:
            return mark.what == member
