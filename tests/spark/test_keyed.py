"""A shape on DataFrames with keys: Spark makes the rows, and the one road keeps the last record of each key (SPEC K6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from crkafka_core.spark import tables
from tests.rigs.landing import Landing
from tests.spark.place import Place

pytestmark = pytest.mark.spark

SHAPE = '''
def latest(rows):
    """Seven keys in each partition; every fifth record deletes its key."""
    return rows.selectExpr(
        "crkafka_checkpoint", "partition", "offset", "concat(partition, '-', offset % 7) AS id", "offset % 5 = 4 AS crkafka_deleted"
    )
'''


def truth(upto: int) -> dict[str, int]:
    """Key → offset of its last record below one, in two partitions."""
    last_offsets: dict[str, int] = {}
    for partition in range(2):
        for offset in range(upto):
            key = f"{partition}-{offset % 7}"
            last_offsets.pop(key, None) if offset % 5 == 4 else last_offsets.update({key: offset})
    return last_offsets


def rows_in(spark: SparkSession, landing: Landing) -> dict[str, int]:
    table_rows = tables.read_table(spark, landing.region, "now")
    assert "crkafka_deleted" not in table_rows.columns
    rows = table_rows.select("id", "offset").collect()
    assert len({row.id for row in rows}) == len(rows)
    return {row.id: row.offset for row in rows}


@pytest.mark.parametrize("format", ["delta", pytest.param("iceberg", marks=pytest.mark.soak)])
def test_the_last_record_of_each_key_and_a_rewind_brings_back_what_later_ones_replaced(
    spark: SparkSession, place: Place, program: Callable[[str, str], Any], format: str
) -> None:
    program("latest", SHAPE)
    table = {"name": "now", "format": format, "path": place.path("now"), "shape": "latest:latest"}
    landing = place.landing([{**table, "mode": "upsert", "keys": ["id"]}])
    for upto in (11, 20, 24):
        landing.land(upto - sum(landing.offsets[max(landing.offsets)].values()) // 2)
        tables.advance(spark, landing.region, "now")
        assert rows_in(spark, landing) == truth(upto)
    landing.rewind(2)
    assert rows_in(spark, landing) == truth(20), "before the fence, too"
    tables.fence_all(spark, landing.region)
    landing.land(9)
    tables.advance(spark, landing.region, "now")
    assert rows_in(spark, landing) == truth(29)
    assert tables.look(spark, landing.region, "now").clean
