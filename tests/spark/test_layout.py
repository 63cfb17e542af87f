"""How tables that Spark writes are laid out: by no checkpoint, by declared columns, in a catalog, compacted (SPEC K6)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as Lake
from pyspark.errors import UnsupportedOperationException
from pyspark.sql import DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from crkafka_core.model.errors import ConfigError, LeaseHeld, LeaseLost, Refused
from crkafka_core.model.rows import Table
from crkafka_core.plane import leases, permits
from crkafka_core.plane import tables as plane_tables
from crkafka_core.spark import formats, iceberg_catalog, tables
from crkafka_core.spark import maintain as maintaining
from crkafka_core.spark.delta_table import DeltaTable
from crkafka_core.spark.names import CHECKPOINT
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore

pytestmark = pytest.mark.spark

SHAPE = """
MORE = []


def parity(rows):
    return rows.selectExpr("crkafka_checkpoint", "partition", "offset", "offset % 2 AS odd", *MORE)
"""


@pytest.fixture
def shop(program: Callable[[str, str], Any]) -> Any:
    return program("parities", SHAPE)


def made(folder: Path, **keys: Any) -> Landing:
    table = {"name": "orders", "format": "delta", "path": str(folder / "orders"), "shape": "parities:parity", **keys}
    return Landing(MemoryStore(), folder, partitions=2, tables=[{k: v for k, v in table.items() if v is not None}])


def rows_in(spark: SparkSession, landing: Landing) -> list[tuple[int, int, int]]:
    found = tables.read_table(spark, landing.region, "orders").select(CHECKPOINT, "partition", "offset")
    return sorted((r[CHECKPOINT], r["partition"], r["offset"]) for r in found.collect())


def expected(*ends: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """Of (checkpoint, first offset, next offset), in two partitions."""
    return sorted((c, p, o) for c, start, stop in ends for p in range(2) for o in range(start, stop))


def advanced(spark: SparkSession, landing: Landing, times: int) -> None:
    for _ in range(times):
        landing.land(4)
        tables.advance(spark, landing.region, "orders")


def test_no_partition_per_checkpoint_and_a_rewind_takes_out_exactly_its_rows_also_after_maintain(
    spark: SparkSession, tmp_path: Path, shop: Any
) -> None:
    landing = made(tmp_path)
    advanced(spark, landing, 4)
    path = str(tmp_path / "orders")
    assert Lake(path).metadata().partition_columns == []
    stats = Lake(path).get_add_actions(flatten=True)
    assert set(stats[f"min.{CHECKPOINT}"].to_pylist()) == {1, 2, 3, 4}
    version, files = Lake(path).version(), len(Lake(path).file_uris())
    done = tables.maintain(spark, landing.region, "orders")
    assert (done.merged, done.into) == (files, 1) and Lake(path).version() > version
    assert tables.look(spark, landing.region, "orders").clean
    landing.rewind(2)
    tables.fence_all(spark, landing.region)
    assert rows_in(spark, landing) == expected((1, 0, 4), (2, 4, 8))
    landing.land(4)
    tables.advance(spark, landing.region, "orders")
    tables.rewrite(spark, landing.region, "orders", [1])
    assert rows_in(spark, landing) == expected((1, 0, 4), (2, 4, 8), (5, 8, 12))
    assert tables.look(spark, landing.region, "orders").clean


def test_a_commit_that_a_host_makes_while_one_looks_is_nobody_elses(
    spark: SparkSession, tmp_path: Path, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told as foreign, or that the control plane went back: who believed that rewound the region."""
    landing = made(tmp_path)
    advanced(spark, landing, 1)
    real, looked = formats.table_of, []

    def late(*given: Any) -> Any:
        form = real(*given)
        looked.append(form)
        if len(looked) < 3:  # after SQL was read, before the table is
            advanced(spark, landing, 1)
        return form

    monkeypatch.setattr("crkafka_core.spark.audit.table_of", late)
    assert tables.look(spark, landing.region, "orders").clean
    assert len(looked) == 3


def test_a_table_that_is_partitioned_by_checkpoint_goes_on_so(
    spark: SparkSession, tmp_path: Path, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an older crkafka has made it."""
    landing = made(tmp_path)

    class Older(DeltaTable):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            self.partition_by = (CHECKPOINT,)

    with monkeypatch.context() as patch:
        patch.setattr(formats, "DeltaTable", Older)
        advanced(spark, landing, 1)
    advanced(spark, landing, 2)
    assert Lake(str(tmp_path / "orders")).metadata().partition_columns == [CHECKPOINT]
    landing.rewind(2)
    tables.fence_all(spark, landing.region)
    assert rows_in(spark, landing) == expected((1, 0, 4), (2, 4, 8))


@pytest.mark.parametrize("fenced_first", [pytest.param(False, marks=pytest.mark.soak), True])
def test_a_table_is_partitioned_as_it_is_declared(
    spark: SparkSession, tmp_path: Path, shop: Any, fenced_first: bool
) -> None:
    landing = made(tmp_path, partition_by=["odd"])
    start = 0
    if fenced_first:  # the table is made by the fence then, which knows no columns
        landing.land(4)
        landing.rewind(0)
        tables.fence_all(spark, landing.region)
        start = 1
    advanced(spark, landing, 3)
    assert Lake(str(tmp_path / "orders")).metadata().partition_columns == ["odd"]
    landing.rewind(start + 2)
    tables.fence_all(spark, landing.region)
    assert rows_in(spark, landing) == expected((start + 1, 0, 4), (start + 2, 4, 8))
    other = made(tmp_path, partition_by=["partition"]).region.config
    with pytest.raises(ConfigError, match=r"is partitioned by odd, and is declared with partition_by: \[partition\]"):
        object.__setattr__(landing.region, "config", other)
        advanced(spark, landing, 1)


def test_a_table_with_rows_is_not_partitioned_later_and_follows_a_rewind_all_the_same(
    spark: SparkSession, tmp_path: Path, shop: Any
) -> None:
    """It was written on as it was, in silence, until a reset: that waited for a fence which was refused."""
    landing = made(tmp_path)
    advanced(spark, landing, 2)
    changed = replace(landing.region, config=made(tmp_path, partition_by=["odd"]).config)
    landing.land(4)
    with pytest.raises(ConfigError, match=r"is partitioned by nothing, and is declared with partition_by: \[odd\]"):
        tables.advance(spark, changed, "orders")
    landing.rewind(1)
    tables.fence_all(spark, changed)
    assert rows_in(spark, landing) == expected((1, 0, 4))


def test_a_column_that_is_not_there_is_named_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, shop: Any
) -> None:
    landing = made(tmp_path, partition_by=["day"])
    with pytest.raises(ConfigError, match="no such column; they have crkafka_checkpoint, partition, offset, odd"):
        advanced(spark, landing, 1)
    assert not (tmp_path / "orders").exists()


@pytest.mark.soak
def test_a_shape_may_give_more_columns_fewer_and_in_another_order_but_none_of_another_type(
    spark: SparkSession, tmp_path: Path, shop: Any
) -> None:
    landing = made(tmp_path)
    advanced(spark, landing, 1)
    shop.MORE.append("CAST(key AS STRING) AS who")
    advanced(spark, landing, 1)
    shop.MORE[:] = ["'x' AS extra"]
    advanced(spark, landing, 1)
    found = tables.read_table(spark, landing.region, "orders")
    assert found.columns == [CHECKPOINT, "partition", "offset", "odd", "who", "extra"]
    filled = found.groupBy(CHECKPOINT).agg(F.count("who"), F.count("extra")).orderBy(CHECKPOINT).collect()
    assert [tuple(r) for r in filled] == [(1, 0, 0), (2, 6, 0), (3, 0, 8)]
    shop.MORE[:] = ["5 AS extra"]
    with pytest.raises(ConfigError, match="Column extra of table orders is string and would become int"):
        advanced(spark, landing, 1)


@pytest.mark.soak
def test_a_table_may_be_in_a_catalog_by_its_name(spark: SparkSession, tmp_path: Path, shop: Any) -> None:
    landing = made(tmp_path, path="spark_catalog.default.orders_in_catalog")
    try:
        advanced(spark, landing, 2)
        shop.MORE.append("1 AS more")
        advanced(spark, landing, 1)
        assert spark.read.table("orders_in_catalog").count() == 24
        tables.maintain(spark, landing.region, "orders")
        landing.rewind(1)
        tables.fence_all(spark, landing.region)
        assert rows_in(spark, landing) == expected((1, 0, 4))
        assert tables.look(spark, landing.region, "orders").clean
    finally:
        spark.sql("DROP TABLE IF EXISTS spark_catalog.default.orders_in_catalog")


def test_a_table_of_a_catalog_that_is_there_is_written_without_a_replace_table(
    spark: SparkSession, tmp_path: Path, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which Unity Catalog refuses of an external table."""
    landing = made(tmp_path, path="spark_catalog.default.orders_external", options={"usermetadata": "theirs"})
    spark.sql(
        f"CREATE TABLE spark_catalog.default.orders_external ({CHECKPOINT} BIGINT) USING delta "
        f"TBLPROPERTIES ('team' = 'shop') LOCATION '{tmp_path / 'external'}'"
    )

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a REPLACE TABLE")

    try:
        monkeypatch.setattr(DataFrameWriter, "saveAsTable", refuse)
        advanced(spark, landing, 2)
        shop.MORE.append("1 AS more")
        advanced(spark, landing, 1)
        shop.MORE.clear()
        advanced(spark, landing, 1)
        landing.rewind(2)
        tables.fence_all(spark, landing.region)
        assert rows_in(spark, landing) == expected((1, 0, 4), (2, 4, 8))
        advanced(spark, landing, 1)
        assert rows_in(spark, landing) == expected((1, 0, 4), (2, 4, 8), (5, 8, 12))
        landing.land(1)  # no row of it has come, when a reset takes it back
        landing.rewind(5)
        tables.fence_all(spark, landing.region)
        assert rows_in(spark, landing) == expected((1, 0, 4), (2, 4, 8), (5, 8, 12))
        assert tables.look(spark, landing.region, "orders").clean
        assert Lake(str(tmp_path / "external")).metadata().configuration == {"team": "shop"}
    finally:
        spark.sql("DROP TABLE IF EXISTS spark_catalog.default.orders_external")


def test_maintain_of_a_table_that_its_catalog_manages_says_so(
    spark: SparkSession, tmp_path: Path, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Delta refuses it in Unity Catalog: `maintain` of all tables ended there, and with a trace of Java's."""
    landing = made(tmp_path)
    advanced(spark, landing, 1)
    sql = SparkSession.sql

    def refuse(self: SparkSession, query: str, *more: Any, **named: Any) -> Any:
        if query.startswith("OPTIMIZE"):
            text = "is blocked by the catalog for Catalog-Managed tables."
            raise UnsupportedOperationException(f"[DELTA_UNSUPPORTED_CATALOG_MANAGED_TABLE_OPERATION] OPTIMIZE {text}")
        return sql(self, query, *more, **named)

    monkeypatch.setattr(SparkSession, "sql", refuse)
    with pytest.raises(Refused, match="Table orders is managed by its catalog"):
        tables.maintain(spark, landing.region, "orders")


KEYED: dict[str, Any] = {"mode": "upsert", "keys": ["partition", "offset"]}


@pytest.mark.parametrize(
    ("path", "keys"),
    [pytest.param("my-lake.db.orders", {}, marks=pytest.mark.soak), ("my-own.db.orders", KEYED), ("or-ders", {})],
)
def test_names_may_have_hyphens(
    spark: SparkSession, tmp_path: Path, shop: Any, path: str, keys: dict[str, Any]
) -> None:
    """Of a catalog no table was written then, and one at such a path not maintained."""
    for key, value in {"type": "hadoop", "warehouse": str(tmp_path / "lake"), "cache-enabled": "false"}.items():
        spark.conf.set(f"spark.sql.catalog.{path.partition('.')[0]}.{key}", value)
    spark.conf.set(f"spark.sql.catalog.{path.partition('.')[0]}", "org.apache.iceberg.spark.SparkCatalog")
    landing = made(tmp_path, format="iceberg", path=path if "." in path else str(tmp_path / path), **keys)
    advanced(spark, landing, 2)
    tables.maintain(spark, landing.region, "orders")
    landing.rewind(1)
    tables.fence_all(spark, landing.region)
    assert rows_in(spark, landing) == expected((1, 0, 4))
    assert tables.look(spark, landing.region, "orders").clean


def test_a_partition_by_time_takes_a_session_in_utc(spark: SparkSession, tmp_path: Path, shop: Any) -> None:
    """An hour of the autumn became the one before it."""
    shop.MORE.append("timestamp_seconds(1762065000 + offset) AS at")  # 1:30 in New York, for the second time that night
    landing = made(tmp_path, partition_by=["at"])
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        with pytest.raises(ConfigError, match="an hour of each autumn would be taken for another"):
            advanced(spark, landing, 1)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    tables.advance(spark, landing.region, "orders")
    found = tables.read_table(spark, landing.region, "orders")
    assert {r[0] for r in found.selectExpr("unix_seconds(at) - offset").collect()} == {1762065000}


@pytest.mark.parametrize("keys", [pytest.param({}, marks=pytest.mark.soak), KEYED])
def test_a_table_that_is_there_takes_its_first_column_of_times_without_a_zone(
    spark: SparkSession, tmp_path: Path, shop: Any, keys: dict[str, Any]
) -> None:
    """Delta asks for a feature of the table then: a table by key could not be written at all."""
    landing = made(tmp_path, **keys)
    advanced(spark, landing, 1)
    shop.MORE.append("named_struct('at', CAST(timestamp_seconds(offset) AS TIMESTAMP_NTZ)) AS within")
    advanced(spark, landing, 2)
    landing.rewind(2)
    tables.fence_all(spark, landing.region)
    advanced(spark, landing, 1)
    assert rows_in(spark, landing) == expected((1, 0, 4), (2, 4, 8), (4, 8, 12))
    found = tables.read_table(spark, landing.region, "orders")
    assert found.where("within.at = TIMESTAMP_NTZ'1970-01-01 00:00:05'").count() == 2
    assert tables.look(spark, landing.region, "orders").clean


def test_a_late_first_write_is_refused_by_a_table_of_a_catalog_that_the_fence_has_made(
    spark: SparkSession, tmp_path: Path, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = made(tmp_path, path="spark_catalog.default.orders_fenced")
    landing.land(4), landing.land(4)
    replace, turn = DeltaTable.replace, []

    def late(self: DeltaTable, *given: Any) -> None:
        if not turn:
            turn.append(threading.get_ident())
            landing.rewind(1)
            tables.fence_all(spark, landing.region)
        replace(self, *given)

    monkeypatch.setattr(DeltaTable, "replace", late)
    try:
        with pytest.raises(LeaseLost):
            tables.advance(spark, landing.region, "orders")
        assert tables.read_table(spark, landing.region, "orders").count() == 0
        tables.advance(spark, landing.region, "orders")
        assert rows_in(spark, landing) == expected((1, 0, 4))
    finally:
        spark.sql("DROP TABLE IF EXISTS spark_catalog.default.orders_fenced")


@pytest.mark.soak
def test_maintain_runs_beside_a_writer(spark: SparkSession, tmp_path: Path, shop: Any) -> None:
    landing = made(tmp_path)
    advanced(spark, landing, 3)
    errors: list[BaseException] = []

    def feed() -> None:
        try:
            advanced(spark, landing, 4)
        except BaseException as error:
            errors.append(error)

    feeder = threading.Thread(target=feed)
    feeder.start()
    while feeder.is_alive():
        tables.maintain(spark, landing.region, "orders")
    feeder.join()
    assert not errors, [str(getattr(e, "java_exception", e)) for e in errors]
    assert rows_in(spark, landing) == expected(*((c, 4 * c - 4, 4 * c) for c in range(1, 8)))
    assert tables.look(spark, landing.region, "orders").clean


@pytest.mark.parametrize(
    ("format", "path", "may"),
    [
        ("delta", "/tables/orders", False),
        ("delta", "hdfs://name/tables/orders", True),
        ("iceberg", "main.bronze.orders", True),
        ("delta", "main.bronze.orders", False),
        ("delta", "s3://lake/orders", False),
        ("iceberg", "s3a://lake/orders", False),
    ],
)
def test_where_two_drivers_commits_are_not_safe_maintain_takes_its_turn(format: str, path: str, may: bool) -> None:
    table = Table(region="orders", name="orders", format=format, path=path)
    assert maintaining._others_may_commit(table) is may


def test_maintain_in_an_object_store_waits_for_the_writer(
    spark: SparkSession, tmp_path: Path, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of a compaction could replace that of the host beside it, whose rows were gone."""
    landing = made(tmp_path)
    advanced(spark, landing, 2)
    monkeypatch.setattr(maintaining, "_others_may_commit", lambda _: False)
    monkeypatch.setattr("crkafka_core.lake.compact.PATIENCE", 0.3)
    plane = landing.region.plane
    lease = plane.do(lambda tx: permits.take(tx, "orders", holder="somebody", token="t"))
    with pytest.raises(LeaseHeld, match="somebody"):
        tables.maintain(spark, landing.region, "orders")
    plane.do(lambda tx: leases.release(tx, lease))
    seen: list[int] = []

    def compact(self: DeltaTable) -> tuple[int, int]:
        seen.append(plane.read(lambda reader, row: len(leases.held(reader, plane_tables.kind_of_lease("orders")))))
        return 0, 0

    monkeypatch.setattr(DeltaTable, "compact", compact)
    tables.maintain(spark, landing.region, "orders")
    assert seen == [1], "its own"


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_table_that_is_not_there_is_not_maintained(
    spark: SparkSession, tmp_path: Path, shop: Any, format: str
) -> None:
    """The error was that Spark does not find it."""
    landing = made(tmp_path, format=format)
    advanced(spark, landing, 1)
    (tmp_path / "orders").rename(tmp_path / "away")
    with pytest.raises(Refused, match=r"is not there, and version \d+ of it was acknowledged"):
        tables.maintain(spark, landing.region, "orders")
    assert not (tmp_path / "orders").exists()


def iceberg(folder: Path) -> Landing:
    return made(folder, format="iceberg")


def ice(spark: SparkSession, folder: Path, of: str) -> Any:
    return spark.table(f"{iceberg_catalog.named(spark, str(folder / 'orders'))}.{of}")


def test_iceberg_has_no_partition_per_checkpoint_and_a_rewind_takes_out_exactly_its_rows_also_after_maintain(
    spark: SparkSession, tmp_path: Path, shop: Any
) -> None:
    landing = iceberg(tmp_path)
    advanced(spark, landing, 6)
    assert "partition" not in ice(spark, tmp_path, "files").columns
    before = ice(spark, tmp_path, "files").count()
    done = tables.maintain(spark, landing.region, "orders")
    assert (done.merged, done.into, ice(spark, tmp_path, "files").count()) == (before, 1, 1)
    assert tables.look(spark, landing.region, "orders").clean
    landing.rewind(4)
    tables.fence_all(spark, landing.region)
    kept = [(i + 1, 4 * i, 4 * i + 4) for i in range(4)]
    assert rows_in(spark, landing) == expected(*kept)
    landing.land(4)
    tables.advance(spark, landing.region, "orders")
    tables.rewrite(spark, landing.region, "orders", [2])
    assert rows_in(spark, landing) == expected(*kept, (7, 16, 20))
    assert tables.look(spark, landing.region, "orders").clean


def test_an_iceberg_table_whose_passes_have_several_checkpoints_is_rewound_into_the_middle_of_one(
    spark: SparkSession, tmp_path: Path, shop: Any
) -> None:
    landing = iceberg(tmp_path)
    for _ in range(2):
        for _ in range(3):
            landing.land(2)
        tables.advance(spark, landing.region, "orders")
    bounds = ice(spark, tmp_path, "files").select(f"readable_metrics.{CHECKPOINT}.*")
    assert {(r["lower_bound"], r["upper_bound"]) for r in bounds.collect()} & {(1, 3), (4, 6)}
    landing.rewind(5)
    tables.fence_all(spark, landing.region)
    assert rows_in(spark, landing) == expected(*((i + 1, 2 * i, 2 * i + 2) for i in range(5)))
    name = iceberg_catalog.named(spark, str(tmp_path / "orders"))
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    spark.sql(f"DELETE FROM {name} WHERE `offset` = 3")
    assert tables.look(spark, landing.region, "orders").foreign == 1
    landing.land(2)
    tables.advance(spark, landing.region, "orders")
    tables.rewrite(spark, landing.region, "orders", [2])
    rows = [*((i + 1, 2 * i, 2 * i + 2) for i in range(5)), (7, 10, 12)]
    assert rows_in(spark, landing) == expected(*rows)


def test_an_iceberg_table_that_is_partitioned_by_checkpoint_goes_on_so(
    spark: SparkSession, tmp_path: Path, shop: Any
) -> None:
    landing = iceberg(tmp_path)
    name = iceberg_catalog.named(spark, str(tmp_path / "orders"))
    advanced(spark, landing, 1)
    java: Any = getattr(spark, "_jvm")  # noqa: B009
    util, session = java.org.apache.iceberg.spark.Spark3Util, getattr(spark, "_jsparkSession")  # noqa: B009
    util.loadIcebergTable(session, name).updateSpec().addField(CHECKPOINT).commit()
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.spark.fanout.enabled' = 'true')")
    advanced(spark, landing, 2)
    assert ice(spark, tmp_path, "partitions").count() == 3
    landing.rewind(2)
    tables.fence_all(spark, landing.region)
    advanced(spark, landing, 1)
    assert rows_in(spark, landing) == expected((1, 0, 4), (2, 4, 8), (4, 8, 12))
    assert tables.look(spark, landing.region, "orders").clean
