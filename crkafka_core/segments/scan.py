"""Reads a segment batch by batch, for readers whose memory is small beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from crkafka_core.segments.batch import SCHEMA
from crkafka_core.segments.errors import storage_error
from crkafka_core.segments.storage import Storage


def scan_segment(storage: Storage, path: str, *, rows: int = 10_000) -> Iterator[pa.RecordBatch]:
    """The rows of a segment in file order; SegmentMissing if it is not there.

    On the caller's core alone: who has many files, mostly small ones, reads them side by side, and Arrow's own threads would
    cost more than they bring.
    """
    with storage.open_read(path) as source:
        try:
            file = _File(source, pre_buffer=not storage.is_local)
            if file.metadata.num_rows <= rows:
                yield from _as_written(file.read(use_threads=False)).to_batches()
                return
            for batch in file.iter_batches(batch_size=rows, use_threads=False):
                yield _as_written(batch)
        except OSError as error:
            raise storage_error(error, "Reading", storage.uri(path)) from error


class _File(pq.ParquetFile):  # type: ignore[misc]
    """Read as a whole: nobody asks it for columns by name, and listing their names takes a tenth of a small file's time."""

    def _build_nested_paths(self) -> dict[str, list[int]]:
        return {}


T = TypeVar("T", pa.Table, pa.RecordBatch)


def _as_written(found: T) -> T:
    return found if found.schema.equals(SCHEMA) else found.select(SCHEMA.names).cast(SCHEMA)
