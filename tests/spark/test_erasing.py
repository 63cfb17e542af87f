"""`erase` in tables that Spark writes, and from Kafka: in every format, with dead letters, before and after retirement (SPEC K6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from crkafka_core.lake import erasing
from crkafka_core.model.offsets import TP
from crkafka_core.spark import frames, tables
from crkafka_core.spark.frame_shape import means
from tests.lake.test_typed import made, schema
from tests.rigs.landing import Landing

pytestmark = pytest.mark.spark
GONE = {TP("orders", 0): {1, 2, 5}}


def places(spark: SparkSession, landing: Landing) -> dict[str, list[int]]:
    """Table → offsets."""
    found = {}
    for table in landing.region.config.tables:
        rows = tables.read_table(spark, landing.region, table.name)
        offset = "kafka_offset" if "kafka_offset" in rows.columns else "offset"
        found[table.name] = sorted(r[0] for r in rows.select(offset).collect())
    return found


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_good_and_bad_records_leave_raw_and_typed_tables_and_no_replay_brings_them_back(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    (tmp_path / "order.json").write_text(json.dumps(schema(id="integer")))
    values: dict[Any, bytes] = {("orders", o): b'{"id": %d}' % o if o % 3 else b"no JSON" for o in range(9)}
    declared: dict[str, Any] = {"format": format, "typed": {"json": str(tmp_path / "order.json")}}
    landing = made(tmp_path, values, {"name": "typed", **declared}, {"name": "raw", "format": format})
    region = landing.region
    for rows in (4, 4):
        landing.land(rows)
        for name in ("typed", "raw"):
            tables.advance(spark, region, name)
    assert erasing.erase(region, GONE, means=means(spark)) == erasing.Erased({1: 2, 2: 1}, {})
    left = {"raw": [0, 3, 4, 6, 7], "typed": [4, 7], "typed_dead": [0, 3, 6]}
    assert places(spark, landing) == left
    for name in ("typed", "raw"):
        tables.rewrite(spark, region, name, [1, 2])
        assert tables.mend(spark, region, name) is None
    assert places(spark, landing) == left
    landing.land(1)
    for name in ("typed", "raw"):
        tables.advance(spark, region, name)
        assert tables.look(spark, region, name).clean
    assert frames.checkpoints(spark, region, ids=[1, 3], columns=["value"]).count() == 3
    landing.rewind(1)
    tables.fence_all(spark, region)
    assert places(spark, landing) == {"raw": [0, 3], "typed": [], "typed_dead": [0, 3]}
    assert all(tables.look(spark, region, name).clean for name in ("typed", "raw"))
