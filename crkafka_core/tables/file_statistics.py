"""A file that comes to a Delta table, as its log tells it: with bounds of its columns, by which readers pass over it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

from crkafka_core.segments import read_footer
from crkafka_core.segments.storage import Storage, Stored

_LONGEST = 32
"""Letters of a text that is told: a longer one is left out, since cutting the greatest would make it less."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """Its name is relative to the table."""

    name: str
    size: int
    rows: int
    statistics: str
    """As Delta's log has them."""


def written_by_spark(storage: Storage, folder: str) -> list[NewFile]:
    """The Parquet files in a folder of the table."""
    return from_footers(storage, (file for file in storage.list(folder) if file.path.endswith(".parquet")))


def from_footers(storage: Storage, files: Iterable[Stored]) -> list[NewFile]:
    """Those with rows, with what their footers tell."""
    found = storage.each(partial(_of_footer, storage), files)
    return [file for file in found if file.rows]


def _of_footer(storage: Storage, file: Stored) -> NewFile:
    rows, columns = read_footer.columns(storage, file.path)
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    for name, column in columns.items():
        least, greatest = _told(column.least, up=False), _told(column.greatest, up=True)
        if least is not None and greatest is not None:
            lowest[name], highest[name] = least, greatest
    nulls = {name: column.nulls for name, column in columns.items()}
    return NewFile(file.path, file.bytes, rows, _json(rows, lowest, highest, nulls))


def _told(value: Any, *, up: bool) -> Any:
    """As the log has it; None for types whose text another reader might take for another value."""
    if isinstance(value, datetime):
        try:
            return _milliseconds(value.astimezone(UTC) if value.tzinfo else value, up=up)
        except OverflowError:  # the last microsecond of the year 9999, which many write for "never"
            return None
    if isinstance(value, date):
        return value.isoformat()
    return value if type(value) is int or (isinstance(value, str) and len(value) <= _LONGEST) else None


def _json(rows: int, lowest: Mapping[str, Any], highest: Mapping[str, Any], nulls: Mapping[str, int]) -> str:
    said = {"numRecords": rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
    return json.dumps(said, ensure_ascii=False)


def _milliseconds(at: datetime, *, up: bool = False) -> str:
    """Delta's statistics tell times by the millisecond: the least rounded down, the greatest up."""
    at = at + timedelta(microseconds=999) if up else at
    return f"{at.year:04d}-{at:%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
