"""The wired parts of a member, and the hook that gets hold of them before its threads start."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from crkafka_core.member.event_loop import EventLoop
from crkafka_core.member.observer import Observer
from crkafka_core.member.reporter import Reporter
from crkafka_core.member.resolver import Resolver
from crkafka_core.member.submitter import Submitter
from crkafka_core.member.watchdog import Watchdog
from crkafka_core.plane.member_plane import MemberPlane
from crkafka_core.segments.storage import Storage


@dataclass(frozen=True)
class Parts:
    """The wired parts of a member, before its threads start: what a fault test gets hold of."""

    name: str
    plane: MemberPlane
    storage: Storage
    loop: EventLoop
    submitter: Submitter
    reporter: Reporter
    resolver: Resolver
    observer: Observer
    watchdog: Watchdog


Hook = Callable[[Parts], None]


def hook_of(where: str, argument: str) -> Hook | None:
    """`package.module:function`, as a host's order names it; called with the parts and the argument."""
    if not where:
        return None
    module, _, function = where.partition(":")
    call = getattr(importlib.import_module(module), function)
    return lambda parts: call(parts, argument)
