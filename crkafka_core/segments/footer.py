"""What the footer of a segment tells of its rows, without reading them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq

from crkafka_core.segments.errors import storage_error
from crkafka_core.segments.storage import Storage


@dataclass(frozen=True, slots=True)
class Footer:
    """Rows, and the bounds of their timestamps where every one has a timestamp that can be told."""

    rows: int
    earliest: datetime | None
    latest: datetime | None


def footer(storage: Storage, path: str) -> Footer:
    """Read it."""
    with storage.open_read(path) as source:
        try:
            about = pq.ParquetFile(source).metadata
        except (OSError, pa.ArrowInvalid) as error:
            raise storage_error(OSError(str(error)), "Reading", storage.uri(path)) from error
    at = about.schema.names.index("timestamp")
    lowest, highest = [], []
    for group in range(about.num_row_groups):
        found = about.row_group(group).column(at).statistics
        if found is None or not found.has_min_max or found.null_count:
            return Footer(about.num_rows, None, None)
        try:
            lowest.append(_time(found.min))
            highest.append(_time(found.max))
        except (ValueError, OverflowError, OSError):  # a year that Python has not
            return Footer(about.num_rows, None, None)
    return Footer(about.num_rows, min(lowest, default=None), max(highest, default=None))


def _time(value: object) -> datetime:
    if not isinstance(value, datetime):
        raise ValueError(value)
    return value if value.tzinfo else value.replace(tzinfo=UTC)
