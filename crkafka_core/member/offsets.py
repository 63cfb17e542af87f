"""The offset manager: (topic, partition) → next offset, for assigned partitions only (SPEC M3)."""

from __future__ import annotations

from collections.abc import Mapping

from crkafka_core.model.offsets import TP


class OffsetManager:
    """Owned by whoever holds the permit. `since` is where the open checkpoint began, so that from, to and rows are at hand."""

    def __init__(self) -> None:
        self.next: dict[TP, int] = {}
        self.since: dict[TP, int] = {}
        self.rows: dict[TP, int] = {}

    def place(self, offsets: Mapping[TP, int]) -> None:
        """These partitions are assigned, and start here; all others are forgotten."""
        self.next = dict(offsets)
        self.since = dict(offsets)
        self.rows = dict.fromkeys(offsets, 0)

    def record(self, tp: TP, next_offset: int, rows: int) -> None:
        """Tuples of an assigned partition were submitted."""
        self.next[tp] = next_offset
        self.rows[tp] += rows

    def part(self) -> dict[TP, tuple[int, int, int]]:
        """(from, to, rows) of each partition since the last cut."""
        return {tp: (self.since[tp], offset, self.rows[tp]) for tp, offset in self.next.items()}

    def merged(self) -> None:
        """The cut is merged: the next one begins where it ended."""
        self.since = dict(self.next)
        self.rows = dict.fromkeys(self.next, 0)
