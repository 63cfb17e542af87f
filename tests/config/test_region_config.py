"""A region's configuration: file, mapping and keywords alike, absolute paths, limits, JSON and schema."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import pytest

from crkafka_core.config import BadConfiguration, RegionConfig, location, schema
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.limits import Limits

TEN_LINES = """\
region: orders
control_plane: sqlite:///var/crkafka.db
storage: var/segments
kafka: {bootstrap.servers: localhost:9092, group.id: orders}
topics: [orders, refunds]
members: 2
start: {position: beginning, new_partitions: beginning}
trigger: {period: 60s}
tables:
  - {name: orders_bronze, format: delta, path: var/tables/orders_bronze}
host: {spark: "local[4]"}
"""
GOOD: dict[str, Any] = {
    "region": "orders",
    "control_plane": "sqlite:///var/crkafka.db",
    "storage": "var/segments",
    "kafka": {"bootstrap.servers": "localhost:9092", "group.id": "orders"},
    "topics": ["orders"],
}


def test_relative_paths_mean_the_project_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    file = tmp_path / "regions" / "deep" / "orders.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(TEN_LINES)
    config = RegionConfig.load(file)
    assert config.control_plane == f"sqlite:///{tmp_path}/var/crkafka.db"
    assert config.storage == f"{tmp_path}/var/segments"
    assert config.tables[0].path == f"{tmp_path}/var/tables/orders_bronze"
    assert (config.members, config.topics, config.trigger.period) == (2, ("orders", "refunds"), 60.0)


def test_so_do_the_files_of_the_kafka_section(tmp_path: Path) -> None:
    """Members, Dagster and Spark's executors run in folders of their own."""
    files = {
        "ssl.ca.location": "certs/ca.pem",
        "ssl.key.location": "/keys/client.key",
        "ssl.certificate.location": "${env:CERTIFICATE}",
        "https.ca.location": "probe",
        "sasl.oauthbearer.assertion.file": "token.jwt",
    }
    config = RegionConfig.parse({**GOOD, "kafka": {**GOOD["kafka"], **files}}, base=tmp_path)
    assert {name: config.kafka[name] for name in files} == files | {
        "ssl.ca.location": f"{tmp_path}/certs/ca.pem",
        "sasl.oauthbearer.assertion.file": f"{tmp_path}/token.jwt",
    }


def test_without_a_project_they_mean_the_folder_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(TEN_LINES)
    assert RegionConfig.load(file).storage == f"{tmp_path}/var/segments"


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/prefix",
        "abfss://c@acc.net/p",
        "gs://bucket/prefix",
        "hdfs://name/path",
        "/abs/olute",
        "abfss://${env:C}@a.b/p",
        "${env:DATA}/segments",
    ],
)
def test_urls_and_absolute_paths_are_left_alone(url: str, tmp_path: Path) -> None:
    assert RegionConfig.parse({**GOOD, "storage": url}, base=tmp_path).storage == url


@pytest.mark.parametrize(
    ("format", "path", "stays"),
    [
        ("iceberg", "lake.shop.orders", True),
        ("iceberg", "lake.shop", False),
        ("iceberg", "tables/a.b.c", False),
        ("delta", "lake.shop.orders", True),
        ("delta", "tables/a.b.c", False),
    ],
)
def test_a_name_in_a_catalog_is_no_path(format: str, path: str, stays: bool, tmp_path: Path) -> None:
    """SPEC U3: also where members run on other machines, whose disks it is not on."""
    table = {"name": "bronze", "format": format, "path": path}
    found = RegionConfig.parse({**GOOD, "tables": [table]}, base=tmp_path).tables[0].path
    assert found == (path if stays else f"{tmp_path}/{path}")
    if stays:
        remote = {
            "control_plane": "postgresql+psycopg://u@h/d",
            "storage": "s3://b/p",
            "host": {"spark": "spark://big:7077"},
        }
        assert RegionConfig.parse({**GOOD, **remote, "tables": [table]}).tables[0].path == path


def test_k6_a_table_is_delta_unless_said() -> None:
    found = RegionConfig.parse({**GOOD, "tables": [{"name": "bronze", "path": "lake.shop.orders"}]}).tables[0]
    assert (found.format, found.path) == ("delta", "lake.shop.orders")


def test_a_component_file_of_dagster_is_read_as_well(tmp_path: Path) -> None:
    file = tmp_path / "defs.yaml"
    indented = "".join("  " + line for line in TEN_LINES.splitlines(keepends=True))
    file.write_text("type: dagster_project.ConsistentRegion\nattributes:\n" + indented)
    plain = tmp_path / "plain.yaml"
    plain.write_text(TEN_LINES)
    assert RegionConfig.load(file) == RegionConfig.load(plain)
    file.write_text(file.read_text().replace("members: 2", "members: two"))
    with pytest.raises(BadConfiguration, match=r"defs\.yaml:8: members"):
        RegionConfig.load(file)


def test_several_regions_in_one_file(tmp_path: Path) -> None:
    file = tmp_path / "regions.yaml"
    file.write_text(TEN_LINES + "---\n" + TEN_LINES.replace("orders", "sales"))
    assert RegionConfig.load(file, region="sales").group_id == "sales"
    with pytest.raises(BadConfiguration, match=r"several regions: name one, as by -r\. Regions here: orders, sales"):
        RegionConfig.load(file)
    with pytest.raises(BadConfiguration, match="has no region x"):
        RegionConfig.load(file, region="x")


def test_file_mapping_and_keywords_give_the_same(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(TEN_LINES)
    keys = {
        **GOOD,
        "topics": ["orders", "refunds"],
        "members": 2,
        "trigger": {"period": 60},
        "tables": [{"name": "orders_bronze", "format": "delta", "path": "var/tables/orders_bronze"}],
        "host": {"spark": "local[4]"},
    }
    assert RegionConfig.load(file) == RegionConfig.parse(keys, base=tmp_path) == RegionConfig.of(base=tmp_path, **keys)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"host": "processes", "trigger": {"tuples": 1000, "period": "5m"}, "retain": 3, "queue_bytes": "1MiB"},
        {
            "topics": None,
            "pattern": r"^shop\..*",
            "start": {"position": "timestamp", "timestamp": "2026-01-31T08:00:00Z"},
        },
        {
            "kafka": {**GOOD["kafka"], "sasl.password": "${env:PW}", "ssl.ca.location": "${file:ca}"},
            "trigger": {"manual": True},
        },
    ],
)
def test_json_round_trip_is_exact(more: dict[str, Any], tmp_path: Path) -> None:
    config = RegionConfig.parse({**GOOD, **more}, base=tmp_path)
    assert RegionConfig.from_json(config.to_json()) == config
    assert RegionConfig.from_json(config.to_json()).to_json() == config.to_json()


@pytest.mark.parametrize(
    ("written", "seconds"), [("60s", 60), ("5m", 300), ("250ms", 0.25), ("1.5h", 5400), (7, 7), ("7", 7), ("1d", 86400)]
)
def test_durations(written: object, seconds: float) -> None:
    assert RegionConfig.parse({**GOOD, "trigger": {"period": written}}).trigger.period == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("written", "number"), [("64MiB", 2**26), ("500kB", 500_000), (70_000, 70_000), ("1g", None), ("64M", None)]
)
def test_sizes(written: object, number: int | None) -> None:
    _, text = schema.schema()["properties"]["queue_bytes"]["anyOf"]
    assert isinstance(written, int) or bool(re.fullmatch(text["pattern"], str(written))) == (number is not None)
    if number is None:
        with pytest.raises(BadConfiguration, match="queue_bytes"):
            RegionConfig.parse({**GOOD, "queue_bytes": written})
    else:
        assert RegionConfig.parse({**GOOD, "queue_bytes": written}).queue_bytes == number


def test_limits_are_defaults_unless_set() -> None:
    assert RegionConfig.parse(GOOD).limits() == Limits()
    config = RegionConfig.parse(
        {**GOOD, "drain_timeout": "20s", "retain": 7, "kafka": {**GOOD["kafka"], "session.timeout.ms": 6000}}
    )
    assert config.limits() == Limits(session_timeout=6.0, settle_timeout=18.0, drain_timeout=20.0, retain=7)


@pytest.mark.parametrize(
    "written",
    ["2026-01-31T08:00:00Z", "2026-01-31T09:00:00+01:00", "2026-01-31T08:00:00", 1769846400000, "1769846400000"],
)
def test_timestamps_are_utc_milliseconds(written: object) -> None:
    config = RegionConfig.parse({**GOOD, "start": {"position": "timestamp", "timestamp": written}})
    moment = dt.datetime(2026, 1, 31, 8, tzinfo=dt.UTC)
    assert config.start.timestamp == int(moment.timestamp() * 1000)


def test_timestamp_as_yaml_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(TEN_LINES.replace("position: beginning,", "position: timestamp, timestamp: 2026-01-31T08:00:00Z,"))
    assert RegionConfig.load(file).start.timestamp == 1769846400000


def test_default_start_falls_back_as_kafka_says() -> None:
    start = {"start": {"position": "default"}}
    kafka = {"kafka": {**GOOD["kafka"], "auto.offset.reset": "earliest"}}
    assert RegionConfig.parse({**GOOD, **start}).start_fallback == "latest"
    assert RegionConfig.parse({**GOOD, **start, **kafka}).start_fallback == "earliest"
    assert (
        RegionConfig.parse({**GOOD, "start": {"position": "default", "auto_offset_reset": "error"}}).start_fallback
        == "error"
    )
    assert "auto.offset.reset" not in RegionConfig.parse({**GOOD, **start, **kafka}).resolved_kafka()


@pytest.mark.parametrize(
    ("spark", "remote"),
    [
        ("local[4]", False),
        ("local-cluster[2,1,1024]", False),
        ("spark://localhost:7077", False),
        ("spark://127.0.0.1:7077", False),
        ("sc://localhost:15002", False),
        ("spark://big:7077", True),
        ("sc://big:15002", True),
        ("yarn", True),
        ("k8s://https://api", True),
    ],
)
def test_a_master_on_the_loopback_address_is_this_machine(spark: str, remote: bool) -> None:
    config = RegionConfig.parse(
        {**GOOD, "control_plane": "postgresql://db/x", "storage": "s3://b", "host": {"spark": spark}}
    )
    assert config.host.remote is remote


def test_a_shared_disk_is_believed_for_storage_but_not_for_sqlite() -> None:
    host = {"host": {"spark": "spark://big:7077", "shared_disk": True}}
    RegionConfig.parse({**GOOD, **host, "control_plane": "postgresql://db/x"})
    with pytest.raises(BadConfiguration, match="cannot share a SQLite file"):
        RegionConfig.parse({**GOOD, **host})


def test_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        RegionConfig.parse(GOOD).members = 3  # type: ignore[misc]


def test_schema_in_docs_is_current() -> None:
    file = Path(__file__).parents[2] / "docs" / "region.schema.json"
    assert file.read_text(encoding="utf-8") == schema.text(), (
        "run `python -m crkafka_core.config.schema docs/region.schema.json`"
    )


def test_options_of_a_store_that_the_schema_names_are_taken() -> None:
    said = schema.schema()["properties"]["storage_options"]["description"]
    named = set(re.findall(r"`(\w+)`", said))
    assert named and named <= set(location.S3.options)


def test_each_key_is_described_in_the_schema() -> None:
    found = schema.schema()
    undescribed = [k for k, v in found["properties"].items() if "description" not in v and "$ref" not in v]
    assert undescribed == []
    assert json.dumps(found)


SHAPED = {"format": "delta", "path": "p", "shape": "shop.shapes:typed"}


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ([{**SHAPED, "name": "a", "shape": "shop.shapes"}], "shape"),
        ([{"name": "a", "format": "delta", "path": "p", "output": "dead"}], "names an output and no shape"),
        ([{**SHAPED, "name": "a"}, {**SHAPED, "name": "b", "output": "good"}], "two tables take the output good"),
    ],
)
def test_K6_a_shape_that_cannot_be_meant_is_refused(tables: list[dict[str, str]], said: str) -> None:
    with pytest.raises(BadConfiguration, match=said):
        RegionConfig.of(**{**GOOD, "tables": tables})


def test_K6_tables_of_one_shape_take_its_outputs() -> None:
    dead = {**SHAPED, "name": "b", "path": "q", "output": "dead"}
    config = RegionConfig.of(**{**GOOD, "tables": [{**SHAPED, "name": "a"}, dead]})
    assert [(t.shape, t.output) for t in config.tables] == [("shop.shapes:typed", None), ("shop.shapes:typed", "dead")]
    assert RegionConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"partition_by": ["odd", "Odd"]}, "names the column odd twice"),
        ({"partition_by": ["crkafka_checkpoint"]}, "each would be a partition for ever"),
        ({"partition_by": ["day(at)"]}, r"names day\(at\) in partition_by: transforms are for Iceberg"),
        ({"partition_by": ["bucket(key)"], "format": "iceberg"}, r"bucket\(key\) is no transform"),
        ({"options": {"a": "b"}}, "table a has options of Spark's writer"),
        ({"keys": ["id"]}, "names keys, which are for mode: upsert"),
        ({"mode": "upsert"}, r"names no keys; write keys: \[id\]"),
        ({"mode": "merge"}, "must be one of append, upsert"),
        ({"mode": "upsert", "keys": ["id"], "shape": None}, "upsert, which is for tables with a shape or types"),
        ({"format": "parquet"}, "there is no Parquet table: segments are Parquet"),
        ({"mode": "upsert", "keys": ["id"], "path": "main.bronze.a"}, "in Delta it lies at a path"),
        ({"mode": "upsert", "keys": ["id"], "path": "hdfs://n/a"}, "which needs a folder or s3"),
        ({"mode": "upsert", "keys": ["id"], "output": "dead"}, "it takes the good rows"),
    ],
)
def test_K6_where_and_how_a_table_lies_is_checked_where_it_is_declared(table: dict[str, object], said: str) -> None:
    with pytest.raises(BadConfiguration, match=said):
        RegionConfig.of(
            **{**GOOD, "tables": [{k: v for k, v in {**SHAPED, "name": "a", **table}.items() if v is not None}]}
        )


@pytest.mark.parametrize(
    ("table", "refused", "instead"),
    [
        ({"path": "hdfs://n/t"}, "is at hdfs:, where no table can be committed", "in s3://"),
        (
            {"path": "main.bronze.t"},
            "is a Delta table by its name in a catalog",
            "CREATE TABLE bronze.t USING delta LOCATION",
        ),
        (
            {"path": "hive.bronze.t", "format": "iceberg"},
            "is in the catalog hive, which cannot be used",
            "catalog.hive.type",
        ),
    ],
)
def test_K6_a_table_that_only_spark_could_reach_is_refused_with_what_to_use_instead(
    table: dict[str, str], refused: str, instead: str
) -> None:
    conf = {"spark.sql.catalog.hive.type": "hive", "spark.sql.catalog.hive.uri": "thrift://h"}
    config = RegionConfig.of(**{**GOOD, "host": {"processes": True, "conf": conf}, "tables": [{"name": "t", **table}]})
    with pytest.raises(ConfigError) as raised:
        config.check_place(config.tables[0])
    assert refused in raised.value.message and instead in raised.value.hint
