"""Data files that a commit adds or takes out: segments as they are, what is left of a file, and whose its rows are (SPEC K6, C8)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.lake.columns import PLACE, Place
from crkafka_core.lake.port import CHECKPOINT, DataFile, NewFile
from crkafka_core.lake.vectors import Positions, as_array
from crkafka_core.model.errors import Refused
from crkafka_core.model.rows import Segment
from crkafka_core.plane import erasure
from crkafka_core.plane.reading import ReadPlan
from crkafka_core.segments import read_footer
from crkafka_core.segments import rows as parquet
from crkafka_core.segments.scan import scan_segment
from crkafka_core.segments.storage import Storage

_BOUNDS = (int, float, str, date)


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

    def holds(self, first: int, last: int) -> bool:
        at = bisect_right(self.intervals, first, key=lambda each: each[0]) - 1
        return at >= 0 and self.intervals[at][1] >= last

    def of_file(self, file: DataFile) -> bool | None:
        """Whether all rows of a file stay (True) or leave (False), by its bounds in the log; None: its rows have to be read."""
        held, nulls = file.numbers, file.nulls.get(CHECKPOINT)
        if held is None or nulls is None or any(held[0] <= number <= held[1] for number, *_ in self.erased):
            return None
        if self.holds(*held):
            return True if self.unnumbered or not nulls else None
        none = not any(low <= held[1] and high >= held[0] for low, high in self.intervals)
        return False if none and not (nulls and self.unnumbered) else None

    def mask(self, batch: pa.RecordBatch) -> np.ndarray:
        column = batch.column(batch.schema.get_field_index(CHECKPOINT)).cast(pa.int64())
        numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
        stays = np.zeros(len(numbers), bool)
        for low, high in self.intervals:
            stays |= (numbers >= low) & (numbers <= high)
        if column.null_count:
            nulls = column.is_null().to_numpy(zero_copy_only=False)
            stays = stays | nulls if self.unnumbered else stays & ~nulls
        for number, topic, partition, offsets in self.erased:
            topics, partitions, positions = (batch.column(name) for name in self.place)
            here = pc.and_(pc.equal(topics, topic), pc.equal(partitions, partition))
            gone = pc.and_(here, pc.is_in(positions, pa.array(offsets, pa.int64())))
            stays &= ~(gone.fill_null(False).to_numpy(zero_copy_only=False) & (numbers == number))
        return stays


def described(storage: Storage, path: str, size: int) -> NewFile:
    """A file in storage, by its footer: its bounds are exact, and show whose rows are in it (SPEC C8)."""
    rows, columns = read_footer.columns(storage, path)
    return NewFile(
        path, size, rows, *bounds_of(columns, [name for name, c in columns.items() if type(c.least) is float])
    )


def bounds_of(
    columns: Mapping[str, read_footer.Column], unordered: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Least values, greatest values and counts of nulls. `unordered`: columns that may have NaN, which has no place in an order."""
    ordered = {
        name: each
        for name, each in columns.items()
        if name not in unordered and isinstance(each.least, _BOUNDS) and isinstance(each.greatest, _BOUNDS)
    }
    least = {name: each.least for name, each in ordered.items()}
    greatest = {name: each.greatest for name, each in ordered.items()}
    return least, greatest, {name: each.nulls for name, each in columns.items()}


def adopted(source: Storage, segments: Sequence[Segment], plan: ReadPlan, table: Storage, folder: str) -> list[NewFile]:
    """Segments become files of the table, each by a link or a copy; of one with erased records the others are written."""

    def one(numbered: tuple[int, Segment]) -> list[NewFile]:
        i, segment = numbered
        path, selection = f"{folder}/{i:05d}.parquet", plan.selection.within(segment.checkpoint)
        if not erasure.touches(selection, segment):
            return [described(table, path, table.own(source, segment.path, path))]
        rest = scan_segment(source, segment.path, landed=segment.rows, selection=selection)
        return written(table, path, rest)

    return list(chain.from_iterable(table.each(one, list(enumerate(segments)))))


def written(table: Storage, path: str, batches: Iterable[pa.RecordBatch]) -> list[NewFile]:
    """A file of these rows; none where there are none."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return []
    return [described(table, path, parquet.write(table, path, chain([first], filled), compression="zstd"))]


def rows_of(
    table: Storage, file: DataFile, columns: Collection[str] = (), *, only: bool = False
) -> Iterator[pa.RecordBatch]:
    """Rows of a file of the table that are not marked as deleted; of all columns, or only these."""
    kept = None
    if file.marks:
        gone = as_array(file.marks)
        kept = np.ones(int(gone[-1]) + 1, bool)
        kept[gone] = False
    try:
        yield from parquet.batches(table, file.path, columns, only=only, kept=kept)
    except parquet.OtherColumns:
        raise Refused(
            f"The file {table.uri(file.path)} has columns under other names (column mapping), or lacks one of {', '.join(columns)}.",
            hint="Let the table be as it was (RESTORE), or declare it at another path.",
        ) from None


def numbers_of(table: Storage, file: DataFile) -> Iterator[pa.RecordBatch]:
    if CHECKPOINT in read_footer.names(table, file.path):
        yield from rows_of(table, file, [CHECKPOINT], only=True)
    else:
        rows = read_footer.row_count(table, file.path) - len(file.marks or ())
        yield pa.RecordBatch.from_arrays([pa.nulls(rows, pa.int64())], names=[CHECKPOINT])


def parted(
    table: Storage, files: Iterable[DataFile], staying: Staying, lost: Collection[str] = ()
) -> tuple[list[DataFile], list[DataFile]]:
    """Files that leave, and the ones among them with rows that stay; a file's rows are read only where its bounds do not decide.

    A lost one, whose rows cannot be read, stays in the log then: a repair takes it out.
    """
    leaving: list[DataFile] = []
    torn: list[DataFile] = []
    for file in files:
        stays = staying.of_file(file)
        if stays is None:
            if file.path in lost:
                continue
            columns = staying.columns
            rows = numbers_of(table, file) if len(columns) == 1 else rows_of(table, file, columns, only=True)
            masks = [staying.mask(batch) for batch in rows]
            stays = all(mask.all() for mask in masks)
            if not stays and any(mask.any() for mask in masks):
                torn.append(file)
        if not stays:
            leaving.append(file)
    return leaving, torn


def rest_of(table: Storage, file: DataFile, staying: Staying, path: str) -> list[NewFile]:
    """A new file with the rows that stay of a torn one, in the same partition."""
    rest = (batch.filter(pa.array(staying.mask(batch))) for batch in rows_of(table, file))
    return [replace(new, values=file.values) for new in written(table, path, rest)]


def missing(table: Storage, files: Collection[DataFile]) -> set[str]:
    """Paths of files that are not in storage, or whose marks are not."""
    stored = {each.path for each in table.list("")}
    lost = set[str]()
    for file in files:
        if not stored.issuperset({file.path, *(file.marks.files if isinstance(file.marks, Positions) else ())}):
            lost.add(file.path)
    return lost
