"""What others did to the rows of a table, by its history: also behind commits of ours, until these rows are written again (SPEC K6)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from crkafka_core.model.rows import Table
from crkafka_core.plane.contents import Piece
from crkafka_core.segments.storage import Storage
from crkafka_core.tables import places
from crkafka_core.tables.log import DataFile
from crkafka_core.tables.stamp import LogEntry

Touched = Callable[[str], Container[int] | None]
"""Checkpoints of which a version may have brought or taken rows; None: nobody knows."""


class History(Protocol):
    """What a table tells of its commits, as a snapshot of its log does (`crkafka_core.tables.log`)."""

    def since(self, version: str, ours: Collection[str] = ()) -> list[LogEntry]: ...
    def changed_files(self, version: str) -> list[DataFile] | None: ...


@dataclass(frozen=True)
class Others:
    """What they did."""

    commits: tuple[LogEntry, ...] = ()
    """Those that nobody has acknowledged anything behind, and those whose rows may be there still."""
    changed: frozenset[int] = frozenset()
    """Checkpoints of which they may have changed rows."""


def of_others(
    seen: Sequence[LogEntry],
    ours: Callable[[LogEntry], bool],
    acknowledged: str,
    written: Mapping[int, str],
    touched: Touched,
) -> Others:
    """`seen`: commits since the first version of `written`, which has the version that each checkpoint was last written with."""
    at = {entry.version: i for i, entry in enumerate(seen) if not entry.left_behind}
    known = at.get(acknowledged, -1)
    last = {checkpoint: at.get(version, -1) for checkpoint, version in written.items()}
    commits: list[LogEntry] = []
    changed: set[int] = set()
    for i, entry in _not_undone(seen, ours, at):
        older = {checkpoint for checkpoint, place in last.items() if place < i}
        near = touched(entry.version) if older else None
        hit = older if near is None else {c for c in older if c in near}
        if hit or (i > known and not entry.left_behind):
            commits.append(entry)
            changed |= hit
    return Others(tuple(commits), frozenset(changed))


def of_adopted(
    table: Table,
    snapshot: History,
    storage: Storage,
    uid: str,
    pieces: Sequence[Piece],
    written: Mapping[int, str],
    inside: Collection[int],
    rewrites: Collection[str],
) -> Others:
    """Of a table of adopted files, whose rows do not tell their checkpoints.

    `inside`: checkpoints that have rows in files which others may have written; a file of ours tells by its name what is in it.
    `rewrites`: versions of ours that may be mends, which tell what they have settled.
    """

    at = cache(lambda: places.Places(pieces))

    def touched(version: str) -> set[int] | None:
        found = snapshot.changed_files(version)
        return None if found is None else places.checkpoints_in(found, storage, uid, at())

    first = next(iter(written.values()), "") if inside else ""
    seen = snapshot.since(first or table.version, set(written.values()).difference(rewrites))
    told = {checkpoint: version for checkpoint, version in written.items() if checkpoint in inside}
    return of_others(seen, lambda entry: entry.is_of(uid, table.name), table.version, told, touched)


def _not_undone(
    seen: Sequence[LogEntry], ours: Callable[[LogEntry], bool], at: Mapping[str, int]
) -> list[tuple[int, LogEntry]]:
    """Commits of others with their places, without those that a mend has settled or that we have put the table back to before."""
    found: list[tuple[int, LogEntry]] = []
    for i, entry in enumerate(seen):
        if not ours(entry):
            found += [(i, entry)] if entry.changes_rows else []
        elif entry.back_to is not None:
            found = [each for each in found if each[0] <= at.get(entry.back_to, -1)]
        elif entry.settles:
            found = [each for each in found if each[0] > at.get(entry.settles, -1)]
    return found
