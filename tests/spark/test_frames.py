"""The rows of exactly the checkpoints asked for (SPEC K3, K7)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from crkafka_core.model.errors import DataLoss, NoSuchCheckpoint
from crkafka_core.plane import leases
from crkafka_core.spark import frames, segment_files
from crkafka_core.spark.schema import RECORDS
from crkafka_core.testing.landing import Landing
from crkafka_core.testing.memory import MemoryStore

pytestmark = pytest.mark.spark


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    folder = tmp_path / "with space"
    folder.mkdir()
    return Landing(MemoryStore(), folder)


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_rows_and_schema_of_a_range(spark: SparkSession, landing: Landing) -> None:
    for _ in range(3):
        landing.land(50)
    found = frames.checkpoints(spark, landing.region, after=1, upto=3)
    assert found.schema == RECORDS
    rows = found.orderBy("partition", "offset").collect()
    assert [(r.partition, r.offset) for r in rows] == [(p, o) for p in range(4) for o in range(50, 150)]
    assert all(bytes(r.value) == f"orders:{r.partition}:{r.offset}".encode() for r in rows)
    assert [r.key for r in rows[:4]] == [b"k1", None, b"k3", b"k4"]
    assert rows[0].headers[0].asDict() == {"key": "n", "value": b"50"}
    assert rows[1].headers is None


def test_each_row_can_tell_its_checkpoint(spark: SparkSession, landing: Landing) -> None:
    for _ in range(3):
        landing.land(50)
    counted = frames.checkpoints(spark, landing.region, numbered=True).groupBy("crkafka_checkpoint").count()
    assert {tuple(r) for r in counted.collect()} == {(1, 200), (2, 200), (3, 200)}
    one = frames.checkpoints(spark, landing.region, ids=[2], numbered=True)
    assert {r[0] for r in one.select("crkafka_checkpoint").distinct().collect()} == {2}
    assert one.selectExpr("min(offset)", "max(offset)").first() == (50, 99)


def test_pruning_and_filters_reach_parquet(spark: SparkSession, landing: Landing) -> None:
    for _ in range(12):
        landing.land(10)
    for numbered in (False, True):
        found = frames.checkpoints(spark, landing.region, numbered=numbered).where("offset >= 30").select("partition")
        plan = plan_of(found)
        assert "GreaterThanOrEqual(offset,30)" in plan
        scan = next(line for line in plan.splitlines() if "FileScan parquet" in line)
        assert "value" not in scan and "headers" not in scan
        assert found.count() == 4 * 90


def test_many_small_segments_are_few_tasks(spark: SparkSession, landing: Landing) -> None:
    for _ in range(60):
        landing.land(2)
    found = frames.checkpoints(spark, landing.region)
    assert found.rdd.getNumPartitions() == 1
    assert found.count() == 60 * 8


@pytest.mark.parametrize("numbered", [False, True])
def test_a_great_many_small_segments_read_with_arrow_are_the_same_rows(
    spark: SparkSession, landing: Landing, monkeypatch: pytest.MonkeyPatch, numbered: bool
) -> None:
    for _ in range(40):
        landing.land(2)
    arrow = frames.checkpoints(spark, landing.region, numbered=numbered)
    assert "parquet" not in plan_of(arrow)
    monkeypatch.setattr(segment_files, "_MANY", 1_000)
    own = frames.checkpoints(spark, landing.region, numbered=numbered)
    assert "parquet" in plan_of(own)
    assert arrow.schema == own.schema
    order = ["topic", "partition", "offset"]
    assert arrow.orderBy(order).collect() == own.orderBy(order).collect() != []


def test_nothing_is_a_frame_of_the_same_columns(spark: SparkSession, landing: Landing) -> None:
    landing.land(0)
    assert frames.checkpoints(spark, landing.region).schema == RECORDS
    assert frames.checkpoints(spark, landing.region).count() == 0


def test_a_missing_segment_is_named(spark: SparkSession, landing: Landing) -> None:
    landing.land(10)
    taken = frames.checkpoints(spark, landing.region)
    (path,) = [s.path for s in landing.storage.list("") if "m1" in s.path]
    landing.storage.delete(path)
    with pytest.raises(DataLoss, match=f"segment {path} of checkpoint 1"):
        frames.checkpoints(spark, landing.region)
    with pytest.raises(Exception, match=r"m1-0-0\.parquet"):
        taken.count()


def test_beyond_the_last_merge_is_refused(spark: SparkSession, landing: Landing) -> None:
    landing.land(10)
    with pytest.raises(NoSuchCheckpoint, match="its last merge is 1"):
        frames.checkpoints(spark, landing.region, upto=2)


def test_a_read_holds_retirement_back_while_the_block_runs(spark: SparkSession, landing: Landing) -> None:
    landing.land(10)
    control = landing.region.plane

    def holders() -> int:
        return control.read(lambda reader, row: len(leases.held(reader, row.name, "reader")))

    with frames.held(spark, landing.region) as rows:
        assert holders() == 1
        assert rows.count() == 40
    deadline = time.monotonic() + 5
    while holders() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert holders() == 0
