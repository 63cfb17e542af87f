"""What the footer of a segment, or of another Parquet file, tells of its rows, without reading them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crkafka_core.segments.errors import storage_error
from crkafka_core.segments.storage import Storage

_NO_SUCH_YEAR = (ValueError, OverflowError, OSError)
"""What Python says of a time in a year that it has not."""


@dataclass(frozen=True, slots=True)
class Footer:
    """Rows, and the bounds of their timestamps where every one has a timestamp that can be told."""

    rows: int
    earliest: datetime | None
    latest: datetime | None


def footer(storage: Storage, path: str) -> Footer:
    """Read it."""
    about = _metadata(storage, path)
    at = about.schema.names.index("timestamp")
    lowest, highest = [], []
    for group in range(about.num_row_groups):
        found = about.row_group(group).column(at).statistics
        if found is None or not found.has_min_max or found.null_count:
            return Footer(about.num_rows, None, None)
        try:
            lowest.append(_time(found.min))
            highest.append(_time(found.max))
        except _NO_SUCH_YEAR:
            return Footer(about.num_rows, None, None)
    return Footer(about.num_rows, min(lowest, default=None), max(highest, default=None))


def row_count(storage: Storage, path: str) -> int:
    """Rows alone, of any Parquet file."""
    return int(_metadata(storage, path).num_rows)


def names(storage: Storage, path: str) -> list[str]:
    """Of the columns at the top."""
    about = _metadata(storage, path)
    return list(about.schema.to_arrow_schema().names)


@dataclass(frozen=True, slots=True)
class Column:
    """Of one that is not nested."""

    nulls: int
    least: Any = None
    greatest: Any = None
    """None where it does not tell, or there is no value."""


def columns(storage: Storage, path: str) -> tuple[int, dict[str, Column]]:
    """How many rows a file has, and what it tells of its columns, by their names."""
    return columns_of(_metadata(storage, path))


def columns_of(about: Any) -> tuple[int, dict[str, Column]]:
    """The same of Parquet's metadata."""
    groups = [about.row_group(i) for i in range(about.num_row_groups)]
    found: dict[str, Column] = {}
    for at, name in enumerate(about.schema.names):
        told = [group.column(at).statistics for group in groups]
        if about.schema.column(at).path != name or any(each is None or not each.has_null_count for each in told):
            continue
        nulls, filled = sum(each.null_count for each in told), [each for each in told if each.num_values]
        found[name] = Column(nulls)
        if filled and all(each.has_min_max for each in filled):
            with suppress(*_NO_SUCH_YEAR):
                found[name] = Column(nulls, min(each.min for each in filled), max(each.max for each in filled))
    return about.num_rows, found


def _metadata(storage: Storage, path: str) -> Any:
    with storage.open_read(path) as source:
        try:
            return pq.ParquetFile(source).metadata
        except (OSError, pa.ArrowInvalid) as error:
            raise storage_error(OSError(str(error)), "Reading", storage.uri(path)) from error


def _time(value: object) -> datetime:
    if not isinstance(value, datetime):
        raise ValueError(value)
    return value if value.tzinfo else value.replace(tzinfo=UTC)
