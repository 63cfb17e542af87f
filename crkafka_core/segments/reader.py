"""Reading segments without Spark: for the oracle and for tests."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pyarrow.parquet as pq

from crkafka_core.segments.batch import SCHEMA
from crkafka_core.segments.errors import storage_error
from crkafka_core.segments.storage import Storage


def read_segment(storage: Storage, path: str, columns: list[str] | None = None) -> pa.Table:
    """The rows of a segment in file order; only some columns if named."""
    with storage.open_read(path) as source:
        try:
            table = pq.ParquetFile(source).read(columns=columns)
        except OSError as error:
            raise storage_error(error, "Reading", storage.uri(path)) from error
    wanted = SCHEMA if columns is None else pa.schema([SCHEMA.field(name) for name in columns])
    return table.cast(wanted)


def hash_of(storage: Storage, path: str) -> tuple[str, int]:
    """Hash and size of a file, to compare with what the segment's row says."""
    crc, size = 0, 0
    with storage.open_read(path) as source:
        while chunk := source.read(4 << 20):
            crc, size = zlib.crc32(chunk, crc), size + len(chunk)
    return f"crc32:{crc:08x}", size
