"""`crkafka verify` reads Iceberg tables by their own files, without Spark: what is doubled, missing or left behind is named (SPEC K6)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from crkafka_core.spark import iceberg_catalog
from tests.spark.test_verified import SHAPES, Shop, found_of_spoiled, typed

pytestmark = pytest.mark.spark


class IcebergShop(Shop):
    """Its tables as a user of Spark treats them who knows nothing of us."""

    def __init__(self, spark: SparkSession, folder: Path, *declared: dict[str, Any]) -> None:
        super().__init__(spark, folder, *({"format": "iceberg", **table} for table in declared))

    def sql(self, text: str, *names: str) -> None:
        self.spark.sql(text.format(*(iceberg_catalog.named(self.spark, str(self.folder / n)) for n in names))).collect()

    def call(self, procedure: str, name: str, **given: str) -> None:
        catalog, _, table = iceberg_catalog.named(self.spark, str(self.folder / name)).replace("`", "").partition(".")
        of = ", ".join(f"{key} => '{value}'" for key, value in {"table": table, **given}.items())
        self.spark.sql(f"CALL {catalog}.system.{procedure}({of})").collect()

    def noted(self) -> list[str]:
        found = self.look()
        assert found.notes and not found.kept
        return found.notes


def test_of_a_raw_table(spark: SparkSession, tmp_path: Path) -> None:
    shop = IcebergShop(spark, tmp_path, {"name": "raw"})
    shop.land(4)
    assert shop.found() == []
    shop.rewind(3)
    shop.land(2)
    shop.call("rewrite_data_files", "raw")
    assert shop.found() == []
    shop.sql("DELETE FROM {} WHERE partition = 0 AND offset = 12", "raw")
    shop.sql("INSERT INTO {0} SELECT * FROM {0} WHERE partition = 1 AND offset = 3", "raw")
    found = shop.found()
    assert any(each.startswith("K6: table raw: 2 commits of another program") for each in found), found
    assert "K6: table raw: 9 of 10 records are there (checkpoint 2, orders[0], offset 12)" in found
    assert "K6: table raw: 1 record is there more than once (checkpoint 1, orders[1], offset 3)" in found


def test_of_a_raw_table_rows_deleted_beside_its_files_are_not_there(spark: SparkSession, tmp_path: Path) -> None:
    shop = IcebergShop(spark, tmp_path, {"name": "raw"})
    shop.land(2)
    shop.sql("ALTER TABLE {} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')", "raw")
    shop.sql("DELETE FROM {} WHERE offset = 12", "raw")
    found = shop.found()
    for partition in (0, 1):
        assert f"K6: table raw: 9 of 10 records are there (checkpoint 2, orders[{partition}], offset 12)" in found


def test_of_a_typed_table_rows_deleted_beside_its_files_are_not_there(spark: SparkSession, tmp_path: Path) -> None:
    shop = IcebergShop(spark, tmp_path, typed(tmp_path))
    shop.land(1)
    shop.sql("ALTER TABLE {} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')", "typed")
    shop.sql("DELETE FROM {} WHERE kafka_offset = 2 AND kafka_partition = 0", "typed")
    shop.land(1)
    found = shop.found()
    assert "K6: tables typed, typed_dead: 9 of 10 records are there (checkpoint 1, orders[0], offset 2)" in found


def test_of_a_raw_table_that_was_put_back(spark: SparkSession, tmp_path: Path) -> None:
    shop = IcebergShop(spark, tmp_path, {"name": "raw"})
    shop.land(3)
    name = iceberg_catalog.named(spark, str(tmp_path / "raw"))
    rows = spark.table(f"{name}.snapshots").orderBy("committed_at").collect()
    shop.call("set_current_snapshot", "raw", snapshot_id=str(rows[-2].snapshot_id))
    found = shop.found()
    assert "K6: table raw: 0 of 10 records are there (checkpoint 3, orders[0], offset 20)" in found


def test_of_a_typed_table_and_its_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    shop = IcebergShop(spark, tmp_path, typed(tmp_path))
    shop.land(3)
    assert shop.found() == []
    shop.sql("CREATE TABLE {1} USING iceberg AS SELECT * FROM {0} WHERE kafka_offset = 22", "typed", "left")
    shop.rewind(2)
    assert shop.found() == []
    shop.call("rewrite_data_files", "typed", where="true")
    assert shop.found() == []
    shop.sql("DELETE FROM {} WHERE kafka_partition = 0 AND kafka_offset = 2", "typed")
    shop.sql("INSERT INTO {0} SELECT * FROM {0} WHERE kafka_partition = 0 AND kafka_offset = 3", "typed")
    shop.sql("INSERT INTO {0} SELECT * FROM {1} WHERE kafka_partition = 1", "typed", "left")
    shop.sql("INSERT INTO {0} SELECT * FROM {0} WHERE partition = 1 AND offset = 11", "typed_dead")
    found_of_spoiled(shop)


def test_of_tables_by_key_and_of_a_program(
    spark: SparkSession, tmp_path: Path, program: Callable[[str, str], Any]
) -> None:
    program("iceberg_shapes", SHAPES)
    shop = IcebergShop(
        spark,
        tmp_path,
        typed(tmp_path, mode="upsert"),
        {"name": "even", "shape": "iceberg_shapes:evens"},
        {"name": "last", "shape": "iceberg_shapes:latest", "mode": "upsert", "keys": ["id"]},
    )
    shop.land(3)
    assert shop.found() == []
    shop.sql("DELETE FROM {} WHERE kafka_partition = 0 AND kafka_offset = 29", "typed")
    gone = "the last record of its key has no row (checkpoint 3, orders[0], offset 29)"
    found = shop.found()
    assert any(gone in each for each in found), found
    shop.sql("INSERT INTO {0} SELECT * FROM {0} LIMIT 1", "last")
    shop.sql("INSERT INTO {0} SELECT * FROM {0} WHERE crkafka_checkpoint = 2 LIMIT 1", "even")
    found = shop.found()
    assert any("table last: 1 key has more than one row" in each for each in found), found
    told = "table even: 11 rows of what commit 2 wrote; it had 10 when it was acknowledged"
    assert any(told in each for each in found), found


def test_a_lost_table_is_told(spark: SparkSession, tmp_path: Path) -> None:
    shop = IcebergShop(spark, tmp_path, {"name": "raw"})
    shop.land(1)  # the first version makes the table, the second has its rows
    (tmp_path / "raw").rename(tmp_path / "elsewhere")
    assert "K6: table raw: it is not there, and version 2 was acknowledged" in shop.found()


def test_a_lost_data_file_is_told(spark: SparkSession, tmp_path: Path) -> None:
    shop = IcebergShop(spark, tmp_path, typed(tmp_path))
    shop.land(2)
    files = spark.table(f"{iceberg_catalog.named(spark, str(tmp_path / 'typed'))}.files").collect()
    lost = Path(files[0].file_path.removeprefix("file:"))
    lost.unlink()
    found = shop.found()
    assert any(lost.name in each for each in found), found


def test_a_file_that_is_damaged_is_told(spark: SparkSession, tmp_path: Path) -> None:
    shop = IcebergShop(spark, tmp_path, {"name": "raw"})
    shop.land(1)
    folder = tmp_path / "raw"
    said = json.loads(_newest(folder).read_text())
    lists = next(s["manifest-list"] for s in said["snapshots"] if s["snapshot-id"] == said["current-snapshot-id"])
    manifest = next(folder.glob("metadata/*-m0.avro"))
    for file in (_newest(folder), Path(lists.removeprefix("file:")), manifest, next(folder.rglob("*.parquet"))):
        whole = file.read_bytes()
        for damaged in (b"", whole[: len(whole) // 2]):
            file.write_bytes(damaged)
            found = shop.look()
            assert any(f"{file.name} cannot be read" in str(each) for each in found.kept), (file, found.kept)
        file.write_bytes(whole)
    assert shop.found() == []


@pytest.mark.parametrize("version", [1, 4])
def test_another_version_of_the_format_is_not_compared(spark: SparkSession, tmp_path: Path, version: int) -> None:
    shop = IcebergShop(spark, tmp_path, {"name": "raw"})
    shop.land(1)
    newest = _newest(tmp_path / "raw")
    newest.write_text(json.dumps(json.loads(newest.read_text()) | {"format-version": version}))
    assert [f"version {version} of Iceberg's format is not read here" in note for note in shop.noted()] == [True]


def _newest(folder: Path) -> Path:
    return max(folder.glob("metadata/v*.metadata.json"), key=lambda file: int(file.name[1:].partition(".")[0]))


def test_a_column_that_was_dropped_and_added_again_has_its_values_again(spark: SparkSession, tmp_path: Path) -> None:
    """Files that crkafka writes name their columns: Iceberg reads them by the table's name mapping."""
    shop = IcebergShop(spark, tmp_path, typed(tmp_path))
    shop.land(1)
    shop.sql("ALTER TABLE {} RENAME COLUMN id TO number", "typed")
    shop.sql("ALTER TABLE {} DROP COLUMN kafka_offset", "typed")
    assert shop.found() == [], "its values are still in the files"
    shop.sql("ALTER TABLE {} ADD COLUMN kafka_offset BIGINT", "typed")
    name = iceberg_catalog.named(spark, str(tmp_path / "typed"))
    assert spark.sql(f"SELECT 1 FROM {name} WHERE number = kafka_offset").count() > 0, "as Spark reads it"
    assert shop.found() == []


def test_a_table_of_somebody_else_at_the_path_is_not_compared(spark: SparkSession, tmp_path: Path) -> None:
    shop = IcebergShop(spark, tmp_path, {"name": "raw"})
    shop.sql("CREATE TABLE {} (topic STRING, partition STRING, offset STRING) USING iceberg", "raw")
    shop.sql("INSERT INTO {} VALUES ('a', 'b', 'c')", "raw")
    assert any("lacks columns that tell its rows" in note for note in shop.noted())


def test_what_only_spark_reads_is_said_in_a_note(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = IcebergShop(spark, tmp_path, {"name": "raw"})
    shop.land(1)
    shop.sql("ALTER TABLE {} SET TBLPROPERTIES ('write.format.default' = 'orc')", "raw")
    shop.sql("INSERT INTO {0} SELECT * FROM {0} LIMIT 1", "raw")
    found = shop.look()
    assert any("in a form that only Spark reads" in note for note in found.notes), found.notes
    monkeypatch.setitem(sys.modules, "fastavro", None)
    found = shop.look()
    assert any('pip install "crkafka[iceberg]"' in note for note in found.notes), found.notes


def test_metadata_that_is_zipped_is_read(spark: SparkSession, tmp_path: Path) -> None:
    shop = IcebergShop(spark, tmp_path, {"name": "raw"})
    shop.land(1)
    shop.sql("ALTER TABLE {} SET TBLPROPERTIES ('write.metadata.compression-codec' = 'gzip')", "raw")
    shop.land(1)
    assert any(".gz." in f.name for f in (tmp_path / "raw" / "metadata").iterdir())
    assert shop.found() == []
