"""A shape on DataFrames with keys: Spark makes the rows, and the one road keeps the last record of each key (SPEC K6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from crkafka_core.model.errors import Refused
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


def keyless(rows):
    return rows.selectExpr("crkafka_checkpoint", "partition", "offset", "CAST(NULL AS STRING) AS id")
'''


def made(place: Place, function: str, format: str) -> Landing:
    table = {"name": "now", "format": format, "path": place.path("now"), "shape": f"latest:{function}"}
    return place.landing([{**table, "mode": "upsert", "keys": ["id"]}])


def truth(upto: int) -> dict[str, int]:
    """Key → offset of its last record below one, in two partitions."""
    found: dict[str, int] = {}
    for partition in range(2):
        for offset in range(upto):
            key = f"{partition}-{offset % 7}"
            found.pop(key, None) if offset % 5 == 4 else found.update({key: offset})
    return found


def rows_in(spark: SparkSession, landing: Landing) -> dict[str, int]:
    found = tables.read_table(spark, landing.region, "now")
    assert "crkafka_deleted" not in found.columns
    rows = found.select("id", "offset").collect()
    assert len({row.id for row in rows}) == len(rows)
    return {row.id: row.offset for row in rows}


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_the_last_record_of_each_key_and_a_rewind_brings_back_what_later_ones_replaced(
    spark: SparkSession, place: Place, program: Callable[[str, str], Any], format: str
) -> None:
    program("latest", SHAPE)
    landing = made(place, "latest", format)
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


def test_a_record_without_a_key_is_named_and_nothing_is_written(
    spark: SparkSession, place: Place, program: Callable[[str, str], Any]
) -> None:
    program("latest", SHAPE)
    landing = made(place, "keyless", "delta")
    landing.land(3)
    with pytest.raises(Refused, match=r"records? ha.* no id, .*the first is \(\d, 0\)"):
        tables.advance(spark, landing.region, "now")
