"""The open segment of a member: batches in, Parquet out, row groups as they fill (SPEC C7, K2)."""

from __future__ import annotations

import contextlib
import zlib
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import SCHEMA, Batch
from crkafka_core.segments.errors import storage_error
from crkafka_core.segments.storage import Output, Storage

ROW_GROUP_BYTES = 4 << 20
"""Tuples in memory before they become a row group. What a cut waits for is at most one, and then the rest of one: about 10 ms each."""

COMPRESSIONS = ("lz4", "snappy", "zstd", "none")


@dataclass(frozen=True, slots=True)
class Span:
    """What a segment holds of one partition."""

    tp: TP
    first: int
    """Offset of the first record."""
    next: int
    """Offset of the last record, plus one."""
    rows: int


@dataclass(frozen=True, slots=True)
class ClosedSegment:
    """A segment that is complete and durable."""

    path: str
    rows: int
    bytes: int
    hash: str
    """`crc32:` and eight hex digits, over the bytes of the file."""
    spans: tuple[Span, ...]
    """One per partition, in order of first appearance."""


class SegmentWriter:
    """Belongs to one thread. Nothing it wrote counts before `close` has returned and SQL names the path."""

    def __init__(
        self, storage: Storage, path: str, *, compression: str = "lz4", row_group_bytes: int = ROW_GROUP_BYTES
    ) -> None:
        self.path = path
        self.rows = 0
        self._row_group_bytes = row_group_bytes
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._spans: dict[TP, Span] = {}
        self._sink = _Sink(storage.open_write(path), storage.uri(path))
        self._closed: ClosedSegment | None = None
        try:
            self._parquet = pq.ParquetWriter(
                pa.PythonFile(self._sink, mode="w"),
                SCHEMA,
                compression=compression,
                # A dictionary of offsets, keys or values costs time and saves nothing.
                use_dictionary=["topic", "partition", "timestampType"],
                write_statistics=["topic", "partition", "offset", "timestamp"],
                store_schema=False,
            )
        except BaseException:
            self._sink.output.discard()
            raise

    @property
    def bytes(self) -> int:
        """About how large the segment is: what is written, plus what waits in memory."""
        return self._sink.written + self._pending_bytes

    def write(self, batch: Batch) -> None:
        """Append the batch's rows; a full row group is written now."""
        if not batch.rows:
            return
        self._pending += batch.pieces()
        self._pending_bytes += batch.nbytes
        self.rows += batch.rows
        for run in batch.runs:
            span = self._spans.get(run.tp)
            self._spans[run.tp] = (
                Span(run.tp, run.first, run.next, run.rows)
                if span is None
                else Span(run.tp, span.first, run.next, span.rows + run.rows)
            )
        if self._pending_bytes >= self._row_group_bytes:
            self._write_row_group()

    def close(self) -> ClosedSegment:
        """Write the rest and the footer, make it durable; if it fails the file is removed. Again gives the same."""
        if self._closed is None:
            try:
                self._write_row_group()
                with _Translated(self._sink):
                    self._parquet.close()
                self._sink.output.close()
            except BaseException:
                self.discard()
                raise
            digest = f"crc32:{self._sink.crc:08x}"
            spans = tuple(self._spans.values())
            self._closed = ClosedSegment(self.path, self.rows, self._sink.written, digest, spans)
        return self._closed

    def discard(self) -> None:
        """Remove the file; never raises. What was closed before is removed too only through the storage."""
        if self._closed is not None:
            return
        self._pending = []
        self._sink.dead = True
        with contextlib.suppress(Exception):
            self._parquet.close()
        self._sink.output.discard()

    def _write_row_group(self) -> None:
        if not self._pending:
            return
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        table = pa.Table.from_batches(pending, SCHEMA)
        with _Translated(self._sink):
            self._parquet.write_table(table, row_group_size=table.num_rows)


class _Sink:
    """The file object that Parquet writes to: hashes and counts what passes, keeps the error Arrow would flatten."""

    closed = False

    def __init__(self, output: Output, where: str) -> None:
        self.output = output
        self.where = where
        self.crc = 0
        self.written = 0
        self.error: CrkafkaError | None = None
        self.dead = False

    def write(self, data: bytes) -> int:
        if self.dead:
            return len(data)
        view = memoryview(data).cast("B")
        try:
            self.output.write(view)
        except CrkafkaError as error:
            self.error = error
            raise
        self.crc = zlib.crc32(view, self.crc)
        self.written += len(view)
        return len(view)

    def tell(self) -> int:
        return self.written

    def flush(self) -> None:
        """Durability is the output's business, at close."""

    def close(self) -> None:
        """The writer closes the output itself, after Parquet's footer."""


class _Translated(contextlib.AbstractContextManager["_Translated"]):
    """Raises the storage's own error instead of Arrow's wrapping of it."""

    def __init__(self, sink: _Sink) -> None:
        self._sink = sink

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, CrkafkaError):
            return
        if self._sink.error is not None:
            raise self._sink.error from None
        if isinstance(error, OSError):
            raise storage_error(error, "Writing", self._sink.where) from error
