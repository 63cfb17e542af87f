"""Tables by their names in catalogs of a session of the user's, which keep what they have loaded by default (SPEC K6)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from crkafka_core.spark import tables
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore

pytestmark = pytest.mark.spark

SHAPE = """
def some(rows):
    return rows.selectExpr("crkafka_checkpoint", "partition", "offset")
"""
SHAPED: dict[str, Any] = {"shape": "kept:some"}


KINDS: dict[str, dict[str, Any]] = {"raw": {}, "keyed": {**SHAPED, "mode": "upsert", "keys": ["partition", "offset"]}}


@pytest.mark.parametrize("kind", ["raw", pytest.param("keyed", marks=pytest.mark.soak)])
def test_what_another_session_committed_is_seen_though_the_catalog_keeps_tables(
    spark: SparkSession, tmp_path: Path, program: Callable[[str, str], Any], kind: str
) -> None:
    """Rows were missing in silence, and of a table by key a version was acknowledged that lacked the last checkpoint's."""
    program("kept", SHAPE)
    sessions = [spark, spark.newSession()]
    conf = {
        f"spark.sql.catalog.keeps_{kind}.type": "hadoop",
        f"spark.sql.catalog.keeps_{kind}.warehouse": str(tmp_path / "lake"),
        f"spark.sql.catalog.keeps_{kind}": "org.apache.iceberg.spark.SparkCatalog",
    }
    for each in sessions:
        for key, value in conf.items():
            each.conf.set(key, value)
    writer, reader = sessions
    declared = {"name": "orders", "format": "iceberg", "path": f"keeps_{kind}.bronze.orders", **KINDS[kind]}
    landing = Landing(
        MemoryStore(), tmp_path, partitions=2, tables=[declared], host={"spark": "local[2]", "conf": conf}
    )
    for rows in (10, 20):
        landing.land(5)
        tables.advance(writer, landing.region, "orders")
        assert tables.read_table(reader, landing.region, "orders").count() == rows
        assert tables.look(reader, landing.region, "orders").clean
    tables.read_table(writer, landing.region, "orders").count()
    reader.sql(f"DELETE FROM keeps_{kind}.bronze.orders WHERE offset = 9").collect()
    assert not tables.look(writer, landing.region, "orders").clean
    landing.land(5)
    tables.advance(reader, landing.region, "orders")
    tables.mend(writer, landing.region, "orders")
    assert tables.read_table(reader, landing.region, "orders").count() == 30
    landing.rewind(1)
    tables.fence(writer, landing.region, "orders")
    landing.land(5)
    tables.advance(reader, landing.region, "orders")
    assert tables.read_table(writer, landing.region, "orders").count() == 20
    assert tables.look(writer, landing.region, "orders").clean
