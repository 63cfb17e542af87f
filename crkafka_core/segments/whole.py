"""Reading segments without Spark: for the oracle and for tests."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
from isal import isal_zlib

from crkafka_core.segments.batch import SEGMENT
from crkafka_core.segments.errors import storage_errors
from crkafka_core.segments.storage import Storage
from crkafka_core.segments.writer import TOPIC_IDS


def read_segment(storage: Storage, path: str, columns: list[str] | None = None) -> pa.Table:
    """The rows of a segment in file order; only some columns if named."""
    return read_with_topics(storage, path, columns)[0]


def read_with_topics(storage: Storage, path: str, columns: list[str] | None = None) -> tuple[pa.Table, dict[str, str]]:
    """As `read_segment`, and the ids of its topics."""
    with storage.open_read(path) as source, storage_errors("Reading", storage.uri(path)):
        file = pq.ParquetFile(source)
        table = file.read(columns=columns)
    wanted = SEGMENT if columns is None else pa.schema([SEGMENT.field(name) for name in columns])
    return table.cast(wanted), json.loads((file.metadata.metadata or {}).get(TOPIC_IDS.encode(), b"{}"))


def hash_of(storage: Storage, path: str) -> tuple[str, int]:
    """Hash and size of a file, to compare with what the segment's row says."""
    crc, size = 0, 0
    with storage.open_read(path) as source:
        while chunk := source.read(4 << 20):
            crc, size = isal_zlib.crc32(chunk, crc), size + len(chunk)
    return f"crc32:{crc:08x}", size
