"""Reads a segment batch by batch, for readers whose memory is small beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from crkafka_core.segments.batch import SCHEMA
from crkafka_core.segments.errors import storage_error
from crkafka_core.segments.storage import Storage


def scan_segment(storage: Storage, path: str, *, rows: int = 10_000) -> Iterator[pa.RecordBatch]:
    """The rows of a segment in file order; SegmentMissing if it is not there."""
    with storage.open_read(path) as source:
        try:
            for batch in pq.ParquetFile(source).iter_batches(batch_size=rows):
                columns = [batch.column(field.name).cast(field.type) for field in SCHEMA]
                yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        except OSError as error:
            raise storage_error(error, "Reading", storage.uri(path)) from error
