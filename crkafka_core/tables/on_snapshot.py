"""A commit of ours on a version of a table: which it may be made on, and anew when somebody else was quicker (SPEC K6, G6, G10)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from crkafka_core.lake.port import Moved
from crkafka_core.model.errors import Refused
from crkafka_core.model.rows import Table
from crkafka_core.tables.stamp import check_there

_log = logging.getLogger(__name__)
S = TypeVar("S", bound="HasVersion")
T = TypeVar("T")
_LOOKS = 10
"""Times that somebody else may commit between our look and our commit, one after the other, before we give up."""


class HasVersion(Protocol):
    """A look at a table."""

    version: int


def on_what_is_there(table: Table, look: Callable[[], S | None], make: Callable[[], None], once: Callable[[S], T]) -> T:
    """The same for a table that is looked at, and made, in a way of its own."""

    def one_look() -> T | None:
        snapshot = look()
        check_there(table, "" if snapshot is None else str(snapshot.version))
        if snapshot is not None:
            return once(snapshot)
        make()
        return None

    return until_done(table, one_look)


def until_done(table: Table, one_look: Callable[[], T | None]) -> T:
    """Look anew as often as somebody else was quicker, or as nothing was there to commit on (None)."""
    for _ in range(_LOOKS):
        try:
            done = one_look()
        except Moved as moved:
            _log.info("%s", moved)
        else:
            if done is not None:
                return done
    raise Refused(
        f"Somebody else keeps committing to table {table.name} at {table.path}.",
        hint="It is tried again; who it is, the table's history tells.",
    )
