"""examples/avro_registry: records of two schemas of one subject land in one typed table; what is no Avro is a dead letter."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
import yaml
from confluent_kafka import Producer

import examples.avro_registry as source
from checkpoints_db import initialise
from crkafka_core.config import RegionConfig
from crkafka_core.dev.jars import DELTA
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.region import Region
from crkafka_core.region.caught_up import consume
from crkafka_core.spark import session, tables
from tests.rigs.schema_registry import FakeRegistry

FILE = Path(source.__file__).parent / "region.yaml"
OLD = {
    "type": "record",
    "name": "Payment",
    "fields": [{"name": "id", "type": "long"}, {"name": "cents", "type": "long"}],
}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "card", "type": ["null", "string"], "default": None}]}  # type: ignore[misc]


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    fake = FakeRegistry()
    yield fake
    fake.close()


def wire(number: int, schema: dict[str, Any], record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return b"\0" + struct.pack(">I", number) + out.getvalue()


def test_the_file_declares_both_tables() -> None:
    assert [table.name for table in RegionConfig.load(FILE).tables] == ["payments", "payments_dead"]


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(400)
def test_two_schemas_of_one_subject_land_in_one_table(
    kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path, registry: FakeRegistry
) -> None:
    topic = new_topic()
    keys = yaml.safe_load(FILE.read_text())
    keys["kafka"]["bootstrap.servers"] = kafka.bootstrap
    keys |= {"topics": [topic], "registry": {"url": registry.url}, "trigger": {"manual": True}}
    keys["host"] = {
        "spark": "local[4]",
        "conf": {"spark.jars": ",".join(map(str, DELTA.jars())), "spark.ui.enabled": "false"},
    }
    for number, schema in ((1, OLD), (2, NEW)):
        registry.answers[f"/schemas/ids/{number}"] = [(200, {"schema": json.dumps(schema)})]
        latest = {"subject": f"{topic}-value", "id": number, "version": number, "schema": json.dumps(schema)}
        for version in (str(number), "latest"):
            registry.answers[f"/subjects/{topic}-value/versions/{version}"] = [(200, latest)]
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, wire(1, OLD, {"id": 1, "cents": 100}))
    producer.produce(topic, wire(2, NEW, {"id": 2, "cents": 250, "card": "visa"}))
    producer.produce(topic, b"no avro")
    producer.flush(30)
    config = RegionConfig.of(base=tmp_path, **keys)
    (tmp_path / "var").mkdir()
    initialise(config.control_plane)
    spark = session.open_session(config)
    try:
        with Region.open(config) as region:
            region.init()
            with region.hosted():
                consume(region)
            tables.advance(spark, region, "payments")
            rows = tables.read_table(spark, region, "payments").select("id", "cents", "card").orderBy("id").collect()
            assert [tuple(row) for row in rows] == [(1, 100, None), (2, 250, "visa")]
            (dead,) = tables.read_table(spark, region, "payments_dead").collect()
            assert bytes(dead["value"]) == b"no avro" and dead["reason"]
    finally:
        spark.stop()
