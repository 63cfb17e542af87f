"""Raw tables that are partitioned: each verb works on them (SPEC K6), and values are those of Iceberg's own library."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg import transforms as theirs
from pyiceberg import types
from pyiceberg.table import StaticTable
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros

from crkafka_core.lake import audit, compact, erase, road
from crkafka_core.lake.formats import open_log
from crkafka_core.lake.partitions import parted
from crkafka_core.lake.port import Part
from crkafka_core.model.errors import Refused
from crkafka_core.plane import erasure
from crkafka_core.plane import tables as plane
from crkafka_core.verify import in_tables
from crkafka_core.verify.verdict import Findings
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore

KINDS = [("iceberg", ["topic", "day(timestamp)", "bucket(4, key)", "truncate(10, offset)"]), ("delta", ["topic"])]


class Shop:
    """Two topics, and a table of both."""

    def __init__(self, folder: Path, format: str, partition_by: list[str]) -> None:
        table = {"name": "all", "format": format, "path": str(folder / "all"), "partition_by": partition_by}
        self.landing = Landing(MemoryStore(), folder, topics=["orders", "refunds"], partitions=2, tables=[table])
        self.region, self.format, self.path = self.landing.region, format, folder / "all"

    def log(self) -> Any:
        return open_log(self.region, self.region.plane.read(lambda reader, _: plane.of(reader, "all")))

    def rows(self, only: str = "") -> list[tuple[str, int, int]]:
        """By a program that knows nothing of us."""
        columns = ("topic", "partition", "offset")
        if self.format == "delta":
            delta = DeltaTable(str(self.path))
            filters = [("topic", "=", only)] if only else None
            table = delta.to_pyarrow_table(columns=list(columns), filters=filters)
        else:
            version = (self.path / "metadata/version-hint.text").read_text()
            static = StaticTable.from_metadata(str(self.path / f"metadata/v{version}.metadata.json"))
            scan = static.scan(selected_fields=columns, **({"row_filter": f"topic = '{only}'"} if only else {}))
            assert not only or {task.file.partition[0] for task in scan.plan_files()} == {only}
            table = scan.to_arrow()
        return sorted(zip(*(table[name].to_pylist() for name in columns), strict=True))

    def due(self, upto: int, *topics: str, without: int = -1) -> list[tuple[str, int, int]]:
        names = topics or ("orders", "refunds")
        return sorted((t, p, o) for t in names for p in range(2) for o in range(upto) if o != without)


@pytest.mark.parametrize(("format", "partition_by"), KINDS, ids=["iceberg", "delta"])
def test_K6_a_partitioned_raw_table_takes_rewinds_erasures_replays_and_compaction(
    format: str, partition_by: list[str], tmp_path: Path
) -> None:
    shop = Shop(tmp_path, format, partition_by)
    for _ in range(4):
        shop.landing.land(5)
        road.advance(shop.region, "all")
    assert shop.rows() == shop.due(20) and shop.rows("refunds") == shop.due(20, "refunds")
    assert [str(part) for part in shop.log().look().parts] == partition_by
    road.rewrite(shop.region, "all", [2])
    assert shop.rows() == shop.due(20)
    shop.landing.rewind(3)
    road.fence(shop.region, "all")
    assert shop.rows() == shop.due(15)
    erase.note(shop.region, erasure.by_partition([(t, p, 7) for t in ("orders", "refunds") for p in range(2)]))
    road.erase(shop.region, "all", [2])
    assert shop.rows() == shop.due(15, without=7)
    shop.landing.retire(1, 2)
    before = len(list(shop.log().look().files()))
    compact.maintain(shop.region, "all")
    assert len(list(shop.log().look().files())) < before
    assert shop.rows() == shop.due(15, without=7) and shop.rows("orders") == shop.due(15, "orders", without=7)
    assert audit.look(shop.region, "all").clean
    found = Findings()
    assert in_tables.look(shop.region, found) == ("all",) and not found.kept and not found.notes


def test_a_table_that_is_partitioned_otherwise_is_refused_with_both(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "iceberg", ["day(timestamp)"])
    shop.landing.land(1)
    road.advance(shop.region, "all")
    other = Shop(tmp_path, "iceberg", ["hour(timestamp)"])
    region = type(shop.region)(other.region.config, shop.region.plane)
    shop.landing.land(1)
    with pytest.raises(Refused, match=r"partitioned by day\(timestamp\): is declared with partition_by: \[hour\(tim"):
        road.advance(region, "all")


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
