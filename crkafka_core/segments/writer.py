"""Writer of a member's open segment: batches in, Parquet out, row groups as they fill (SPEC C7, K2)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from isal import isal_zlib

from crkafka_core.model.offsets import TP
from crkafka_core.model.segment import ClosedSegment, SegmentName, Span
from crkafka_core.segments.batch import CHECKPOINT, SCHEMA, SEGMENT, TOPIC_IDS, Batch, repeated
from crkafka_core.segments.constants import Constants
from crkafka_core.segments.rows import Sink
from crkafka_core.segments.storage import Storage

ROW_GROUP_BYTES = 4 << 20
"""Bytes of tuples in memory that become a row group. A cut waits for at most two: about 10 ms each."""

MERGED = "crkafka.merged"
"""Key of the newest merge that the writer knew of when it closed the segment (SPEC C8)."""
COMPRESSIONS = ("auto", "lz4", "snappy", "zstd", "none")
"""`auto` is lz4, but none for keys and values whose sample hardly shrinks: random or encrypted bytes, or digits of which only the
beginning repeats, would take a fifth of a member's processor time."""
_PIECES, _PIECE_BYTES = 16, 4 << 10
"""The sample, from all over the first row group: topics, and times in one topic, can differ."""
_WORTH_IT = 0.8
"""A column is compressed if its sample shrinks below this share."""


class Writer(Protocol):
    """An open segment."""

    @property
    def bytes(self) -> int: ...
    def write(self, batch: Batch) -> None: ...
    def close(self, topic_ids: Mapping[str, str] | None = None, merged: int = 0) -> ClosedSegment: ...
    def discard(self) -> None: ...


class SegmentWriter:
    """Belongs to one thread. Its rows count once `close` has returned and SQL names the path."""

    def __init__(
        self, storage: Storage, path: str, *, compression: str = "auto", row_group_bytes: int = ROW_GROUP_BYTES
    ) -> None:
        name = SegmentName.parse(path)
        if name is None:
            raise ValueError(f"{path} is not the name of a segment")
        self.path, self.number = path, name.number
        self.rows = 0
        self._row_group_bytes = row_group_bytes
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._spans: dict[TP, Span] = {}
        self._constants = Constants(self.number)
        self._sink = _Sink(storage.open_write(path))
        self._closed: ClosedSegment | None = None
        self._compression = compression
        self._parquet: pq.ParquetWriter | None = None

    @property
    def bytes(self) -> int:
        """Approximate size of the segment: bytes written, plus bytes in memory."""
        return self._sink.written + self._pending_bytes

    def write(self, batch: Batch) -> None:
        """Append the batch's rows; writes a row group once it is full."""
        if not batch.rows:
            return
        self._pending += batch.pieces()
        self._pending_bytes += batch.nbytes
        self.rows += batch.rows
        for run in batch.runs:
            before = self._spans.get(run.tp, Span(run.tp, run.first, run.first, 0))
            self._spans[run.tp] = Span(run.tp, before.first, run.next, before.rows + run.rows)
        if self._pending_bytes >= self._row_group_bytes:
            self._write_row_group()

    def close(self, topic_ids: Mapping[str, str] | None = None, merged: int = 0) -> ClosedSegment:
        """Complete the segment durably; removes the file if that fails. May be repeated, with the same result.

        The footer gets the `topic_ids` of its topics, since an offset identifies a record only with its topic's id (SPEC S4), and the
        newest known merge.
        """
        if self._closed is None:
            try:
                self._write_row_group()
                ids = (
                    {tp.topic: topic_ids[tp.topic] for tp in self._spans if tp.topic in topic_ids} if topic_ids else {}
                )
                parquet = self._opened(pa.Table.from_batches([], SEGMENT))
                about = {**self._constants.footer(self._spans), MERGED: str(merged)}
                if ids:
                    about[TOPIC_IDS] = json.dumps(ids, ensure_ascii=False)
                parquet.add_key_value_metadata(about)
                parquet.close()
                self._sink.output.close()
            except BaseException:
                self.discard()
                raise
            digest = f"crc32:{self._sink.crc:08x}"
            spans = tuple(self._spans.values())
            self._closed = ClosedSegment(self.path, self.rows, self._sink.written, digest, spans)
        return self._closed

    def discard(self) -> None:
        """Remove the file unless it is closed; never raises."""
        if self._closed is not None:
            return
        self._pending = []
        self._sink.dead = True
        if self._parquet is not None:
            with contextlib.suppress(Exception):
                self._parquet.close()
        self._sink.output.discard()

    def _write_row_group(self) -> None:
        if not self._pending:
            return
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        table = pa.Table.from_batches(pending, SCHEMA)
        self._constants.add(table)
        table = table.append_column(SEGMENT.field(CHECKPOINT), repeated(self.number, pa.int64(), table.num_rows))
        self._opened(table).write_table(table, row_group_size=table.num_rows)

    def _opened(self, first: pa.Table) -> pq.ParquetWriter:
        """Parquet's writer, made with the first rows, which decide the compression."""
        if self._parquet is None:
            self._parquet = pq.ParquetWriter(
                pa.PythonFile(self._sink, mode="w"),
                SEGMENT,
                compression=_by_column(first) if self._compression == "auto" else self._compression,
                # A dictionary of offsets, keys or values costs time and saves nothing.
                use_dictionary=["topic", "partition", "timestampType", CHECKPOINT],
                write_statistics=["topic", "partition", "offset", "timestamp", CHECKPOINT],
                store_schema=False,
            )
        return self._parquet


def _by_column(first: pa.Table) -> dict[str, str]:
    """The compression of each Parquet column."""
    chosen = {field.name: "lz4" for field in SEGMENT if field.name != "headers"}
    chosen |= {"headers.list.element.key": "lz4", "headers.list.element.value": "lz4"}
    return chosen | {name: "none" for name in ("key", "value") if not _shrinks(first.column(name))}


def _shrinks(column: pa.ChunkedArray) -> bool:
    """Whether lz4 shrinks a sample of these bytes; True for too few bytes."""
    data = _bytes_of(column)
    if len(data) < _PIECES * _PIECE_BYTES:
        return True
    apart = (len(data) - _PIECE_BYTES) // (_PIECES - 1)
    sample = b"".join(data[apart * i : apart * i + _PIECE_BYTES] for i in range(_PIECES))
    return len(pa.Codec("lz4_raw").compress(sample, asbytes=True)) < _WORTH_IT * len(sample)


def _bytes_of(column: pa.ChunkedArray) -> memoryview:
    """The bytes of all values, without a copy if they are in one chunk."""
    if column.null_count == len(column):
        return memoryview(b"")
    whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    _, ends, data = whole.buffers()
    first, last = np.frombuffer(ends, np.int32)[[whole.offset, whole.offset + len(whole)]].tolist()
    return memoryview(data)[first:last]


class _Sink(Sink):
    """A sink with a hash of what is written."""

    crc = 0

    def write(self, data: bytes | memoryview) -> int:
        size = super().write(data)
        if not self.dead:
            self.crc = isal_zlib.crc32(data, self.crc)
        return size
