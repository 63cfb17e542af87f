"""An Iceberg table in a catalog that pyiceberg reaches: one commit by `commit_table`, refused on a stale look (SPEC K6)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from moto import mock_aws
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import StaticTable

from crkafka_core.config.catalogs import without_spark
from crkafka_core.lake import audit, road
from crkafka_core.lake.iceberg import catalog as catalogs
from crkafka_core.lake.iceberg import expiry
from crkafka_core.lake.iceberg.catalog import CatalogLog
from crkafka_core.lake.port import CannotCommit, Change, Moved, Part, TableUnavailable, Unknown
from crkafka_core.verify import in_tables
from crkafka_core.verify.verdict import Findings
from tests.lake.iceberg.orders import SCHEMA, UID, Orders, stamp
from tests.lake.iceberg.rest import served
from tests.lake.rig import pool
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore

NAME = "bronze.orders"


class InCatalog(Orders):
    def __init__(self, catalog: Catalog, *parts: Part) -> None:
        self.catalog, self.log = catalog, CatalogLog(catalog, NAME)  # type: ignore[assignment]
        self.now = self.log.create(SCHEMA, parts, stamp(1), {})
        self.folder = Path(self.log.storage.url)

    def rows(self) -> list[Any]:
        return sorted(self.catalog.load_table(NAME).scan().to_arrow().column("offset").to_pylist())

    @property
    def metadata(self) -> Path:
        return Path(self.catalog.load_table(NAME).metadata_location.removeprefix("file://"))


@pytest.fixture(params=["sql", "rest", "glue"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    if request.param == "glue":
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "testing")
        with mock_aws():
            yield load_catalog("glue", type="glue", warehouse=f"file://{tmp_path}/lake", **{"glue.region": "eu-west-1"})
        return
    at = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
    sql = load_catalog("sql", type="sql", **at)
    if request.param == "sql":
        yield sql
        return
    with served(sql) as address:
        yield load_catalog("rest", type="rest", uri=address)


def test_commits_are_read_by_who_asks_the_catalog(catalog: Catalog) -> None:
    log = CatalogLog(catalog, NAME)
    assert log.look() is None
    with pytest.raises(TableUnavailable, match="not in its catalog"):
        log.storage  # noqa: B018
    orders = InCatalog(catalog, Part("offset", "bucket", 4))
    assert (orders.now.version, orders.now.stamp(UID, "orders")) == (1, stamp(1, version=1))
    assert list(orders.now.parts) == [Part("offset", "bucket", 4)]
    first, second = orders.file([1], offset_bucket=0), orders.file([2, 3], offset_bucket=1)
    orders.commit([first, second], permit=2)
    assert orders.rows() == [1, 2, 3]
    orders.now.commit(stamp(3), Change(marks={f: [0] for f in orders.now.files() if f.path == second.path}))
    assert orders.rows() == [1, 3]
    orders.now = orders.log.look() or orders.now
    orders.commit([orders.file([1, 3], offset_bucket=2)], [*orders.now.files()], permit=4, changes_rows=False)
    assert orders.rows() == [1, 3]
    summaries = [snapshot.summary for snapshot in catalog.load_table(NAME).metadata.snapshots]
    assert [about.operation.value for about in summaries if about] == ["append", "append", "delete", "replace"]
    assert orders.now.stamp(UID, "orders") == stamp(4, version=4)


def test_a_stale_look_is_refused_also_of_a_table_made_anew(catalog: Catalog) -> None:
    orders = InCatalog(catalog)
    stale = CatalogLog(catalog, NAME).look()
    assert stale is not None
    orders.commit([orders.file([1])])
    before = {file.name for file in (orders.folder / "metadata").glob("*.avro")}
    with pytest.raises(Moved):
        stale.commit(stamp(3), Change([orders.file([2])]))
    assert {file.name for file in (orders.folder / "metadata").glob("*.avro")} == before
    with pytest.raises(Moved):
        orders.log.create(SCHEMA, [], stamp(4), {})
    mine = orders.now
    table = catalog.load_table(NAME)
    table.append(table.scan().to_arrow().slice(0, 1))
    with pytest.raises(Moved):
        mine.commit(stamp(5))
    now = orders.log.look()
    assert now is not None
    assert [(e.stamp, e.changes_rows, e.touched) for e in now.since(mine.version) or ()] == [(None, True, (1, 1))]
    catalog.drop_table(NAME)
    anew = CatalogLog(catalog, NAME)
    anew.create(SCHEMA, [], stamp(1), {})
    with pytest.raises(Moved):
        now.commit(stamp(6))


def test_snapshots_are_forgotten_and_files_deleted_by_age(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "_MOST", 10)
    monkeypatch.setattr(expiry, "_LEFT", 7)
    orders = InCatalog(catalog)
    first = orders.file([1])
    kept = orders.commit([first])
    orders.commit([orders.file([2])], orders.named(first))
    for _ in range(12):
        orders.commit(keep=lambda: [kept.version])
    assert 8 <= len(catalog.load_table(NAME).metadata.snapshots) <= 11
    assert orders.now.since(2) is None
    assert [entry.version for entry in orders.now.since(10) or ()] == list(range(11, 16))
    for file in orders.folder.rglob("*.*"):
        os.utime(file, (time.time() - 800_000,) * 2)
    assert orders.log.expire([]) > 0
    assert orders.rows() == [2]
    assert len([*orders.folder.glob("metadata/*.metadata.json")]) == 1
    assert orders.log.look(str(kept.version)) is not None, "it is younger"


def test_a_commit_without_an_answer_is_unknown(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = InCatalog(catalog)
    real = catalog.commit_table

    def lost(*given: Any) -> Any:
        real(*given)
        raise ConnectionError("the line is dead")

    monkeypatch.setattr(catalog, "commit_table", lost)
    with pytest.raises(Unknown, match="line is dead"):
        orders.commit([orders.file([1])], permit=7)
    monkeypatch.setattr(catalog, "load_table", lost)
    with pytest.raises(TableUnavailable):
        orders.log.look()
    monkeypatch.undo()
    assert orders.rows() == [1]
    found = orders.log.look()
    assert found is not None
    assert found.stamp(UID, "orders") == stamp(7, version=2)


def test_a_commit_that_is_refused_for_its_own_first_try_keeps_its_manifests(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client tries again by itself after an answer that got lost, as boto3 does for Glue."""
    orders = InCatalog(catalog)
    real = catalog.commit_table

    def twice(*given: Any) -> Any:
        real(*given)
        return real(*given)

    monkeypatch.setattr(catalog, "commit_table", twice)
    with pytest.raises(Unknown):
        orders.commit([orders.file([1])], permit=7)
    assert orders.rows() == [1]
    found = orders.log.look()
    assert found is not None and found.stamp(UID, "orders") == stamp(7, version=2)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"type": "glue", "client.region": "eu-1"}, {"type": "glue", "glue.region": "eu-1", "s3.region": "eu-1"}),
        (
            {"catalog-impl": "org.apache.iceberg.rest.RESTCatalog", "uri": "http://r", "credential": "a:b"},
            {"type": "rest", "uri": "http://r", "credential": "a:b"},
        ),
        (
            {"type": "jdbc", "uri": "jdbc:postgresql://h/db", "jdbc.user": "u", "jdbc.password": "p@/"},
            {"type": "sql", "uri": "postgresql+psycopg://u:p%40%2F@h/db"},
        ),
    ],
)
def test_the_settings_of_spark_open_the_same_catalog(settings: dict[str, str], expected: dict[str, str]) -> None:
    conf = {f"spark.sql.catalog.lake.{key}": value for key, value in settings.items()}
    conf["spark.sql.catalog.lake"] = "org.apache.iceberg.spark.SparkCatalog"
    assert catalogs.properties("lake", conf, {}) == expected
    assert catalogs.properties("other", conf, {}) == {}
    assert without_spark("lake.bronze.orders", conf)


def test_the_storage_of_the_region_is_the_catalogs_unless_its_settings_say_otherwise() -> None:
    conf = {"spark.sql.catalog.lake.type": "rest", "spark.sql.catalog.lake.uri": "http://r"}
    conf["spark.sql.catalog.lake.s3.region"] = "eu-2"
    storage = {"endpoint": "minio:9000", "scheme": "http", "region": "eu-1", "secret_key": "k"}
    assert catalogs.properties("lake", conf, storage) == {
        "type": "rest",
        "uri": "http://r",
        "s3.endpoint": "http://minio:9000",
        "s3.region": "eu-2",
        "s3.secret-access-key": "k",
    }


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"type": "nessie", "uri": "http://n"}, "lake.bronze.orders"),
        ({"type": "hive", "uri": "thrift://h:9083"}, "lake.bronze.orders"),
        ({"type": "jdbc", "uri": "jdbc:oracle:thin:@h"}, "lake.bronze.orders"),
        ({"type": "hadoop", "warehouse": "hdfs://n/w"}, "lake.bronze.orders"),
        ({"type": "glue", "warehouse": "gs://b/w"}, "lake.bronze.orders"),
        ({"type": "rest", "uri": "http://r"}, "/tables/orders"),
        ({"type": "rest", "uri": "http://r"}, "other.bronze.orders"),
    ],
)
def test_a_table_in_a_catalog_that_only_spark_reaches_is_left_to_spark(settings: dict[str, str], path: str) -> None:
    assert not without_spark(path, {f"spark.sql.catalog.lake.{key}": value for key, value in settings.items()})


def test_a_catalog_whose_type_has_changed_since_is_refused_by_name() -> None:
    with pytest.raises(CannotCommit, match="lake is of type nessie"):
        catalogs.properties("lake", {"spark.sql.catalog.lake.type": "nessie"}, {})


def offsets(records: pa.RecordBatch) -> pa.RecordBatch:
    return records.select(["offset"])


@pytest.mark.parametrize("shape", [{}, {"shape": f"arrow:{__name__}:offsets"}], ids=["records", "shape"])
@pytest.mark.parametrize("kind", ["jdbc", "hadoop"])
def test_K6_a_table_in_a_catalog_that_the_region_names_is_written_without_spark(
    kind: str, shape: dict[str, str], tmp_path: Path
) -> None:
    warehouse = f"{tmp_path}/lake"
    settings = {"type": kind, "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": warehouse}
    conf = {f"spark.sql.catalog.lake.{key}": value for key, value in settings.items()}
    table = {"name": "orders", "format": "iceberg", "path": "lake.bronze.orders", **shape}
    means = road.Means(pool=pool())
    landing = Landing(MemoryStore(), tmp_path, tables=[table], host={"processes": True, "conf": conf})

    def rows() -> list[int]:
        if kind == "jdbc":
            catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=warehouse)
            return sorted(catalog.load_table("bronze.orders").scan().to_arrow().column("offset").to_pylist())
        version = (tmp_path / "lake/bronze/orders/metadata/version-hint.text").read_text()
        static = StaticTable.from_metadata(f"{warehouse}/bronze/orders/metadata/v{version}.metadata.json")
        return sorted(static.scan().to_arrow().column("offset").to_pylist())

    for expected in (range(5), range(10)):
        landing.land(5)
        road.advance(landing.region, "orders", means=means)
        assert rows() == sorted([*expected] * len(landing.tps))
    landing.rewind(1)
    road.fence(landing.region, "orders", means=means)
    assert rows() == sorted([*range(5)] * len(landing.tps))
    assert audit.look(landing.region, "orders").clean
    found = Findings()
    assert in_tables.look(landing.region, found) == ("orders",)
    assert not found.kept and not found.notes
