"""Rows of any Parquet file in a storage, batch by batch, and a new file of them: for what a compaction has made of segments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from crkafka_core.segments.storage import Output, Storage


class OtherColumns(Exception):
    """The file has its columns under other names."""


def batches(storage: Storage, path: str, needed: Collection[str], *, only: bool) -> Iterator[pa.RecordBatch]:
    """The rows of a file, which has to have the needed columns; all of its columns, or only these."""
    with storage.open_read(path) as source:
        parquet = pq.ParquetFile(source)
        if not set(needed) <= set(parquet.schema_arrow.names):
            raise OtherColumns(path)
        for batch in parquet.iter_batches(columns=list(needed) if only else None):
            plain = pa.schema([field.with_type(_plain(field.type)) for field in batch.schema])
            yield batch if plain.equals(batch.schema) else batch.cast(plain)


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
    output = storage.open_write(path)
    sink = _Sink(output)
    try:
        writer: pq.ParquetWriter | None = None
        for batch in rows:
            writer = writer or pq.ParquetWriter(pa.PythonFile(sink, mode="w"), batch.schema, compression=compression)
            writer.write_batch(batch)
        assert writer is not None
        writer.close()
        output.close()
    except BaseException:
        output.discard()
        raise
    return sink.written


class _Sink:
    """A new file, as Arrow writes to it."""

    closed = False

    def __init__(self, output: Output) -> None:
        self._output = output
        self.written = 0

    def write(self, data: bytes) -> int:
        view = memoryview(data).cast("B")
        self._output.write(view)
        self.written += len(view)
        return len(view)

    def tell(self) -> int:
        return self.written

    def flush(self) -> None:
        """Durable at its end."""

    def close(self) -> None:
        """Closed by whoever opened it."""
