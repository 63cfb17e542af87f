"""Data files of one output, written row group by row group, with their bounds and null counts as the writer has them (SPEC K6)."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.lake import partitions
from crkafka_core.lake.columns import DELETED, TOMBSTONE, conformed
from crkafka_core.lake.files import bounds_of
from crkafka_core.lake.port import CHECKPOINT, DataFile, NewFile, Part
from crkafka_core.model.errors import Refused
from crkafka_core.model.plural import plural
from crkafka_core.segments import read_footer
from crkafka_core.segments.rows import Sink, parquet_writer
from crkafka_core.segments.storage import Storage

ROW_GROUP_BYTES = 32 << 20
"""Rows in memory before they become a row group; of all partitions together, twice as many."""
FILE_BYTES = 512 << 20
"""A file that has grown to this is closed, and another one begun."""
OPEN_FILES = 64
"""Files of one output that are open at once; the one that got no rows for longest is closed."""


@dataclass(frozen=True)
class Output:
    """Where the rows of one output go."""

    storage: Storage
    """Of the table."""
    folder: str
    """Below it, for the new files."""
    parts: Sequence[Part] = ()
    columns: pa.Schema | None = None
    """Of the table, where it has more of them than the transform gives."""
    keys: Sequence[str] = ()
    """By which it has one row for each key: records that delete theirs are marked in the new files."""
    place: Sequence[str] = ()
    """Columns with a record's topic, partition and offset, where it has keys."""


class NewFiles:
    """The files of one output, made by one process; `output` None: rows are counted, and go nowhere."""

    def __init__(self, output: Output | None, schema: pa.Schema) -> None:
        self._output = output
        self._schema = schema if output is None or output.columns is None else output.columns
        self._open: dict[tuple[Any, ...], _File] = {}
        """By partition values; the one that got rows last is last."""
        self.made: list[NewFile] = []
        self.rows: Counter[int] = Counter()
        """Of each checkpoint."""

    def add(self, checkpoint: int, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        self.rows[checkpoint] += rows.num_rows
        if self._output is None:
            return
        if CHECKPOINT not in rows.schema.names:
            number = pa.repeat(pa.scalar(checkpoint, pa.int64()), rows.num_rows)
            rows = rows.add_column(0, self._schema.field(CHECKPOINT), number)
        self._put(rows, self._output)

    def add_numbered(self, rows: pa.RecordBatch) -> None:
        """Rows of any checkpoints, each with its number."""
        for each in pc.value_counts(rows.column(CHECKPOINT)).to_pylist():
            self.rows[each["values"]] += each["counts"]
        if self._output is not None and rows.num_rows:
            self._put(rows, self._output)

    def _put(self, rows: pa.RecordBatch, output: Output) -> None:
        deleting = _deleting(rows, output.keys, output.place) if output.keys else None
        for values, part in partitions.parted(conformed(rows, self._schema), output.parts):
            file = self._open.pop(values, None) or _File(output, self._schema, values)
            self._open[values] = file
            file.add(part, deleting)
            if file.sink is not None and file.sink.written >= FILE_BYTES:
                self._close(values)
        while len(self._open) > OPEN_FILES:  # a batch may have rows of thousands of partitions
            self._close(next(iter(self._open)))
        while sum(file.holds for file in self._open.values()) >= 2 * ROW_GROUP_BYTES:
            max(self._open.values(), key=lambda file: file.holds).write()

    def close(self) -> None:
        for values in list(self._open):
            self._close(values)

    def _close(self, values: tuple[Any, ...]) -> None:
        self.made.append(self._open[values].close())
        del self._open[values]

    def discard(self) -> None:
        for file in self._open.values():
            file.discard()
        for made in self.made:
            assert self._output is not None
            with suppress(Exception):
                self._output.storage.delete(made.path)


class _File:
    """One new file, begun when its first row group is written."""

    def __init__(self, output: Output, schema: pa.Schema, values: tuple[Any, ...]) -> None:
        self._output, self._schema = output, schema
        names = map(partitions.field_name, output.parts)
        self._values = dict(zip(names, values, strict=True))
        self._path = f"{output.folder}/{uuid.uuid4().hex}.parquet"
        self._held: list[pa.RecordBatch] = []
        self.holds = self._rows = 0
        self._deleting: list[int] = []
        """Positions of records that delete their key."""
        self.sink: Sink | None = None
        self._footers: list[Any] = []
        self._unordered: set[str] = set()
        """Columns with a value that has no place in an order."""

    def add(self, rows: pa.RecordBatch, deleting: np.ndarray | None = None) -> None:
        if deleting is not None:
            self._deleting += (np.flatnonzero(deleting) + self._rows).tolist()
        self._rows += rows.num_rows
        self._held.append(rows)
        self.holds += rows.nbytes
        if self.holds >= ROW_GROUP_BYTES:
            self.write()

    def write(self) -> None:
        """Rows that are held, as a row group."""
        table, self._held, self.holds = pa.Table.from_batches(self._held, self._schema), [], 0
        for each in self._schema:
            if pa.types.is_floating(each.type) and pc.any(pc.is_nan(table.column(each.name))).as_py():
                self._unordered.add(each.name)
        if self.sink is None:
            self.sink = Sink(self._output.storage.open_write(self._path))
            self._writer = parquet_writer(
                self.sink,
                self._schema,
                compression="zstd",
                use_dictionary=[f.name for f in self._schema if pa.types.is_string(f.type)],  # numbers only grow by it
                store_schema=False,
                metadata_collector=self._footers,
            )
        self._writer.write_table(table, row_group_size=table.num_rows)

    def close(self) -> NewFile:
        """Whole and durable; what the table's log has to know of it."""
        try:
            if self._held:
                self.write()
            assert self.sink is not None
            self._writer.close()
            self.sink.output.close()
        except BaseException:
            self.discard()
            raise
        rows, columns = read_footer.columns_of(self._footers[0])
        marks = tuple(self._deleting) or None
        bounds = bounds_of(columns, self._unordered)
        return DataFile(self._path, self.sink.written, rows, *bounds, self._values, marks)

    def discard(self) -> None:
        if self.sink is not None:
            self.sink.dead = True
            self.sink.output.discard()


def _deleting(rows: pa.RecordBatch, keys: Sequence[str], place: Sequence[str]) -> np.ndarray:
    """Which records delete their key. Refused if one has no key: its row is not known."""
    keyless = reduce(pc.and_, (pc.is_null(rows.column(name)) for name in keys)).to_numpy(zero_copy_only=False)
    if keyless.any():
        first = [rows.column(name)[int(np.argmax(keyless))].as_py() for name in place]
        raise Refused(
            f"{plural(int(keyless.sum()), 'record has', 'records have')} no {', '.join(keys)}, by which the table has one row "
            f"for each key; the first is {tuple(first)}.",
            hint="Nothing was written. Leave such records out in the table's shape.",
        )
    column = next((name for name in (DELETED, TOMBSTONE) if name in rows.schema.names), None)
    if column is None:
        return np.zeros(rows.num_rows, bool)
    deleting: np.ndarray = rows.column(column).cast(pa.bool_()).fill_null(False).to_numpy(zero_copy_only=False)
    return deleting
