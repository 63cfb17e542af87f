"""Data files of an adopted table: how they are called, and what its log is told of each (SPEC K6)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.model.errors import DataLoss
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Segment
from crkafka_core.model.segment_name import SegmentName
from crkafka_core.model.selection import Selection
from crkafka_core.plane.reading import KafkaRange, ReadPlan
from crkafka_core.segments import rows as parquet
from crkafka_core.segments.read_footer import footer
from crkafka_core.segments.scan import scan_segment
from crkafka_core.segments.storage import Storage
from crkafka_core.tables.stamp import Stamp

KEY = ["topic", "partition", "offset"]
_NAME = re.compile(r"(?P<uid>[^/]+)/\d{8,}/(?P<checkpoint>\d{12,})-[^/]+\.parquet")

_PACKED = re.compile(r"(?P<uid>[^/]+)/packed/(?P<first>\d{12,})-(?P<last>\d{12,})-[^/]+\.parquet")
"""Files that `maintain` has made of several, with the first and the last checkpoint in them."""
FETCHED = "of_checkpoint"
"""Names the folders of files that are read again from Kafka: one for each checkpoint."""
_FETCHED = re.compile(rf"/{FETCHED}=(?P<checkpoint>\d+)/[^/]+\.parquet$")


def name_of(segment: Segment) -> str:
    """Where the table keeps a segment; made of what never changes, so that adopting again is the same file."""
    name = SegmentName.parse(segment.path)
    if name is None:
        raise ValueError(f"{segment.path} is not a segment.")
    return f"{name.uid}/{name.epoch:08d}/{segment.checkpoint:012d}-{name.incarnation}-{name.seq}.parquet"


def other_name_of(segment: Segment, stamp: Stamp) -> str:
    """Where the table keeps a segment whose own name it may have used before; it tells the checkpoint, too."""
    return f"{name_of(segment).removesuffix('.parquet')}.{stamp.number}-{stamp.token[-8:]}.parquet"


def checkpoint_of(path: str, uid: str) -> int | None:
    """The checkpoint whose rows an adopted file holds; None for any other file, as one that a compaction wrote."""
    name = _NAME.fullmatch(path)
    return int(name["checkpoint"]) if name is not None and name["uid"] == uid else None


def packed_name(uid: str, first: int, last: int, token: str) -> str:
    """Of a file with the rows of several retired checkpoints."""
    return f"{uid}/packed/{first:012d}-{last:012d}-{token[-12:]}.parquet"


def packed_of(path: str, uid: str) -> tuple[int, int] | None:
    """First and last checkpoint of such a file; None for any other."""
    name = _PACKED.fullmatch(path)
    return (int(name["first"]), int(name["last"])) if name is not None and name["uid"] == uid else None


def checkpoints_of(path: str, uid: str) -> tuple[int, int] | None:
    """First and last checkpoint whose rows a file of ours holds; None for a file of others."""
    one = checkpoint_of(path, uid)
    return packed_of(path, uid) if one is None else (one, one)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Least and greatest values of a file's rows."""

    rows: int
    topics: tuple[str, str]
    partitions: tuple[int, int]
    offsets: tuple[int, int]
    """Of the first and of the last record."""
    times: tuple[datetime, datetime] | None = None


class Tally:
    """Counts the rows that pass, and keeps the least and the greatest values of their key in each batch."""

    def __init__(self) -> None:
        self.rows = 0
        self._ends: dict[str, set[Any]] = {column: set() for column in KEY}

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.rows += batch.num_rows
            for column, values in self._ends.items():
                values.update(pc.min_max(batch.column(column)).as_py().values())
            yield batch

    def bounds(self, times: tuple[datetime, datetime] | None = None) -> Bounds:
        topics, partitions, offsets = map(_least_and_greatest, self._ends.values())
        return Bounds(self.rows, topics, partitions, offsets, times)


@dataclass(frozen=True, slots=True)
class Added:
    """A file that a commit brings."""

    name: str
    """Relative to the table."""
    size: int
    bounds: Bounds
    changes_rows: bool = True
    """Who streams from the table passes over one that does not."""


def adopt(storage: Storage, segment: Segment, table: Storage, name: str) -> Added:
    """Have the table own the segment under this name. May be repeated."""
    size = table.own(storage, segment.path, name)
    return Added(name, size, bounds_of(segment, storage))


def adopt_rest(storage: Storage, segment: Segment, table: Storage, name: str, selection: Selection) -> list[Added]:
    """Have the table own what is selected of the segment's records, in a file of its own; none if that is nothing."""
    selected = scan_segment(storage, segment.path, landed=segment.rows, selection=selection)
    first, tally = next(selected, None), Tally()
    if first is None:
        return []
    size = parquet.write(table, name, tally.of(chain([first], selected)), compression="zstd")
    return [Added(name, size, replace(bounds_of(segment, storage), rows=tally.rows))]


def bounds_of(segment: Segment, storage: Storage) -> Bounds:
    """From what SQL knows of a segment, and from its footer."""
    spans = [(str(t), int(p), int(first), int(next_)) for t, p, first, next_, _ in json.loads(segment.spans_json)]
    told = footer(storage, segment.path)
    times = None if told.earliest is None or told.latest is None else (told.earliest, told.latest)
    return Bounds(
        segment.rows,
        _least_and_greatest(t for t, _, _, _ in spans),
        _least_and_greatest(p for _, p, _, _ in spans),
        (min(first for _, _, first, _ in spans), max(next_ for _, _, _, next_ in spans) - 1),
        times,
    )


def fetched(storage: Storage, folder: str, plan: ReadPlan, stamp: Stamp) -> list[Added]:
    """Files below a folder of the table, in one folder for each checkpoint, under names that tell it."""
    expected: dict[int, list[KafkaRange]] = {}
    for r in plan.ranges:
        expected.setdefault(r.checkpoint, []).append(r)
    counts: Counter[int] = Counter()
    add = []
    for i, path in enumerate(sorted(stored.path for stored in storage.list(folder))):
        told = _FETCHED.search(path)
        if told is None:
            continue
        checkpoint, rows = int(told["checkpoint"]), footer(storage, path).rows
        name = f"{stamp.uid}/{0:08d}/{checkpoint:012d}-{stamp.number}.{stamp.token[-8:]}-{i}.parquet"
        size, of = storage.own(storage, path, name), expected[checkpoint]
        counts[checkpoint] += rows
        topics, partitions = _least_and_greatest(r.topic for r in of), _least_and_greatest(r.partition for r in of)
        offsets = min(r.start for r in of), max(r.stop for r in of) - 1
        add.append(Added(name, size, Bounds(rows, topics, partitions, offsets)))
    wanted = plan.rows_for_tables
    for checkpoint in expected:
        if counts[checkpoint] != wanted[checkpoint]:
            raise DataLoss(
                f"Kafka gave {plural(counts[checkpoint], 'row')} of checkpoint {checkpoint} for table {stamp.table}; "
                f"{wanted[checkpoint]} were merged, and not erased.",
                hint="Nothing was committed.",
            )
    return add


def _least_and_greatest(values: Iterable[Any]) -> tuple[Any, Any]:
    known = list(values)
    return min(known), max(known)
