"""Pause marks of the region: they follow the partition to whoever holds it (SPEC P2)."""

from __future__ import annotations

import re

from crkafka_core.control import Tx
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.rows import PauseMark
from crkafka_core.plane import events

KINDS = ("partition", "topic", "pattern", "member")


def pause(tx: Tx, kind: str, what: str, *, by: str) -> None:
    """Pause what the mark names, also what does not exist yet."""
    check(kind, what)
    region = tx.region()
    if tx.get(PauseMark, region.name, kind, what) is None:
        tx.put(PauseMark(region.name, kind, what, by, tx.now()))
        tx.set_region()
        events.log(tx, "paused", f"{kind} {what}", by=by)


def resume(tx: Tx, kind: str, what: str, *, by: str) -> bool:
    """Take the mark away; whether it was there."""
    gone = tx.delete(PauseMark, ("region", "=", tx.region().name), ("kind", "=", kind), ("what", "=", what))
    if gone:
        tx.set_region()
        events.log(tx, "resumed mark", f"{kind} {what}", by=by)
    return bool(gone)


def check(kind: str, what: str) -> None:
    """A mark that could never pause anything is refused."""
    if kind not in KINDS:
        raise ConfigError(f"A pause mark is on a {', '.join(KINDS)}, not on a {kind!r}.")
    if kind == "partition" and not re.fullmatch(r".+\[\d+\]", what):
        raise ConfigError(f"{what!r} is no partition.", hint="Write it as topic[3].")
    if kind == "pattern":
        try:
            re.compile(what)
        except re.error as e:
            raise ConfigError(f"The pattern {what!r} is no regular expression: {e}.") from e
