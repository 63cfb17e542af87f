"""examples/lakehouse: orders become typed rows, dead letters and revenue by day; a backfill after a rewind is right again."""

from __future__ import annotations

import datetime as dt
import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import dagster as dg
import pytest
import yaml
from confluent_kafka import Producer
from deltalake import DeltaTable

import examples.lakehouse as source
from checkpoints_db import initialise
from crkafka_core.config import RegionConfig
from crkafka_core.dev.jars import DELTA
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.sample import orders, produce_orders
from crkafka_core.region import Region
from crkafka_core.region.caught_up import consume
from crkafka_core.spark import session, tables

TODAY = dt.datetime.now(dt.UTC).date().isoformat()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder, as a team makes it."""
    folder = tmp_path / "lakehouse"
    shutil.copytree(Path(source.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def definitions(project: Path) -> Callable[[], ModuleType]:
    def load() -> ModuleType:
        spec = importlib.util.spec_from_file_location("lakehouse_definitions", project / "definitions.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def test_it_loads_with_an_asset_for_each_table(definitions: Callable[[], ModuleType]) -> None:
    keys = {key.to_user_string() for key in definitions().defs.resolve_all_asset_keys()}
    assert {"orders/records", "orders/bronze", "orders/silver", "orders/dead", "daily_revenue"} <= keys


def revenue(module: ModuleType, project: Path, instance: dg.DagsterInstance) -> dict[str, int]:
    assert dg.materialize([module.daily_revenue], partition_key=TODAY, instance=instance).success
    (row,) = DeltaTable(str(project / "var/tables/daily_revenue")).to_pyarrow_table().to_pylist()
    assert row["day"].isoformat() == TODAY
    return {"orders": row["orders"], "cents": row["cents"]}


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.dagster
@pytest.mark.soak
@pytest.mark.timeout(400)
def test_orders_become_revenue_and_the_others_dead_letters(
    kafka: KafkaCluster, new_topic: Callable[..., str], project: Path, definitions: Callable[[], ModuleType]
) -> None:
    keys = yaml.safe_load((project / "region.yaml").read_text())
    keys["kafka"]["bootstrap.servers"] = kafka.bootstrap
    keys |= {"topics": [topic := new_topic()], "trigger": {"manual": True}}
    keys["host"] = {
        "spark": "local[4]",
        "conf": {"spark.jars": ",".join(map(str, DELTA.jars())), "spark.ui.enabled": "false"},
    }
    (project / "region.yaml").write_text(yaml.safe_dump(keys))
    config = RegionConfig.load(project / "region.yaml")
    (project / "var").mkdir()
    initialise(config.control_plane)
    produce_orders(kafka.bootstrap, topic, 200)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for value in ("no json", '{"order": "x", "cents": 5}', '{"order": 7}'):
        producer.produce(topic, value)
    producer.flush(30)
    spark = session.open_session(config)
    try:
        with Region.open(config) as region, dg.DagsterInstance.ephemeral() as instance:
            region.init()
            with region.hosted():
                first = consume(region).checkpoint
                produce_orders(kafka.bootstrap, topic, 100, first=201)
                consume(region)
            for name in ("bronze", "silver", "dead"):
                tables.advance(spark, region, name)
            counts = {n: tables.read_table(spark, region, n).count() for n in ("bronze", "silver", "dead")}
            assert counts == {"bronze": 303, "silver": 300, "dead": 3}
            assert all(row["reason"] for row in tables.read_table(spark, region, "dead").collect())
            module = definitions()
            assert revenue(module, project, instance) == {"orders": 300, "cents": sum(o.cents for o in orders(300))}
            tables.rewrite(spark, region, "silver", [first.id])
            assert revenue(module, project, instance)["orders"] == 300
    finally:
        spark.stop()
