"""Rows of a shape come into a plain Delta table by its log: Spark writes files alone. Where more is asked of a commit, it is Spark's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Plain
from pyspark.sql import SparkSession

from crkafka_core.lake import writing
from crkafka_core.model.errors import LeaseLost
from crkafka_core.spark import tables
from crkafka_core.spark.delta_table import DeltaTable
from crkafka_core.tables.delta_log import Snapshot
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore
from tests.spark.test_shaped import Crash, leases_end
from tests.spark.test_tables import zombie

pytestmark = pytest.mark.spark

MODULE = """
COLUMNS = ["crkafka_checkpoint", "partition", "offset", "timestamp", "string(key) AS who"]


def some(rows):
    return rows.selectExpr(*COLUMNS)
"""


@pytest.fixture
def lake(tmp_path: Path, program: Callable[[str, str], Any]) -> tuple[Landing, Any]:
    shop = program("lakeshop", MODULE)
    table = {"name": "orders", "format": "delta", "path": str(tmp_path / "orders"), "shape": "lakeshop:some"}
    return Landing(MemoryStore(), tmp_path, partitions=2, tables=[table]), shop


def advance(spark: SparkSession, landing: Landing, checkpoints: int = 1, rows: int = 4) -> None:
    for _ in range(checkpoints):
        landing.land(rows)
    tables.advance(spark, landing.region, "orders")


def plain(landing: Landing) -> Plain:
    table = landing.config.table("orders")
    assert table is not None
    return Plain(table.path)


def rows_in(landing: Landing) -> list[tuple[int, int, int]]:
    """As a program reads them that knows neither Spark nor us."""
    found = plain(landing).to_pyarrow_table().to_pylist()
    return sorted((r["crkafka_checkpoint"], r["partition"], r["offset"]) for r in found)


def expected(landing: Landing, *checkpoints: int) -> list[tuple[int, int, int]]:
    before = dict.fromkeys(landing.tps, 0)
    found = []
    for number in sorted(landing.offsets)[1:]:
        for tp, stop in landing.offsets[number].items():
            found += [(number, tp.partition, o) for o in range(before[tp], stop) if number in checkpoints]
        before = landing.offsets[number]
    return sorted(found)


def writers(landing: Landing) -> list[str]:
    """Who made each commit, oldest first: Spark, or deltalake for us."""
    return [str(c["engineInfo"]).partition("/")[0].partition(":")[0] for c in reversed(plain(landing).history())]


def test_after_the_first_commit_the_log_takes_what_spark_writes(spark: SparkSession, lake: tuple[Landing, Any]) -> None:
    landing, _ = lake
    for _ in range(12):
        advance(spark, landing)
    advance(spark, landing, checkpoints=3)
    assert writers(landing) == ["Apache-Spark", *["delta-rs"] * 12]
    assert rows_in(landing) == expected(landing, *range(1, 16))
    assert tables.read_table(spark, landing.region, "orders").count() == 15 * 8
    told = {r["path"]: r for r in pa.table(plain(landing).get_add_actions(flatten=True)).to_pylist()}
    last = [r for r in told.values() if r["max.crkafka_checkpoint"] == 15]
    assert {r["min.crkafka_checkpoint"] for r in last} <= {13, 14, 15}
    assert sum(r["num_records"] for r in told.values()) == 15 * 8
    assert all(r["min.timestamp"] <= r["max.timestamp"] and r["min.offset"] <= r["max.offset"] for r in told.values())
    assert all(r["null_count.crkafka_checkpoint"] == 0 for r in told.values())
    assert sum(r["null_count.who"] for r in told.values()) == sum(o % 3 == 0 for o in range(60)) * 2
    assert tables.look(spark, landing.region, "orders").clean
    landing.rewind(14)
    tables.fence(spark, landing.region, "orders")
    assert rows_in(landing) == expected(landing, *range(1, 15)), "also out of a file of several checkpoints"


def test_what_more_is_asked_of_a_commit_spark_does(spark: SparkSession, lake: tuple[Landing, Any]) -> None:
    """A column more; a table that checks its rows; times as Spark writes them by itself, of which a footer tells nothing."""
    landing, shop = lake
    advance(spark, landing, checkpoints=1)
    advance(spark, landing)
    shop.COLUMNS.append("timestampType AS kind")
    advance(spark, landing)
    advance(spark, landing)
    assert writers(landing) == ["Apache-Spark", "delta-rs", "Apache-Spark", "delta-rs"]
    key = "spark.sql.parquet.outputTimestampType"
    usual = spark.conf.get(key)
    spark.conf.set(key, "INT96")
    try:
        advance(spark, landing)
    finally:
        spark.conf.set(key, usual)
    path = plain(landing).table_uri
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT early CHECK (offset < 24)")
    advance(spark, landing)
    assert writers(landing)[4:] == ["Apache-Spark"] * 3
    assert rows_in(landing) == expected(landing, *range(1, 7))
    landing.land(4)
    with pytest.raises(Exception, match="early"):
        tables.advance(spark, landing.region, "orders")
    assert rows_in(landing) == expected(landing, *range(1, 7))


@pytest.mark.parametrize("step", ["before the log", "after the log"])
def test_whoever_dies_beside_the_logs_commit_leaves_each_row_once(
    spark: SparkSession, lake: tuple[Landing, Any], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    landing, _ = lake
    advance(spark, landing)
    advance(spark, landing)
    take = Snapshot.take

    def dying(snapshot: Snapshot, *given: Any) -> int:
        if step == "after the log":
            take(snapshot, *given)
        raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(Snapshot, "take", dying)
        patch.setattr(writing, "give_up", lambda *_: None)
        advance(spark, landing)
    leases_end(landing)
    advance(spark, landing)
    assert rows_in(landing) == expected(landing, 1, 2, 3, 4)
    assert tables.look(spark, landing.region, "orders").clean


@pytest.mark.parametrize("late_by", ["a commit", "a rewind"])
def test_who_wrote_files_while_another_went_on_commits_nothing(
    spark: SparkSession, lake: tuple[Landing, Any], monkeypatch: pytest.MonkeyPatch, late_by: str
) -> None:
    landing, _ = lake
    advance(spark, landing)
    advance(spark, landing)
    landing.land(4)
    usual = DeltaTable._files

    def slow(form: DeltaTable, *given: Any) -> Any:
        found = usual(form, *given)
        monkeypatch.undo()
        leases_end(landing)
        if late_by == "a rewind":
            landing.rewind(1)
            tables.fence(spark, landing.region, "orders")
        else:
            tables.advance(spark, landing.region, "orders")
        return found

    monkeypatch.setattr(DeltaTable, "_files", slow)
    with pytest.raises(LeaseLost):
        tables.advance(spark, landing.region, "orders")
    there = (1,) if late_by == "a rewind" else (1, 2, 3)
    assert rows_in(landing) == expected(landing, *there)
    assert tables.look(spark, landing.region, "orders").clean


def test_sparks_own_late_commit_is_dropped_behind_one_of_the_log(
    spark: SparkSession, lake: tuple[Landing, Any]
) -> None:
    landing, _ = lake
    advance(spark, landing)
    advance(spark, landing)
    landing.land(4)
    late = zombie(spark, landing, name="orders")
    leases_end(landing)
    tables.advance(spark, landing.region, "orders")
    with pytest.raises(LeaseLost):
        late()
    assert rows_in(landing) == expected(landing, 1, 2, 3)


def test_a_commit_that_the_log_takes_tells_whose_it_is(spark: SparkSession, lake: tuple[Landing, Any]) -> None:
    landing, _ = lake
    for _ in range(3):
        advance(spark, landing)
    said = json.loads(plain(landing).history(1)[0]["userMetadata"])
    assert (said["crkafka"]["number"], said["rows"]) == (3, 8)
