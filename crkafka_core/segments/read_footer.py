"""Statistics in the footer of a Parquet file, without reading its rows."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crkafka_core.segments.errors import storage_error
from crkafka_core.segments.storage import Storage

_NO_SUCH_YEAR = (ValueError, OverflowError, OSError)
"""Errors of Python for a time in a year beyond its range."""


def row_count(storage: Storage, path: str) -> int:
    """Number of rows of any Parquet file."""
    return int(_metadata(storage, path).num_rows)


def names(storage: Storage, path: str) -> list[str]:
    """Names of the top-level columns."""
    return list(_metadata(storage, path).schema.to_arrow_schema().names)


@dataclass(frozen=True, slots=True)
class Column:
    """Statistics of a column that is not nested."""

    nulls: int
    least: Any = None
    greatest: Any = None
    """Bounds; None if the footer has none, or all values are null."""


def columns(storage: Storage, path: str) -> tuple[int, dict[str, Column]]:
    """Number of rows, and the statistics of the columns by name."""
    return columns_of(_metadata(storage, path))


def columns_of(about: Any) -> tuple[int, dict[str, Column]]:
    """The same from Parquet's metadata."""
    groups = [about.row_group(i) for i in range(about.num_row_groups)]
    by_name: dict[str, Column] = {}
    for at, name in enumerate(about.schema.names):
        stats = [group.column(at).statistics for group in groups]
        if about.schema.column(at).path != name or any(each is None or not each.has_null_count for each in stats):
            continue
        nulls, filled = sum(each.null_count for each in stats), [each for each in stats if each.num_values]
        by_name[name] = Column(nulls)
        if filled and all(each.has_min_max for each in filled):
            with suppress(*_NO_SUCH_YEAR):
                by_name[name] = Column(nulls, min(each.min for each in filled), max(each.max for each in filled))
    return about.num_rows, by_name


def _metadata(storage: Storage, path: str) -> Any:
    with storage.open_read(path) as source:
        try:
            return pq.ParquetFile(source).metadata
        except (OSError, pa.ArrowInvalid) as error:
            raise storage_error(OSError(str(error)), "Reading", storage.uri(path)) from error
