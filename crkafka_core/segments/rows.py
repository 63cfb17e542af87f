"""Rows of any Parquet file in a storage, batch by batch, and a new file of them: for what a compaction has made of segments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crkafka_core.segments.scan import rows_at_once
from crkafka_core.segments.storage import Output, Storage

_ROWS = 65_536
"""A batch has at most so many rows: far fewer where they are large, since a small file may hold gigabytes that shrink well."""


class OtherColumns(Exception):
    """The file has its columns under other names."""


def batches(
    storage: Storage, path: str, needed: Collection[str], *, only: bool, kept: Sequence[bool] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, which has to have the needed columns; all of its columns, or only these.

    `kept`: for each row, up to the last that is marked as deleted beside the file, whether it is there.
    """
    at = 0
    with storage.open_read(path) as source:
        parquet = pq.ParquetFile(source)
        if not set(needed) <= set(parquet.schema_arrow.names):
            raise OtherColumns(path)
        for batch in parquet.iter_batches(
            rows_at_once(parquet.metadata, _ROWS), columns=list(needed) if only else None
        ):
            plain = pa.schema([field.with_type(_plain(field.type)) for field in batch.schema])
            rows = batch if plain.equals(batch.schema) else batch.cast(plain)
            rows = rows.replace_schema_metadata(None)  # what the footer tells is true of this file alone
            if kept is not None:
                flags = list(kept[at : at + rows.num_rows])
                at += rows.num_rows
                rows = rows.filter(pa.array(flags + [True] * (rows.num_rows - len(flags)), pa.bool_()))
            yield rows


def records(storage: Storage, path: str, columns: Iterable[str]) -> list[dict[str, Any]]:
    """All rows of a file, as Python has them, with those of the columns (`top.inside`) that it has."""
    with storage.open_read(path) as source:
        parquet = pq.ParquetFile(source)
        names = parquet.schema_arrow.names
        found: list[dict[str, Any]] = parquet.read([c for c in columns if c.split(".")[0] in names]).to_pylist()
    return found


def _plain(kind: pa.DataType) -> pa.DataType:
    """Without views, as which delta-rs writes texts and bytes: Arrow filters none of them."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    return pa.binary() if pa.types.is_binary_view(kind) else pa.string() if pa.types.is_string_view(kind) else kind


def write(storage: Storage, path: str, rows: Iterable[pa.RecordBatch], *, compression: str = "snappy") -> int:
    """A new file with these rows, at least one, in place of one that an attempt that died has left; its size."""
    storage.delete(path)
    file = File(storage, path, compression=compression)
    try:
        for batch in rows:
            file.add(batch)
        return file.close()
    except BaseException:
        file.discard()
        raise


class File:
    """A new file, written batch by batch, each as a row group."""

    def __init__(self, storage: Storage, path: str, *, compression: str = "snappy") -> None:
        self.path = path
        self._compression = compression
        self._sink = Sink(storage.open_write(path))
        self._writer: pq.ParquetWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            sink = pa.PythonFile(self._sink, mode="w")
            self._writer = pq.ParquetWriter(sink, batch.schema, compression=self._compression)
        self._writer.write_batch(batch)

    def close(self) -> int:
        """Whole and durable; its size."""
        assert self._writer is not None
        self._writer.close()
        self._sink.output.close()
        return self._sink.written

    def discard(self) -> None:
        """End it and remove what there is."""
        self._sink.dead = True  # Arrow writes a footer when its writer goes
        self._sink.output.discard()


class Sink:
    """A new file, as Arrow writes to it; whoever opened it closes it, after Parquet's footer."""

    closed = False

    def __init__(self, output: Output) -> None:
        self.output = output
        self.written = 0
        self.dead = False

    def write(self, data: bytes | memoryview) -> int:
        if self.dead:
            return len(data)
        view = memoryview(data).cast("B")
        self.output.write(view)
        self.written += len(view)
        return len(view)

    def tell(self) -> int:
        return self.written

    def flush(self) -> None:
        """Durable at its close, which is the output's business."""

    def close(self) -> None:
        """Not yet."""


def parquet_writer(sink: Sink, schema: pa.Schema, **settings: Any) -> pq.ParquetWriter:
    """Writes Parquet into a new file."""
    return pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, **settings)
