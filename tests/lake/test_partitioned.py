"""Raw tables that are partitioned: the pieces of a segment go to their partitions, and every verb works on them (SPEC K6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from crkafka_core.lake import audit, compact, erase, road
from crkafka_core.lake.formats import open_log
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
