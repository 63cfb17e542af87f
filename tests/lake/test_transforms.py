"""Partition values are those that Iceberg's own library makes."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import transforms as theirs
from pyiceberg import types
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros

from crkafka_core.lake.partitions import parted
from crkafka_core.lake.port import Part

TIMES = [
    datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2026, 11, 27, 5, 6, 7, 8, tzinfo=UTC),
    None,
]
DAYS = [date(1969, 11, 30), date(1970, 1, 1), date(2026, 12, 31), None]
NUMBERS = [-11, -10, -1, 0, 1, 9, 10, 1 << 31, None]
CASES = [
    (pa.timestamp("us", "UTC"), types.TimestamptzType(), TIMES, ("year", "month", "day", "hour", "bucket")),
    (
        pa.timestamp("ms"),
        types.TimestampType(),
        [t and t.replace(tzinfo=None, microsecond=0) for t in TIMES],
        ("year", "month", "day", "hour", "bucket"),
    ),
    (pa.date32(), types.DateType(), DAYS, ("year", "month", "day", "bucket")),
    (pa.int64(), types.LongType(), NUMBERS, ("truncate", "bucket")),
    (pa.int32(), types.IntegerType(), [n for n in NUMBERS if n is None or n < 1 << 31], ("truncate", "bucket")),
    (pa.string(), types.StringType(), ["", "abc", "äöü€x", "a much longer one", None], ("truncate", "bucket")),
    (pa.binary(), types.BinaryType(), [b"", b"\xff\0abcdef", None], ("bucket",)),
    (pa.decimal128(9, 2), types.DecimalType(9, 2), [Decimal("12.34"), Decimal("-0.01"), None], ("bucket",)),
]


@pytest.mark.parametrize(("arrow", "iceberg", "rows", "names"), CASES, ids=[str(case[0]) for case in CASES])
def test_values_are_as_pyiceberg_has_them(
    arrow: pa.DataType, iceberg: Any, rows: list[Any], names: tuple[str, ...]
) -> None:
    for name in names:
        width = 10 if name in ("truncate", "bucket") else 0
        expected = theirs.parse_transform(f"{name}[{width}]" if width else name).transform(iceberg)
        batch = pa.record_batch([pa.array(rows, arrow), pa.array(range(len(rows)))], names=["c", "row"])
        pieces = parted(batch, [Part("c", name, width)])
        by_row = {row: value for (value,), piece in pieces for row in piece.column("row").to_pylist()}
        found = [by_row[row] for row in range(len(rows))]
        assert [_number(value) for value in found] == [_number(expected(_theirs(row))) for row in rows], name


def _theirs(row: Any) -> Any:
    if isinstance(row, datetime):
        return datetime_to_micros(row)
    return date_to_days(row) if isinstance(row, date) else row


def _number(value: Any) -> Any:
    return date_to_days(value) if isinstance(value, date) else value
