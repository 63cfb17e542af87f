"""Spark reads each kind of table, by `read_table` and by its own format (SPEC K6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from crkafka_core.model.errors import Refused
from crkafka_core.model.rows import Table
from crkafka_core.spark import location, tables
from crkafka_core.spark.schema import CHECKPOINT
from tests.lake.rig import Iceberg, Keyed, KeyedIceberg, Rig, Row

pytestmark = pytest.mark.spark


def by_spark(rig: Rig, read: Callable[[Rig, str], DataFrame]) -> list[Row]:
    """The rows of all its tables."""
    rows: list[Row] = []
    for name in rig.names:
        frame = read(rig, name)
        place = rig.place if "offset" in frame.columns else [f"kafka_{column}" for column in rig.place]
        rows += [tuple(row) for row in frame.select(CHECKPOINT, *place).collect()]
    return sorted(rows)


@pytest.mark.parametrize("kind", [Rig, Iceberg, Keyed, KeyedIceberg])
def test_each_kind_of_table_is_read_with_its_marks_and_without_superseded_rows(
    spark: SparkSession, tmp_path: Path, kind: type[Rig]
) -> None:
    """Raw; typed with one row for each key, where replaced rows are marked, and its dead letters."""
    rig = kind(tmp_path)
    if isinstance(rig, Iceberg):  # it brings its own log, and is declared with the rig's default
        rig.region.plane.do(lambda tx: tx.put(*(replace(table, format="iceberg") for table in tx.select(Table))))

    def read_table(rig: Rig, name: str) -> DataFrame:
        return tables.read_table(spark, rig.region, name)

    def own_format(rig: Rig, name: str) -> DataFrame:
        path = str(rig.path.with_name(name))
        if isinstance(rig, Iceberg):
            return spark.table(location.iceberg_name(spark, path))
        return spark.read.format("delta").load(path)

    for _ in range(3):
        rig.land(10), rig.advance()
        assert by_spark(rig, read_table) == by_spark(rig, own_format) == rig.truth()
    rig.rewind(2)
    assert by_spark(rig, read_table) == rig.truth(), "before the fence, too"
    rig.fence()
    assert by_spark(rig, read_table) == by_spark(rig, own_format) == rig.truth()


@pytest.mark.parametrize("key", ["ignoreMissingFiles", "ignoreCorruptFiles"])
def test_K3_a_delta_table_is_not_read_by_a_session_that_would_leave_out_rows(
    spark: SparkSession, tmp_path: Path, key: str
) -> None:
    rig = Rig(tmp_path)
    rig.land(), rig.advance()
    spark.conf.set(f"spark.sql.files.{key}", "true")
    try:
        with pytest.raises(Refused, match=f"{key}.*would be missing"):
            tables.read_table(spark, rig.region, "bronze")
    finally:
        spark.conf.unset(f"spark.sql.files.{key}")
