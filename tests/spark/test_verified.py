"""`crkafka verify` reads the rows of tables that Spark has written: what is doubled, missing or left behind is named (SPEC K6)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from crkafka_core.model.offsets import TP
from crkafka_core.spark import tables
from crkafka_core.verify import in_tables
from crkafka_core.verify.verdict import Findings
from tests.rigs.landing import Landing, records
from tests.rigs.memory import MemoryStore

pytestmark = pytest.mark.spark
SHAPES = """
def evens(rows):
    return rows.where("offset % 2 = 0").selectExpr("crkafka_checkpoint", "offset * 10 AS tens")


def halves(rows):
    return {"good": rows.where("offset % 2 = 0"), "odd": rows.where("offset % 2 = 1").selectExpr("crkafka_checkpoint", "value")}


def latest(rows):
    return rows.selectExpr("crkafka_checkpoint", "partition", "offset", "offset % 3 AS id", "offset % 5 = 4 AS crkafka_deleted")
"""


class Shop:
    """A region with tables; every fifth record is bad, and there are three keys."""

    def __init__(
        self, spark: SparkSession, folder: Path, *declared: dict[str, Any], topics: tuple[str, ...] = ("orders",)
    ) -> None:
        (folder / "order.json").write_text(json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}}))
        self.spark, self.folder = spark, folder
        named = [{"format": "delta", "path": str(folder / t["name"]), **t} for t in declared]
        self.landing = Landing(
            MemoryStore(), folder, partitions=2, members=1, topics=topics, tables=named, batch_of=self._records
        )
        self.tables = [t.name for t in self.landing.config.tables]

    def _records(self, tp: TP, start: int, stop: int) -> Any:
        batch = records(tp, start, stop)
        offsets = range(start, stop)
        values = [b"spoiled" if o % 5 == 1 else None if o % 7 == 6 else b'{"id": %d}' % o for o in offsets]
        keys = [b"%d-%d" % (tp.partition, o % 3) for o in offsets]
        rows = batch.records.set_column(0, "key", pa.array(keys, pa.binary()))
        return type(batch)(rows.set_column(1, "value", pa.array(values, pa.binary())), batch.runs)

    def land(self, times: int = 1) -> None:
        for _ in range(times):
            self.landing.land(10)
            for name in self.tables:
                tables.advance(self.spark, self.landing.region, name)

    def look(self) -> Findings:
        found = Findings()
        in_tables.look(self.landing.region, found)
        return found

    def found(self) -> list[str]:
        found = Findings()
        compared = in_tables.look(self.landing.region, found)
        assert compared and not found.notes, found.notes
        return list(map(str, found.kept))

    def delta(self, name: str) -> DeltaTable:
        return DeltaTable(str(self.folder / name))

    def everything(self, name: str) -> pa.Table:
        rows = polars.scan_delta(str(self.folder / name)).collect()
        return rows.to_arrow(compat_level=polars.CompatLevel.oldest())

    def row(self, name: str, **where: Any) -> pa.Table:
        there = self.everything(name)
        for column, value in where.items():
            there = there.filter(pc.equal(there[column], value))
        return there

    def plant(self, name: str, rows: pa.Table) -> None:
        assert rows.num_rows == 1
        write_deltalake(self.delta(name), rows, mode="append")

    def rewind(self, to: int) -> None:
        self.landing.rewind(to)
        for name in self.tables:
            tables.fence(self.spark, self.landing.region, name)


def typed(folder: Path, **more: Any) -> dict[str, Any]:
    return {"name": "typed", "typed": {"json": str(folder / "order.json")}, **more}


def found_of_spoiled(shop: Shop) -> None:
    """One record is gone, one there twice, one of each also in the other table, and one of before the rewind is back."""
    found = shop.found()
    who = "K6: tables typed, typed_dead:"
    assert any(each.startswith("K6: table typed: ") and "commits of another program" in each for each in found), found
    assert f"{who} 1 record is there more than once (checkpoint 1, orders[0], offset 3)" in found
    assert f"{who} 9 of 10 records are there (checkpoint 1, orders[0], offset 2)" in found
    assert f"{who} 1 record is there more than once (checkpoint 2, orders[1], offset 11)" in found
    assert shop.look().counts["K6"] == 7, "the row that was left behind, and a commit with one dead letter more, too"


def test_of_a_typed_table_and_its_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop(spark, tmp_path, typed(tmp_path))
    shop.land(3)
    assert shop.found() == []
    bad = shop.row("typed_dead", partition=1, offset=11)
    left = shop.row("typed", kafka_partition=1, kafka_offset=22)
    shop.rewind(2)
    assert shop.found() == []
    shop.plant("typed", shop.row("typed", kafka_partition=0, kafka_offset=3))
    shop.delta("typed").delete("kafka_partition = 0 AND kafka_offset = 2")
    shop.plant("typed_dead", bad)
    shop.plant("typed", left)
    found_of_spoiled(shop)


def test_of_a_typed_table_by_key(spark: SparkSession, tmp_path: Path) -> None:
    """Three keys in each partition: the last record of each, unless it is a tombstone; bad ones leave what was there."""
    shop = Shop(spark, tmp_path, typed(tmp_path, mode="upsert"))
    shop.land(2)
    assert shop.found() == []
    before = shop.row("typed", kafka_partition=1, kafka_key=b"1-1")
    shop.land()
    assert shop.found() == []
    now = shop.row("typed", kafka_partition=1, kafka_key=b"1-1")
    assert now["kafka_offset"].to_pylist() > before["kafka_offset"].to_pylist()
    shop.plant("typed", before)
    shop.delta("typed").delete("kafka_partition = 0 AND kafka_offset = 29")
    found = shop.found()
    assert "K6: table typed: 1 key has more than one row (offset 28)" in found
    assert (
        f"K6: table typed: a later record of its key replaced it, or deleted it (orders[1], offset {before['kafka_offset'][0]})"
        in found
    )
    assert any(
        "the last record of its key has no row (checkpoint 3, orders[0], offset 29)" in each for each in found
    ), found


def test_of_a_typed_table_by_key_that_skips_records_the_rest_is_compared(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing tells which of a key's records were skipped, so which is its last is not asked."""
    shop = Shop(spark, tmp_path, typed(tmp_path, mode="upsert", on_bad_record="skip"))
    shop.land()
    shop.plant("typed", shop.row("typed", kafka_partition=0, kafka_key=b"0-0"))
    found = shop.look()
    assert any("1 key has more than one row" in str(each) for each in found.kept)
    assert [note.partition(",")[0] for note in found.notes] == ["table typed: records were left out"]


def test_of_tables_of_a_program(spark: SparkSession, tmp_path: Path, program: Callable[[str, str], Any]) -> None:
    """How many rows there were when each commit was acknowledged; of all outputs together, how many were merged."""
    program("shop_shapes", SHAPES)
    shop = Shop(
        spark,
        tmp_path,
        {"name": "even", "shape": "shop_shapes:evens"},
        {"name": "good", "shape": "shop_shapes:halves"},
        {"name": "odd", "shape": "shop_shapes:halves", "output": "odd"},
        {"name": "last", "shape": "shop_shapes:latest", "mode": "upsert", "keys": ["id"]},
    )
    shop.land(2)
    assert shop.found() == []
    shop.plant("last", shop.everything("last").slice(0, 1))
    assert any("table last: 1 key has more than one row" in each for each in shop.found())
    even = shop.delta("even").to_pyarrow_table()
    shop.plant("even", even.filter(pc.equal(even["crkafka_checkpoint"], 2)).slice(0, 1))
    shop.delta("odd").delete("crkafka_checkpoint = 1")
    found = shop.found()
    assert any(
        "table even: 11 rows of what commit 2 wrote; it had 10 when it was acknowledged" in each for each in found
    ), found
    assert any("tables good, odd: 10 rows, and 20 were merged (checkpoint 1)" in each for each in found), found
