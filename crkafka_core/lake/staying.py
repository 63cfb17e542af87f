"""Whose row is this: one comparison of its checkpoint's number (SPEC C8)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.lake.columns import PLACE, Place
from crkafka_core.lake.port import CHECKPOINT, DataFile

Interval = tuple[int, int]
"""The lowest and the highest number in it."""


@dataclass(frozen=True)
class Staying:
    """Numbers whose rows stay in a table; all others leave it."""

    intervals: tuple[Interval, ...]
    """Apart, in order."""
    unnumbered: bool = True
    """Rows without a number stay, too: others have written them, and a repair takes them out."""
    erased: tuple[tuple[int, str, int, tuple[int, ...]], ...] = ()
    """Records that leave: checkpoint, topic, partition, offsets."""
    place: Place = PLACE
    """Columns with a record's topic, partition and offset."""

    @classmethod
    def without_erased(cls, erased: Iterable[tuple[int, str, int, tuple[int, ...]]], place: Place) -> Staying:
        """All rows but these."""
        return cls(((0, 2**62),), erased=tuple(erased), place=place)

    @property
    def columns(self) -> list[str]:
        """Columns by which a row stays or leaves."""
        return [CHECKPOINT, *self.place] if self.erased else [CHECKPOINT]

    @classmethod
    def of(
        cls, upto: int, dead: Iterable[Interval], without: Collection[int] = (), *, unnumbered: bool = True
    ) -> Staying:
        """The numbers to `upto`, without the dead intervals (after, upto] and without some more."""
        gone = sorted([*((after + 1, last) for after, last in dead), *((number, number) for number in without)])
        kept: list[Interval] = []
        at = 1
        for low, high in gone:
            if low > at:
                kept.append((at, min(low - 1, upto)))
            at = max(at, high + 1)
        kept.append((at, upto))
        return cls(tuple((low, high) for low, high in kept if low <= high), unnumbered)

    def holds(self, number: int) -> bool:
        """Whether rows of this number stay."""
        return self._all((number, number))

    def _all(self, held: Interval) -> bool:
        at = bisect_right(self.intervals, held[0], key=lambda each: each[0]) - 1
        return at >= 0 and self.intervals[at][1] >= held[1]

    def of_file(self, file: DataFile) -> bool | None:
        """Whether all rows of a file stay (True) or leave (False), by its bounds in the log; None: its rows have to be read."""
        held, nulls = file.numbers, file.nulls.get(CHECKPOINT)
        if held is None or nulls is None or any(held[0] <= number <= held[1] for number, *_ in self.erased):
            return None
        if self._all(held):
            return True if self.unnumbered or not nulls else None
        none = not any(low <= held[1] and high >= held[0] for low, high in self.intervals)
        return False if none and not (nulls and self.unnumbered) else None

    def mask(self, batch: pa.RecordBatch) -> np.ndarray:
        """Which rows of a batch stay."""
        column = batch.column(batch.schema.get_field_index(CHECKPOINT)).cast(pa.int64())
        numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
        stays = np.zeros(len(numbers), bool)
        for low, high in self.intervals:
            stays |= (numbers >= low) & (numbers <= high)
        if column.null_count:
            nulls = column.is_null().to_numpy(zero_copy_only=False)
            stays = stays | nulls if self.unnumbered else stays & ~nulls
        for number, topic, partition, offsets in self.erased:
            topics, partitions, of = (batch.column(name) for name in self.place)
            here = pc.and_(pc.equal(topics, topic), pc.equal(partitions, partition))
            gone = pc.and_(here, pc.is_in(of, pa.array(offsets, pa.int64())))
            stays &= ~(gone.fill_null(False).to_numpy(zero_copy_only=False) & (numbers == number))
        return stays
