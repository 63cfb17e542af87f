"""Whose a record is, by where it lies in Kafka: rows of compacted files of a raw table tell nothing else (SPEC K6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crkafka_core.model.offsets import TP

NOWHERE, OVERLAP = -1, -2
"""The checkpoint of a row that is in none; and, with lower ones, numbers of those whose rows cannot be told apart."""
NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Range:
    """Offsets that a checkpoint took of a partition, and how many records there are."""

    start: int
    stop: int
    rows: int


@dataclass(frozen=True)
class Share:
    """All that a checkpoint took of a partition."""

    checkpoint: int
    start: int
    stop: int
    rows: int


class Overlap:
    """Checkpoints that took the same offsets of a partition, as of a topic made anew and of the old one: some rows may be of any."""

    def __init__(self, tp: TP, shares: Sequence[Share]) -> None:
        self.tp, self.shares = tp, shares
        self._lacking: list[Share] = []
        self._rows: list[np.ndarray] = []

    def add(self, offsets: np.ndarray) -> None:
        """Rows that may be of any of them."""
        self._rows.append(offsets)

    def lacks(self, checkpoint: int, known: np.ndarray) -> None:
        """Of this one no more than these rows are known to be its own."""
        self._lacking += (share for share in self.shares if share.checkpoint == checkpoint)
        self._rows.append(known)

    @property
    def words(self) -> str:
        """Which checkpoints."""
        ids = [share.checkpoint for share in self._lacking or self.shares]
        return "" if len(ids) == 1 else f", of checkpoints between {min(ids)} and {max(ids)} that took the same offsets"

    @property
    def checkpoint(self) -> int:
        """The only one of which rows are looked for; else 0."""
        return self._lacking[0].checkpoint if len(self._lacking) == 1 else 0

    @property
    def due(self) -> int:
        """Rows of those that lack some."""
        return sum(share.rows for share in self._lacking)

    def counted(self) -> tuple[np.ndarray, int]:
        """Offsets that are there more often than checkpoints took them; and the number of rows without these."""
        offsets, times = np.unique(np.concatenate([NONE, *self._rows]), return_counts=True)
        most = self._took(offsets)
        return offsets[times > most], int(np.minimum(times, most).sum())

    def first_missing(self) -> int | None:
        """The first offset that is there less often than it was taken, where each of these has a record."""
        if any(share.rows != share.stop - share.start for share in self._lacking):
            return None
        all_ = np.arange(min(s.start for s in self._lacking), max(s.stop for s in self._lacking))
        there = np.sort(np.concatenate([NONE, *self._rows]))
        times = np.searchsorted(there, all_, side="right") - np.searchsorted(there, all_)
        missing = all_[times < self._took(all_)]
        return int(missing[0]) if len(missing) else None

    def _took(self, offsets: np.ndarray) -> np.ndarray:
        """How many of those that lack rows took each offset."""
        starts, stops = np.sort([s.start for s in self._lacking]), np.sort([s.stop for s in self._lacking])
        return np.searchsorted(starts, offsets, side="right") - np.searchsorted(stops, offsets, side="right")


class Places:
    """Checkpoints by offsets."""

    def __init__(self, expected: Mapping[int, Mapping[TP, Sequence[Range]]]) -> None:
        self._expected = expected
        self.overlaps: list[Overlap] = []
        columns: defaultdict[TP, list[tuple[int, int, int]]] = defaultdict(list)
        for tp, shares in _shares(expected).items():
            for group in _overlapping(shares):
                number = group[0].checkpoint
                if group[1:]:
                    number = OVERLAP - len(self.overlaps)
                    self.overlaps.append(Overlap(tp, group))
                columns[tp].append((group[0].start, max(share.stop for share in group), number))
        self._columns = {tp: np.array(there, np.int64).T for tp, there in columns.items()}

    def between(self, first: int, last: int) -> Places:
        """The same for rows of these checkpoints alone."""
        return Places({c: of for c, of in self._expected.items() if first <= c <= last})

    def of(self, topics: Sequence[str], codes: np.ndarray, partitions: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """The checkpoint of each row, or `NOWHERE`, or `OVERLAP` less a number in `overlaps`."""
        found = np.full(len(offsets), NOWHERE, np.int64)
        for (code, partition), rows in groups(codes, partitions):
            known = self._columns.get(TP(topics[code], partition))
            if known is not None:
                starts, stops, ids = known
                at = np.maximum(np.searchsorted(starts, offsets[rows], side="right") - 1, 0)
                inside = (starts[at] <= offsets[rows]) & (offsets[rows] < stops[at])
                found[rows] = np.where(inside, ids[at], NOWHERE)
        return found


def _shares(expected: Mapping[int, Mapping[TP, Sequence[Range]]]) -> dict[TP, list[Share]]:
    """By their first offsets."""
    shares: defaultdict[TP, list[Share]] = defaultdict(list)
    for checkpoint, of in expected.items():
        for tp, ranges in of.items():
            start, stop = min(r.start for r in ranges), max(r.stop for r in ranges)
            shares[tp].append(Share(checkpoint, start, stop, sum(r.rows for r in ranges)))
    return {tp: sorted(there, key=lambda share: (share.start, share.checkpoint)) for tp, there in shares.items()}


def _overlapping(shares: Sequence[Share]) -> Iterator[list[Share]]:
    """Those that overlap together, each other alone."""
    group: list[Share] = []
    end = 0
    for share in shares:
        if group and share.start >= end:
            yield group
            group = []
        end = max(end, share.stop) if group else share.stop
        group.append(share)
    if group:
        yield group


def groups(*keys: np.ndarray) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """Each combination of values, and the rows that have it."""
    if not len(keys[0]):
        return
    order = np.lexsort(keys[::-1])
    there = np.stack([key[order] for key in keys])
    starts = [0, *(np.flatnonzero(np.any(np.diff(there, axis=1) != 0, axis=0)) + 1).tolist()]
    for at, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        yield tuple(there[:, at].tolist()), order[at:stop]
