"""Spark reads each kind of table, by `read_table` and by its own format, in catalogs that keep what they loaded too (SPEC K6)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from crkafka_core.model.errors import Refused
from crkafka_core.model.rows import Table
from crkafka_core.spark import location, tables
from crkafka_core.spark.schema import CHECKPOINT
from crkafka_core.verify import in_tables
from crkafka_core.verify.verdict import Findings
from tests.lake.rig import Iceberg, Keyed, KeyedIceberg, Rig, Row
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore

pytestmark = pytest.mark.spark


def by_spark(rig: Rig, read: Callable[[Rig, str], DataFrame]) -> list[Row]:
    rows: list[Row] = []
    for name in rig.names:
        frame = read(rig, name)
        place = rig.place if "offset" in frame.columns else [f"kafka_{column}" for column in rig.place]
        rows += [tuple(row) for row in frame.select(CHECKPOINT, *place).collect()]
    return sorted(rows)


@pytest.mark.parametrize(
    "kind", [Rig, *(pytest.param(kind, marks=pytest.mark.soak) for kind in (Iceberg, Keyed)), KeyedIceberg]
)
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


def test_verify_reads_what_a_user_of_spark_does_to_an_iceberg_table(spark: SparkSession, tmp_path: Path) -> None:
    """Rewritten and zipped files, rows deleted beside files, a column that was dropped and added, a version put back."""
    rig = Iceberg(tmp_path, {"format": "iceberg"})
    name = location.iceberg_name(spark, str(rig.path))
    catalog, _, table = name.replace("`", "").partition(".")

    def do(statement: str) -> None:
        spark.sql(re.sub(r"\bT\b", name, statement)).collect()

    def call(procedure: str, **given: Any) -> None:
        arguments = ", ".join(f"{key} => {value!r}" for key, value in {"table": table, **given}.items())
        spark.sql(f"CALL {catalog}.system.{procedure}({arguments})").collect()

    def verified() -> str:
        findings = Findings()
        assert in_tables.look(rig.region, findings) and not findings.notes, findings.notes
        return "\n".join(map(str, findings.kept))

    for _ in range(3):
        rig.land(10), rig.advance()
    do(
        "ALTER TABLE T SET TBLPROPERTIES ('write.metadata.compression-codec' = 'gzip', 'write.delete.mode' = 'merge-on-read')"
    )
    rig.land(10), rig.advance()
    assert any(".gz." in file.name for file in rig.path.glob("metadata/*"))
    do("ALTER TABLE T DROP COLUMN offset"), do("ALTER TABLE T ADD COLUMN offset BIGINT")
    assert spark.table(name).where("offset = 12").count() == 2, "files name their columns, by which Iceberg reads them"
    assert verified() == ""
    call("rewrite_data_files", where="true")
    assert verified() == ""
    do("DELETE FROM T WHERE partition = 0 AND offset = 12")
    do("INSERT INTO T SELECT * FROM T WHERE partition = 1 AND offset = 3")
    texts = verified()
    assert "9 of 10 records are there (checkpoint 2, orders[0], offset 12)" in texts
    assert "1 record is there more than once (checkpoint 1, orders[1], offset 3)" in texts
    snapshots = spark.table(f"{name}.snapshots").orderBy("committed_at").collect()
    call("set_current_snapshot", snapshot_id=snapshots[2].snapshot_id)
    assert "0 of 10 records are there (checkpoint 4, orders[0], offset 30)" in verified()
    do("ALTER TABLE T SET TBLPROPERTIES ('write.format.default' = 'orc')")
    do("INSERT INTO T SELECT * FROM T LIMIT 1")
    looked = Findings()
    in_tables.look(rig.region, looked)
    assert any("in a form that only Spark reads" in note for note in looked.notes), looked.notes


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
