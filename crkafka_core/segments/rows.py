"""Reads and writes any Parquet file in a storage batch by batch, such as one that a compaction made of segments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from crkafka_core.segments.scan import rows_at_once
from crkafka_core.segments.storage import Output, Storage

_ROWS = 65_536
"""Most rows of a batch; far fewer if they are large, since a small file may expand to gigabytes."""


class OtherColumns(Exception):
    """The file lacks a needed column, as under column mapping."""


def batches(
    storage: Storage, path: str, needed: Collection[str], *, only: bool, kept: Sequence[bool] | np.ndarray | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file with the needed columns; `only` these, or all columns. OtherColumns if one is missing.

    `kept`: whether each row still exists, up to the last row that a deletion vector marks as deleted.
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
            rows = rows.replace_schema_metadata(None)  # the footer's metadata is true of this file only
            if kept is not None:
                flags = np.ones(rows.num_rows, bool)
                known = kept[at : at + rows.num_rows]
                flags[: len(known)] = known
                at += rows.num_rows
                rows = rows.filter(pa.array(flags))
            yield rows


def records(storage: Storage, path: str, columns: Iterable[str]) -> list[dict[str, Any]]:
    """All rows of a file as Python objects, with those of the columns (`top.inside`) that it has."""
    with storage.open_read(path) as source:
        parquet = pq.ParquetFile(source)
        names = parquet.schema_arrow.names
        rows: list[dict[str, Any]] = parquet.read([c for c in columns if c.split(".")[0] in names]).to_pylist()
    return rows


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without views, which delta-rs writes for texts and bytes and Arrow cannot filter."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    return pa.binary() if pa.types.is_binary_view(kind) else pa.string() if pa.types.is_string_view(kind) else kind


def write(storage: Storage, path: str, rows: Iterable[pa.RecordBatch], *, compression: str = "snappy") -> int:
    """Write a file with these rows, at least one, each batch as a row group, over the remains of a failed attempt; its size."""
    storage.delete(path)
    sink, writer = Sink(storage.open_write(path)), None
    try:
        for batch in rows:
            writer = writer or parquet_writer(sink, batch.schema, compression=compression)
            writer.write_batch(batch)
        assert writer is not None
        writer.close()
        sink.output.close()
        return sink.written
    except BaseException:
        sink.dead = True  # Arrow's writer still writes a footer when it is deleted
        sink.output.discard()
        raise


class Sink:
    """File object that Arrow writes to. The owner of `output` closes that, after Parquet's footer."""

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
        """Nothing: the output is flushed at its close."""

    def close(self) -> None:
        """Nothing: the owner closes the output."""


def parquet_writer(sink: Sink, schema: pa.Schema, **settings: Any) -> pq.ParquetWriter:
    """A Parquet writer into a new file."""
    return pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, **settings)
