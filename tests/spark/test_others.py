"""What Spark's users did to a raw Delta table is told, also behind commits of ours, and mended (SPEC K6)."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from crkafka_core.lake import erasing
from crkafka_core.model.errors import Refused
from crkafka_core.model.offsets import TP
from crkafka_core.spark import tables
from crkafka_core.spark.frame_shape import means
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore
from tests.tables.conftest import Lake

pytestmark = pytest.mark.spark
VECTORS = "delta with deletion vectors"
PLAIN_IS_LONG = pytest.mark.parametrize("raw", [pytest.param("delta", marks=pytest.mark.soak), VECTORS], indirect=True)
"""Where tests/tables/test_changed.py and test_maintain.py show the same of plain Delta, without Spark."""
VECTORS_ARE_LONG = pytest.mark.parametrize(
    "raw", ["delta", pytest.param(VECTORS, marks=pytest.mark.soak)], indirect=True
)
"""Where no row is changed: with or without deletion vectors, files are what they were."""


@pytest.fixture(params=["delta", VECTORS])
def raw(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    """Three checkpoints of a table that adopts segments."""
    lake = Lake(tmp_path)
    lake.land(), tables.advance(spark, lake.region, "bronze")
    if request.param == VECTORS:
        spark.sql(f"ALTER TABLE delta.`{lake.path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    for _ in range(2):
        lake.land(), tables.advance(spark, lake.region, "bronze")
    return lake


def named(spark: SparkSession, lake: Lake) -> str:
    return f"delta.`{lake.path}`"


def values(spark: SparkSession, lake: Lake) -> list[str]:
    """By Spark: delta-rs reads no deletion vectors."""
    return sorted(bytes(row[0]).decode() for row in spark.table(named(spark, lake)).select("value").collect())


def change(spark: SparkSession, lake: Lake) -> None:
    """A row of checkpoint 2."""
    spark.sql(
        f"UPDATE {named(spark, lake)} SET value = CAST('x' AS BINARY) WHERE partition = 0 AND offset = 7"
    ).collect()


@PLAIN_IS_LONG
def test_of_a_raw_table_a_changed_row_is_told_and_mended(spark: SparkSession, raw: Lake) -> None:
    change(spark, raw)
    for _ in range(2):
        raw.land(), tables.advance(spark, raw.region, "bronze")
    assert (raw.look().foreign, raw.look().changed) == (1, (2,))
    tables.mend(spark, raw.region, "bronze")
    assert (raw.look().clean, values(spark, raw)) == (True, raw.values_due())
    raw.land(), tables.advance(spark, raw.region, "bronze")
    assert (raw.look().clean, values(spark, raw)) == (True, raw.values_due())


@PLAIN_IS_LONG
def test_of_a_raw_table_a_persons_delete_that_is_noted_is_not_told(spark: SparkSession, raw: Lake) -> None:
    spark.sql(f"DELETE FROM {named(spark, raw)} WHERE partition = 0 AND offset = 7").collect()
    assert not raw.look().clean
    erasing.erase(raw.region, {TP("orders", 0): [7]}, means=means(spark))
    raw.land(), tables.advance(spark, raw.region, "bronze")
    assert (raw.look().clean, values(spark, raw)) == (True, raw.values_due())


@VECTORS_ARE_LONG
def test_of_a_raw_table_a_lost_file_is_told_and_mended(spark: SparkSession, raw: Lake) -> None:
    gone = sorted(raw.path.rglob("*/*/*.parquet"))[0]
    gone.unlink()
    raw.land(), tables.advance(spark, raw.region, "bronze")
    assert raw.look().lost == (str(gone.relative_to(raw.path)),)
    tables.mend(spark, raw.region, "bronze")
    assert (raw.look().clean, values(spark, raw)) == (True, raw.values_due())


@PLAIN_IS_LONG
def test_what_a_user_of_spark_does_to_a_raw_table_stays_harmless(spark: SparkSession, raw: Lake) -> None:
    name = named(spark, raw)
    done = [f"ALTER TABLE {name} ADD COLUMN note STRING"]
    done += [f"OPTIMIZE {name}", f"REORG TABLE {name} APPLY (PURGE)", f"VACUUM {name}"]
    for statement in done:
        spark.sql(statement).collect()
        raw.land(), tables.advance(spark, raw.region, "bronze")
    raw.optimize()
    raw.land(), tables.advance(spark, raw.region, "bronze")
    assert (raw.look().clean, values(spark, raw)) == (True, raw.values_due())


@VECTORS_ARE_LONG
def test_of_a_raw_table_a_renamed_column_goes_on_in_its_files(spark: SparkSession, raw: Lake) -> None:
    name = named(spark, raw)
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')").collect()
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN offset TO place").collect()
    raw.land(), tables.advance(spark, raw.region, "bronze")
    assert (raw.look().clean, values(spark, raw)) == (True, raw.values_due())
    assert sorted({row[0] for row in spark.table(name).select("place").collect()}) == list(range(20))


def test_a_column_that_was_dropped_and_added_again_is_not_the_one_that_segments_have(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Delta gives it another name in files: what came was null in every row."""
    lake = Lake(tmp_path)
    lake.land(), tables.advance(spark, lake.region, "bronze")
    name = named(spark, lake)
    for statement in (
        "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "DROP COLUMN value",
        "ADD COLUMN value BINARY",
    ):
        spark.sql(f"ALTER TABLE {name} {statement}").collect()
    lake.land()
    with pytest.raises(Refused, match="lacks value of the columns"):
        tables.advance(spark, lake.region, "bronze")


def test_what_is_left_of_a_feature_that_could_not_be_dropped_yet_is_no_commit_of_somebody_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Delta makes an empty commit, and says that the log's retention has to pass first."""
    lake = Lake(tmp_path)
    lake.land(), tables.advance(spark, lake.region, "bronze")
    name = named(spark, lake)
    for mode in ("name", "none"):
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}')").collect()
    with pytest.raises((PySparkException, Py4JJavaError)):
        spark.sql(f"ALTER TABLE {name} DROP FEATURE columnMapping TRUNCATE HISTORY").collect()
    assert lake.delta().history(1)[0]["operation"] == "Empty Commit"
    assert lake.look().clean


def landed(folder: Path) -> Landing:
    """A raw table, bronze."""
    table = {"name": "bronze", "format": "delta", "path": str(folder / "tables" / "bronze")}
    return Landing(MemoryStore(), folder, partitions=2, tables=[table])


def rows_in(spark: SparkSession, landing: Landing) -> list[tuple[int, int, int]]:
    """(checkpoint, partition, offset) of every row."""
    found = tables.read_table(spark, landing.region, "bronze").select("crkafka_checkpoint", "partition", "offset")
    return sorted(tuple(row) for row in found.collect())  # type: ignore[misc]


def expected(*checkpoints: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """Of (checkpoint, first offset, next offset), in two partitions."""
    return sorted((c, p, o) for c, start, stop in checkpoints for p in range(2) for o in range(start, stop))


@pytest.mark.parametrize("key", ["ignoreMissingFiles", "ignoreCorruptFiles"])
def test_K3_a_delta_table_is_not_read_by_a_session_that_would_leave_out_rows(
    spark: SparkSession, tmp_path: Path, key: str
) -> None:
    landing = landed(tmp_path)
    landing.land(5)
    tables.advance(spark, landing.region, "bronze")
    spark.conf.set(f"spark.sql.files.{key}", "true")
    try:
        with pytest.raises(Refused, match=f"{key}.*would be missing"):
            tables.read_table(spark, landing.region, "bronze")
    finally:
        spark.conf.unset(f"spark.sql.files.{key}")
    assert tables.read_table(spark, landing.region, "bronze").count() == 10


@pytest.mark.soak
def test_rows_leave_a_file_with_a_deletion_vector_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    landing = landed(tmp_path)
    for _ in range(3):
        landing.land(5)
        tables.advance(None, landing.region, "bronze")
    name = f"delta.`{tmp_path / 'tables' / 'bronze'}`"
    spark.sql(f"OPTIMIZE {name}")
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM {name} WHERE `partition` = 0 AND `offset` = 1")
    landing.land(5)
    tables.advance(None, landing.region, "bronze")
    assert tables.look(None, landing.region, "bronze").miscounted == (1,)
    landing.rewind(2)
    tables.fence(None, landing.region, "bronze")
    gone = (1, 0, 1)
    assert rows_in(spark, landing) == [row for row in expected((1, 0, 5), (2, 5, 10)) if row != gone]
    tables.mend(None, landing.region, "bronze")
    assert rows_in(spark, landing) == expected((1, 0, 5), (2, 5, 10))


def test_a_row_that_is_marked_as_deleted_in_an_adopted_file_comes_back_with_mending(
    spark: SparkSession, tmp_path: Path
) -> None:
    landing = landed(tmp_path)
    landing.land(5)
    tables.advance(None, landing.region, "bronze")
    name = f"delta.`{tmp_path / 'tables' / 'bronze'}`"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM {name} WHERE `partition` = 0 AND `offset` = 1")
    tables.mend(None, landing.region, "bronze")
    assert rows_in(spark, landing) == expected((1, 0, 5))
    assert tables.look(None, landing.region, "bronze").clean


def test_a_delta_table_that_is_clustered_goes_on_without_spark_and_stays_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    """deltalake refuses its features: the table stopped for good."""
    landing = landed(tmp_path)
    name = f"delta.`{tmp_path / 'tables' / 'bronze'}`"

    def land() -> None:
        landing.land(5)
        tables.advance(None, landing.region, "bronze")

    land()
    spark.sql(f"ALTER TABLE {name} CLUSTER BY (topic, `offset`)")
    land()
    spark.sql(f"OPTIMIZE {name}")
    land()
    land()
    assert spark.table(name).count() == 40
    assert spark.table(name).where("topic = 'orders' AND `offset` = 17").count() == 2
    landing.rewind(1)  # out of a file that OPTIMIZE has made of two checkpoints
    tables.fence(None, landing.region, "bronze")
    assert rows_in(spark, landing) == expected((1, 0, 5))
    land()
    detail = spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]
    assert (detail["clusteringColumns"], detail["numFiles"]) == (["topic", "offset"], 3)
    spark.sql(f"OPTIMIZE {name} FULL")
    spark.sql(f"ALTER TABLE {name} CLUSTER BY NONE")
    land()
    assert tables.look(None, landing.region, "bronze").clean
    assert spark.table(name).count() == 30
