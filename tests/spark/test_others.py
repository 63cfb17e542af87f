"""What Spark's users do to a raw Delta table stays, or is reported and mended, also behind commits of ours (SPEC K6).

The same without Spark: tests/tables/test_changed.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from crkafka_core.lake import erasing
from crkafka_core.model.errors import Refused
from crkafka_core.model.offsets import TP
from tests.tables.conftest import Lake

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A checkpoint of a table that adopts segments."""
    lake = Lake(tmp_path)
    land(lake)
    return lake


def land(lake: Lake) -> None:
    lake.land(), lake.advance()


def sql(spark: SparkSession, lake: Lake, *statements: str) -> None:
    """Statements with the table in place of `T`."""
    for statement in statements:
        spark.sql(re.sub(r"\bT\b", f"delta.`{lake.path}`", statement)).collect()


VECTORS = "ALTER TABLE T SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
NAMES = "ALTER TABLE T SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"


def values(spark: SparkSession, lake: Lake) -> list[str]:
    """By Spark: deltalake reads no deletion vectors."""
    rows = spark.read.format("delta").load(str(lake.path)).select("value").collect()
    return sorted(bytes(row[0]).decode() for row in rows)


def test_of_a_raw_table_a_changed_row_is_told_and_mended(spark: SparkSession, lake: Lake) -> None:
    sql(spark, lake, VECTORS)
    land(lake), land(lake)
    sql(spark, lake, "UPDATE T SET value = CAST('x' AS BINARY) WHERE partition = 0 AND offset = 7")
    land(lake), land(lake)
    assert (lake.look().foreign, lake.look().changed) == (1, (2,))
    lake.mend()
    assert (lake.look().clean, values(spark, lake)) == (True, lake.values_due())
    sql(spark, lake, "DELETE FROM T WHERE partition = 0 AND offset = 3")
    assert not lake.look().clean
    erasing.erase(lake.region, {TP("orders", 0): [3]}, means=lake.means)
    land(lake)
    assert (lake.look().clean, values(spark, lake)) == (True, lake.values_due())


def test_rows_leave_files_with_deletion_vectors_and_come_back_with_a_repair(spark: SparkSession, lake: Lake) -> None:
    """Of a file that OPTIMIZE has made of several checkpoints, and of an adopted one."""
    land(lake), land(lake)
    delete = "DELETE FROM T WHERE partition = 0 AND offset ="
    sql(spark, lake, "OPTIMIZE T", VECTORS, f"{delete} 1")
    land(lake)
    assert lake.look().miscounted == (1,)
    lake.landing.rewind(2)
    lake.fence()
    assert values(spark, lake) == [value for value in lake.values_due() if value != "orders#0:0:1"]
    lake.mend()
    assert values(spark, lake) == lake.values_due()
    land(lake)
    sql(spark, lake, f"{delete} 12")
    lake.mend()
    assert (lake.look().clean, values(spark, lake)) == (True, lake.values_due())


@pytest.mark.soak
def test_what_a_user_of_spark_does_to_a_raw_table_stays_harmless(spark: SparkSession, lake: Lake) -> None:
    sql(spark, lake, VECTORS)
    for statement in ("ALTER TABLE T ADD COLUMN note STRING", "OPTIMIZE T", "REORG TABLE T APPLY (PURGE)"):
        sql(spark, lake, statement)
        land(lake)
    assert (lake.look().clean, values(spark, lake)) == (True, lake.values_due())


def test_of_a_raw_table_a_renamed_column_goes_on_in_its_files(spark: SparkSession, lake: Lake) -> None:
    sql(spark, lake, NAMES, "ALTER TABLE T RENAME COLUMN offset TO place")
    land(lake)
    assert (lake.look().clean, values(spark, lake)) == (True, lake.values_due())
    places = spark.read.format("delta").load(str(lake.path)).select("place").collect()
    assert sorted({row[0] for row in places}) == list(range(10))


def test_a_column_that_was_dropped_and_added_again_is_not_the_one_that_segments_have(
    spark: SparkSession, lake: Lake
) -> None:
    """Delta gives it another name in files: values of new rows were null."""
    sql(spark, lake, NAMES, "ALTER TABLE T DROP COLUMN value", "ALTER TABLE T ADD COLUMN value BINARY")
    lake.land()
    with pytest.raises(Refused, match="lacks value of the columns"):
        lake.advance()


@pytest.mark.soak
def test_what_is_left_of_a_feature_that_could_not_be_dropped_yet_is_no_commit_of_somebody_else(
    spark: SparkSession, lake: Lake
) -> None:
    """Delta makes an empty commit, and refuses until the log's retention has passed."""
    sql(spark, lake, NAMES, NAMES.replace("'name'", "'none'"))
    with pytest.raises((PySparkException, Py4JJavaError)):
        sql(spark, lake, "ALTER TABLE T DROP FEATURE columnMapping TRUNCATE HISTORY")
    assert lake.delta().history(1)[0]["operation"] == "Empty Commit"
    assert lake.look().clean


@pytest.mark.soak
def test_a_delta_table_that_is_clustered_goes_on_without_spark_and_stays_so(spark: SparkSession, lake: Lake) -> None:
    """deltalake refuses its features: the table stopped for good."""
    sql(spark, lake, "ALTER TABLE T CLUSTER BY (topic, `offset`)")
    land(lake)
    sql(spark, lake, "OPTIMIZE T")
    land(lake), land(lake)
    assert values(spark, lake) == lake.values_due()
    lake.landing.rewind(1)  # out of a file that OPTIMIZE has made of two checkpoints
    lake.fence()
    assert values(spark, lake) == lake.values_due()
    land(lake)
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{lake.path}`").collect()[0]
    assert (detail["clusteringColumns"], detail["numFiles"]) == (["topic", "offset"], 3)
    sql(spark, lake, "OPTIMIZE T FULL", "ALTER TABLE T CLUSTER BY NONE")
    land(lake)
    assert (lake.look().clean, values(spark, lake)) == (True, lake.values_due())
