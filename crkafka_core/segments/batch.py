"""Arrow batches of tuples, and the runs of one partition inside them (SPEC M2, K2).

A batch is made once from the consumer's records and never copied: dropping a partition, skipping below an offset and splitting only
change the list of runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from crkafka_core.model.offsets import TP

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

SCHEMA = pa.schema(
    {"key": pa.binary(), "value": pa.binary(), "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
    | {"timestamp": pa.timestamp("us", tz="UTC"), "timestampType": pa.int32(), "headers": HEADERS}
)
"""Schema of Spark's Kafka source with `includeHeaders`, with the same nullability (SPEC K2)."""

CHECKPOINT = "crkafka_checkpoint"
SEGMENT = SCHEMA.append(pa.field(CHECKPOINT, pa.int64(), nullable=False))
"""Schema of a segment: the columns of records, and the number of their checkpoint (SPEC C8)."""

TOPIC_IDS = "crkafka.topic_ids"
"""Key of the topics' ids in a segment's metadata, as JSON."""


def numbered(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    """Records with the columns of a segment of this checkpoint."""
    return pa.RecordBatch.from_arrays([*batch.columns, repeated(number, pa.int64(), batch.num_rows)], schema=SEGMENT)


def repeated(value: str | int | None, kind: pa.DataType, rows: int) -> pa.Array:
    """A column of one value, from buffers: `pa.array` would import pandas."""
    if value is None:
        return pa.nulls(rows, kind)
    if isinstance(value, int):
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(np.full(rows, value, f"int{kind.bit_width}"))])
    text = value.encode()
    ends = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(len(text)))
    return pa.Array.from_buffers(kind, rows, [None, ends, pa.py_buffer(text * rows)])


@dataclass(frozen=True, slots=True)
class Run:
    """Rows [start, stop) of a batch: consecutive records of one partition in offset order."""

    tp: TP
    start: int
    stop: int
    first: int
    """Offset of the first record."""
    next: int
    """Offset of the last record, plus one."""
    since: int | None = None
    """The offset that this run continues from: no record between it and `first` was left out. None: unknown (SPEC M3)."""
    leader_epoch: int = -1
    """Kafka's epoch of the leader that wrote these records; −1 is unknown (SPEC S4)."""

    @property
    def rows(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record with a part that could not be decoded, and is null (SPEC X9)."""

    tp: TP
    offset: int
    why: str

    def __str__(self) -> str:
        return f"{self.tp}@{self.offset}: {self.why}"


@dataclass(frozen=True)
class Batch:
    """Records; only the rows in `runs` belong to the batch."""

    records: pa.RecordBatch
    runs: tuple[Run, ...]
    unreadable: tuple[Unreadable, ...] = ()
    """Unreadable records of all rows, also of those that `runs` no longer has."""

    @cached_property
    def rows(self) -> int:
        return sum(run.rows for run in self.runs)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the rows in `runs`, estimated by their share: for bounds on memory."""
        total = self.records.num_rows
        return int(self.records.nbytes * self.rows / total) if total else 0

    @property
    def tps(self) -> frozenset[TP]:
        return frozenset(run.tp for run in self.runs)

    def offsets(self) -> dict[TP, int]:
        """Per partition the next offset after this batch."""
        return {run.tp: run.next for run in self.runs}

    def pieces(self) -> list[pa.RecordBatch]:
        """The rows in `runs` as slices without a copy; adjacent runs are one slice."""
        slices: list[tuple[int, int]] = []
        for run in self.runs:
            if slices and slices[-1][1] == run.start:
                slices[-1] = (slices[-1][0], run.stop)
            else:
                slices.append((run.start, run.stop))
        return [self.records.slice(start, stop - start) for start, stop in slices]

    def select(self, keep: Callable[[Run], bool]) -> Batch:
        """The batch with the runs for which `keep` is true."""
        runs = tuple(run for run in self.runs if keep(run))
        return self if len(runs) == len(self.runs) else replace(self, runs=runs)

    def only(self, tps: Iterable[TP]) -> Batch:
        """The batch with the runs of these partitions."""
        wanted = frozenset(tps)
        return self.select(lambda run: run.tp in wanted)

    def until(self, rows: Mapping[TP, int]) -> Batch:
        """The batch up to the given row of each partition; other partitions stay whole."""
        runs = []
        for run in self.runs:
            stop = min(run.stop, rows.get(run.tp, run.stop))
            if stop > run.start:
                runs.append(self._cut(run, run.start, stop))
        return replace(self, runs=tuple(runs))

    def continuing(self, frontier: Mapping[TP, int]) -> Batch:
        """The batch with `since` of each run set to its partition's frontier, or the end of the run before it (SPEC M3)."""
        ends = dict(frontier)
        runs = []
        for run in self.runs:
            runs.append(replace(run, since=ends.get(run.tp)))
            ends[run.tp] = run.next
        return replace(self, runs=tuple(runs))

    def skip_below(self, nexts: Mapping[TP, int]) -> Batch:
        """The batch from the given offset of each partition on (SPEC M3); other partitions stay whole."""
        runs = []
        for run in self.runs:
            least = nexts.get(run.tp)
            if least is None or least <= run.first:
                runs.append(run)
            elif least < run.next:
                below = int(np.searchsorted(self._offset_column[run.start : run.stop], least))
                runs.append(self._cut(run, run.start + below, run.stop))
        return replace(self, runs=tuple(runs)) if len(runs) < len(self.runs) or runs != list(self.runs) else self

    def head(self, rows: int) -> tuple[Batch, Batch]:
        """The first `rows` rows, and the rest (SPEC V2)."""
        if rows >= self.rows:
            return self, replace(self, runs=())
        before, after, left = [], [], rows
        for run in self.runs:
            taken = min(left, run.rows)
            left -= taken
            if taken:
                before.append(self._cut(run, run.start, run.start + taken))
            if taken < run.rows:
                after.append(self._cut(run, run.start + taken, run.stop))
        return replace(self, runs=tuple(before)), replace(self, runs=tuple(after))

    def _cut(self, run: Run, start: int, stop: int) -> Run:
        """The part [start, stop) of a run; never empty."""
        if (start, stop) == (run.start, run.stop):
            return run
        at = self._offset_column
        since = run.since if start == run.start else int(at[start - 1]) + 1
        end = run.next if stop == run.stop else int(at[stop - 1]) + 1
        continued = None if run.since is None else since
        return replace(run, start=start, stop=stop, first=int(at[start]), next=end, since=continued)

    @cached_property
    def _offset_column(self) -> np.ndarray:
        # Not `to_numpy()`, which imports pandas: a second and 40 MB.
        column = self.records.column("offset")
        whole = np.frombuffer(column.buffers()[1], np.int64)
        return whole[column.offset : column.offset + len(column)]
