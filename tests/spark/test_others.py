"""What others did to a table is told, also behind commits of ours; so is a lost file, and an older copy (SPEC K6)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from crkafka_core.lake.audit import TableAudit
from crkafka_core.model.errors import Refused
from crkafka_core.model.offsets import TP
from crkafka_core.spark import erasing, iceberg_catalog, tables
from crkafka_core.verify import in_tables
from crkafka_core.verify.verdict import Findings
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore
from tests.tables.conftest import Lake

pytestmark = pytest.mark.spark
SHAPES = """
def tens(rows):
    return rows.where("partition = 0").selectExpr("crkafka_checkpoint", "offset", "offset * 10 AS tens")
"""


class Shop:
    """A region with one shaped table, of which nobody but its shape knows how many rows there have to be."""

    def __init__(self, spark: SparkSession, folder: Path, format: str) -> None:
        self.spark, self.path = spark, folder / "tables" / "tens"
        declared = {"name": "tens", "format": format, "path": str(self.path), "shape": "others_shapes:tens"}
        self.landing = Landing(MemoryStore(), folder, partitions=2, tables=[declared])
        self.format = format

    @property
    def name(self) -> str:
        """As SQL has it."""
        return f"delta.`{self.path}`" if self.format == "delta" else iceberg_catalog.named(self.spark, str(self.path))

    def advance(self, times: int = 1) -> None:
        for _ in range(times):
            self.landing.land(4)
            tables.advance(self.spark, self.landing.region, "tens")

    def look(self) -> TableAudit:
        return tables.look(self.spark, self.landing.region, "tens")

    def mend(self) -> None:
        tables.mend(self.spark, self.landing.region, "tens")

    def harm(self, what: str) -> None:
        """Of a row of checkpoint 2, by somebody who knows nothing of us. Iceberg's UPDATE would need its extensions."""
        if what == "deleted":
            self.spark.sql(f"DELETE FROM {self.name} WHERE offset = 5").collect()
        elif self.format == "delta":
            self.spark.sql(f"UPDATE {self.name} SET tens = -1 WHERE offset = 5").collect()
        else:
            rows = self.spark.table(self.name).where("crkafka_checkpoint = 2").collect()
            changed = [(c, o, -1 if o == 5 else tens) for c, o, tens in rows]
            frame = self.spark.createDataFrame(changed, self.spark.table(self.name).schema)
            frame.writeTo(self.name).overwrite(F.expr("crkafka_checkpoint = 2"))

    def rows(self) -> list[tuple[int, int, int]]:
        return sorted(tuple(row) for row in tables.read_table(self.spark, self.landing.region, "tens").collect())

    def right(self, *checkpoints: int) -> list[tuple[int, int, int]]:
        return [(c, o, 10 * o) for c in checkpoints for o in range(4 * c - 4, 4 * c)]


@pytest.fixture(params=["delta", "iceberg"])
def shop(
    spark: SparkSession, tmp_path: Path, program: Callable[[str, str], Any], request: pytest.FixtureRequest
) -> Shop:
    program("others_shapes", SHAPES)
    return Shop(spark, tmp_path, request.param)


def verified(shop: Shop) -> list[str]:
    found = Findings()
    in_tables.look(shop.landing.region, found)
    return list(map(str, found.kept))


@pytest.mark.parametrize("what", ["changed", pytest.param("deleted", marks=pytest.mark.soak)])
def test_what_others_did_is_told_also_behind_commits_of_ours(shop: Shop, what: str) -> None:
    shop.advance(3)
    assert shop.look().clean
    shop.harm(what)
    before = shop.look()
    assert (before.foreign, before.changed) == (1, (2,))
    shop.advance(2)
    assert shop.look() == before
    if shop.format == "delta":
        assert any("1 commit of somebody else" in each for each in verified(shop))
    shop.mend()
    assert shop.rows() == shop.right(1, 2, 3, 4, 5)
    assert shop.look().clean
    assert not verified(shop)
    shop.advance()
    assert shop.look().clean


def test_a_rollback_of_iceberg_is_told_also_behind_commits_of_ours(
    spark: SparkSession, tmp_path: Path, program: Callable[[str, str], Any]
) -> None:
    program("others_shapes", SHAPES)
    shop = Shop(spark, tmp_path, "iceberg")
    shop.advance(2)
    second = spark.table(f"{shop.name}.refs").where("name = 'main'").collect()[0]["snapshot_id"]
    shop.advance()
    catalog, _, table = shop.name.partition(".")
    given = f"table => '{table.strip('`')}', snapshot_id => {second}"
    spark.sql(f"CALL {catalog}.system.set_current_snapshot({given})").collect()
    before = shop.look()
    assert (before.foreign, before.changed) == (1, (3,))
    shop.advance()
    assert (shop.look(), shop.rows()) == (before, shop.right(1, 2, 4))
    shop.mend()
    assert (shop.look().clean, shop.rows()) == (True, shop.right(1, 2, 3, 4))


def test_an_older_copy_is_refused(shop: Shop, tmp_path: Path) -> None:
    shop.advance(2)
    shutil.copytree(shop.path, tmp_path / "older")
    shop.advance(2)
    shop.path.rename(tmp_path / "newer")
    shutil.copytree(tmp_path / "older", shop.path)
    with pytest.raises(Refused, match="acknowledged"):
        shop.look()
    with pytest.raises(Refused, match="acknowledged"):
        shop.advance()
    shop.landing.rewind(1)
    with pytest.raises(Refused, match="acknowledged"):
        tables.fence(shop.spark, shop.landing.region, "tens")
    shutil.rmtree(shop.path)
    (tmp_path / "newer").rename(shop.path)
    tables.fence(shop.spark, shop.landing.region, "tens")
    assert shop.rows() == shop.right(1)


def test_a_data_file_that_is_lost_is_told_and_mended(shop: Shop) -> None:
    shop.advance(3)
    files = shop.spark.table(f"{shop.name}.files").select("file_path").collect() if shop.format == "iceberg" else []
    paths = [r[0] for r in files] or DeltaTable(str(shop.path)).file_uris()
    Path(sorted(paths)[0].removeprefix("file:")).unlink()
    assert len(shop.look().miscounted) == 1
    shop.mend()
    assert shop.rows() == shop.right(1, 2, 3)
    assert shop.look().clean


@pytest.mark.parametrize("shop", ["delta", pytest.param("iceberg", marks=pytest.mark.soak)], indirect=True)
def test_a_joined_file_that_is_lost_is_told_and_mended(shop: Shop) -> None:
    """Its rows can only be counted by reading them."""
    shop.advance(6)
    tables.maintain(shop.spark, shop.landing.region, "tens")
    files = shop.spark.table(f"{shop.name}.files").select("file_path").collect() if shop.format == "iceberg" else []
    (path,) = [r[0] for r in files] or DeltaTable(str(shop.path)).file_uris()
    shop.advance()
    Path(path.removeprefix("file:")).unlink()
    assert len(shop.look().lost) == 1
    assert len(shop.look().miscounted) == 6
    shop.mend()
    assert shop.rows() == shop.right(*range(1, 8))
    assert shop.look().clean


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
    assert (raw.look().clean, values(spark, raw)) == (True, raw.truth())
    raw.land(), tables.advance(spark, raw.region, "bronze")
    assert (raw.look().clean, values(spark, raw)) == (True, raw.truth())


@PLAIN_IS_LONG
def test_of_a_raw_table_a_persons_delete_that_is_noted_is_not_told(spark: SparkSession, raw: Lake) -> None:
    spark.sql(f"DELETE FROM {named(spark, raw)} WHERE partition = 0 AND offset = 7").collect()
    assert not raw.look().clean
    erasing.erase(lambda: spark, raw.region, {TP("orders", 0): [7]})
    raw.land(), tables.advance(spark, raw.region, "bronze")
    assert (raw.look().clean, values(spark, raw)) == (True, raw.truth())


@VECTORS_ARE_LONG
def test_of_a_raw_table_a_lost_file_is_told_and_mended(spark: SparkSession, raw: Lake) -> None:
    gone = sorted(raw.path.rglob("*/*/*.parquet"))[0]
    gone.unlink()
    raw.land(), tables.advance(spark, raw.region, "bronze")
    assert raw.look().lost == (str(gone.relative_to(raw.path)),)
    tables.mend(spark, raw.region, "bronze")
    assert (raw.look().clean, values(spark, raw)) == (True, raw.truth())


@PLAIN_IS_LONG
def test_what_a_user_of_spark_does_to_a_raw_table_stays_harmless(spark: SparkSession, raw: Lake) -> None:
    name = named(spark, raw)
    done = [f"ALTER TABLE {name} ADD COLUMN note STRING"]
    done += [f"OPTIMIZE {name}", f"REORG TABLE {name} APPLY (PURGE)", f"VACUUM {name}"]
    for statement in done:
        spark.sql(statement).collect()
        raw.land(), tables.advance(spark, raw.region, "bronze")
    raw.compact()
    raw.land(), tables.advance(spark, raw.region, "bronze")
    assert (raw.look().clean, values(spark, raw)) == (True, raw.truth())


@VECTORS_ARE_LONG
def test_of_a_raw_table_a_renamed_column_goes_on_in_its_files(spark: SparkSession, raw: Lake) -> None:
    name = named(spark, raw)
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')").collect()
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN offset TO place").collect()
    raw.land(), tables.advance(spark, raw.region, "bronze")
    assert (raw.look().clean, values(spark, raw)) == (True, raw.truth())
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
