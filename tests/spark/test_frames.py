"""The rows of exactly the checkpoints asked for (SPEC K3, K7)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from crkafka_core.lake import erasing
from crkafka_core.model.errors import ConfigError, DataLoss
from crkafka_core.model.offsets import TP
from crkafka_core.plane import leases, reading
from crkafka_core.spark import frames, segment_files
from crkafka_core.spark.schema import ROWS
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore
from tests.rigs.until import until

pytestmark = pytest.mark.spark


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    folder = tmp_path / "with space"
    folder.mkdir()
    return Landing(MemoryStore(), folder)


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_T1_a_read_that_was_refused_holds_nothing_back(landing: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else retirement would wait for it as long as the notebook lives."""

    def refuse(*_: object) -> DataFrame:
        raise DataLoss("Kafka no longer holds its records.")

    landing.land(10)
    monkeypatch.setattr(frames, "from_plan", refuse)
    with pytest.raises(DataLoss):
        frames.checkpoints(None, landing.region)  # type: ignore[arg-type]
    assert landing.region.plane.read(lambda reader, _: leases.held(reader, reading.KIND)) == []


def test_rows_and_schema_of_a_range(spark: SparkSession, landing: Landing) -> None:
    landing.land(50, times=3)
    checkpoint_rows = frames.checkpoints(spark, landing.region, after=1, upto=3)
    assert checkpoint_rows.schema == ROWS
    rows = checkpoint_rows.orderBy("partition", "offset").collect()
    assert [(r.partition, r.offset) for r in rows] == [(p, o) for p in range(4) for o in range(50, 150)]
    assert all(bytes(r.value) == f"orders:{r.partition}:{r.offset}".encode() for r in rows)
    assert [r.key for r in rows[:4]] == [b"k1", None, b"k3", b"k4"]
    assert rows[0].headers[0].asDict() == {"key": "n", "value": b"50"}
    assert rows[1].headers is None


def test_C8_each_row_tells_its_checkpoint(spark: SparkSession, landing: Landing) -> None:
    landing.land(50, times=3)
    counted = frames.checkpoints(spark, landing.region).groupBy("crkafka_checkpoint").count()
    assert {tuple(r) for r in counted.collect()} == {(1, 200), (2, 200), (3, 200)}
    one = frames.checkpoints(spark, landing.region, ids=[2])
    assert {r[0] for r in one.select("crkafka_checkpoint").distinct().collect()} == {2}
    assert one.selectExpr("min(offset)", "max(offset)").first() == (50, 99)


def test_pruning_and_filters_reach_parquet(spark: SparkSession, landing: Landing) -> None:
    landing.land(10, times=12)
    checkpoint_rows = (
        frames.checkpoints(spark, landing.region).where("offset >= 30").select("partition", "crkafka_checkpoint")
    )
    plan = plan_of(checkpoint_rows)
    assert "GreaterThanOrEqual(offset,30)" in plan
    scan = next(line for line in plan.splitlines() if "FileScan parquet" in line)
    assert "value" not in scan and "headers" not in scan
    assert checkpoint_rows.count() == 4 * 90


def test_many_small_segments_are_few_tasks(
    spark: SparkSession, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read with Arrow: the same rows."""
    landing.land(2, times=60)
    arrow = frames.checkpoints(spark, landing.region)
    assert arrow.rdd.getNumPartitions() == 1
    assert "parquet" not in plan_of(arrow)
    monkeypatch.setattr(segment_files, "_MANY", 1_000)
    own = frames.checkpoints(spark, landing.region)
    assert "parquet" in plan_of(own)
    assert arrow.schema == own.schema
    order = ["topic", "partition", "offset"]
    assert arrow.orderBy(order).collect() == own.orderBy(order).collect()
    assert arrow.count() == 60 * 8


def test_nothing_is_a_frame_of_the_same_columns(spark: SparkSession, landing: Landing) -> None:
    landing.land(0)
    assert frames.checkpoints(spark, landing.region).schema == ROWS
    assert frames.checkpoints(spark, landing.region).count() == 0


def test_a_missing_segment_is_named(spark: SparkSession, landing: Landing) -> None:
    landing.land(10)
    taken = frames.checkpoints(spark, landing.region)
    (path,) = [s.path for s in landing.storage.list("") if "m1" in s.path]
    landing.storage.delete(path)
    with pytest.raises(DataLoss, match=f"segment {path} of checkpoint 1"):
        frames.checkpoints(spark, landing.region)
    with pytest.raises(Exception, match=r"m1-1-0\.parquet"):
        taken.count()


@pytest.fixture
def lenient(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that reads over files which are missing or broken."""
    keys = ["spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"]
    for key in keys:
        spark.conf.set(key, "true")
    yield spark
    for key in keys:
        spark.conf.unset(key)


@pytest.mark.parametrize(("arrow", "harm"), [(False, "gone"), (False, "broken"), (True, "gone")])
def test_K3_a_session_that_reads_over_missing_and_broken_files_gets_an_error_and_not_fewer_rows(
    lenient: SparkSession, landing: Landing, monkeypatch: pytest.MonkeyPatch, arrow: bool, harm: str
) -> None:
    monkeypatch.setattr(segment_files, "_MANY", 0 if arrow else 1_000)
    landing.land(10, times=2)
    taken = frames.checkpoints(lenient, landing.region)
    path = next(s.path for s in landing.storage.list("") if "m1" in s.path)
    file = Path(landing.config.storage, path)
    file.unlink() if harm == "gone" else file.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    with pytest.raises(Exception, match=r"m1-0-\d\.parquet|Parquet|parquet"):
        taken.select("value").collect()
    with pytest.raises(Exception, match=r"m1-0-\d\.parquet|Parquet|parquet"):
        frames.checkpoints(lenient, landing.region).select("value").collect()


SELECTIONS: list[tuple[dict[str, object], str]] = [
    ({"topics": ["refunds"]}, "topic = 'refunds'"),
    ({"partitions": [0, 3]}, "partition IN (0, 3)"),
    ({"from_offset": 15, "to_offset": 25}, "offset >= 15 AND offset < 25"),
    (
        {"from_time": "2023-11-14T22:13:20.012Z", "to_time": 1_700_000_000_019},
        "unix_micros(timestamp) >= 1700000000012000 AND unix_micros(timestamp) < 1700000000019000",
    ),
    (
        {"topics": ["orders"], "partitions": [1], "from_offset": 29},
        "topic = 'orders' AND partition = 1 AND offset > 28",
    ),
    ({"topics": []}, "false"),
]


@pytest.mark.parametrize("arrow", [False, True])
def test_records_are_selected_by_topic_partition_offset_and_time(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrow: bool
) -> None:
    landing = Landing(MemoryStore(), tmp_path, topics=["orders", "refunds"])
    landing.land(10, times=3)
    everything = frames.checkpoints(spark, landing.region).cache()
    monkeypatch.setattr(segment_files, "_MANY", 0 if arrow else 1_000)
    for given, meant in SELECTIONS:
        checkpoint_rows = frames.checkpoints(spark, landing.region, **given).collect()  # type: ignore[arg-type]
        assert sorted(checkpoint_rows, key=str) == sorted(everything.where(meant).collect(), key=str), given
    everything.unpersist()


@pytest.mark.parametrize("arrow", [False, True])
def test_segments_without_what_is_wanted_are_not_opened(
    spark: SparkSession, landing: Landing, monkeypatch: pytest.MonkeyPatch, arrow: bool
) -> None:
    landing.land(10, times=3)
    for segment in landing.region.plane.read(lambda reader, row: reading.plan(reader, row)).segments:
        if segment.checkpoint != 2 or segment.member != "orders/0":
            landing.storage.delete(segment.path)
    monkeypatch.setattr(segment_files, "_MANY", 0 if arrow else 1_000)
    checkpoint_rows = frames.checkpoints(
        spark, landing.region, partitions=[2], from_offset=10, to_offset=20, columns=["offset", "topic"]
    )
    assert [tuple(r) for r in checkpoint_rows.orderBy("offset").collect()] == [(o, "orders") for o in range(10, 20)]


def test_erased_records_are_not_read(spark: SparkSession, landing: Landing) -> None:
    landing.land(10, times=2)
    erasing.erase(landing.region, {TP("orders", 0): {1, 2, 15}})
    left = frames.checkpoints(spark, landing.region, partitions=[0], columns=["offset"]).collect()
    assert sorted(row.offset for row in left) == [o for o in range(20) if o not in (1, 2, 15)]


def test_only_the_columns_that_are_named_come_in_their_order(
    spark: SparkSession, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing.land(3)
    for many in (0, 1_000):
        monkeypatch.setattr(segment_files, "_MANY", many)
        checkpoint_rows = frames.checkpoints(spark, landing.region, columns=["value", "offset", "crkafka_checkpoint"])
        assert checkpoint_rows.columns == ["value", "offset", "crkafka_checkpoint"]
        assert checkpoint_rows.where("crkafka_checkpoint = 1").count() == 12
        only = frames.checkpoints(spark, landing.region, columns=["crkafka_checkpoint"])
        assert [r[0] for r in only.collect()] == [1] * 12
    with pytest.raises(ConfigError, match="no column 'valeu'"):
        frames.checkpoints(spark, landing.region, columns=["valeu"])


def test_a_storage_folder_may_have_brackets_and_stars_in_its_name(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "a[b]{c}*"
    folder.mkdir()
    landing = Landing(MemoryStore(), folder)
    landing.land(5)
    assert frames.checkpoints(spark, landing.region).count() == 20


def test_a_read_holds_retirement_back_while_the_block_runs(spark: SparkSession, landing: Landing) -> None:
    landing.land(10)
    control = landing.region.plane

    def holders() -> int:
        return control.read(lambda reader, row: len(leases.held(reader, "reader")))

    with frames.held(spark, landing.region) as rows:
        assert holders() == 1
        assert rows.count() == 40
    until(lambda: holders() == 0, seconds=5)
