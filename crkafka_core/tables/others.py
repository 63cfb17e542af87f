"""What others did to the rows of a table, by its history: also behind commits of ours, until these rows are written again (SPEC K6)."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

from crkafka_core.tables.stamp import LogEntry

Touched = Callable[[str], Container[int] | None]
"""Checkpoints of which a version may have brought or taken rows; None: nobody knows."""


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
