"""The session's Kafka: one node that a test may hurt, three of which one may be gone; the example of docs/testing.md passes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from crkafka_core.dev import class_archive
from crkafka_core.dev.find_java import find_java
from crkafka_core.dev.jars import KAFKA
from crkafka_core.dev.kafka import KafkaCluster


def _produce(kafka: KafkaCluster, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "message.timeout.ms": 20_000})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(20) == 0


def _values(kafka: KafkaCluster, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "reader", "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, 20)]
    finally:
        consumer.close()


KILLED: list[str] = []
"""Topic and address of the node that the first part leaves dead."""


@pytest.mark.kafka
def test_a_node_left_dead_or_frozen_is_healed_for_the_next_test_part_one(
    kafka: KafkaCluster, new_topic: Callable[..., str]
) -> None:
    KILLED[:] = new_topic(1), kafka.bootstrap
    _produce(kafka, KILLED[0], [b"before"])
    kafka.kill()
    assert kafka.alive() == {1: False}


@pytest.mark.kafka
def test_a_node_left_dead_or_frozen_is_healed_for_the_next_test_part_two(kafka: KafkaCluster) -> None:
    """On the same port, with what it held."""
    topic, address = KILLED
    assert kafka.alive() == {1: True} and kafka.bootstrap == address
    _produce(kafka, topic, [b"after"])
    assert _values(kafka, topic, 2) == [b"before", b"after"]
    kafka.pause()


@pytest.mark.kafka
def test_a_node_left_dead_or_frozen_is_healed_for_the_next_test_part_three(kafka: KafkaCluster) -> None:
    assert len(kafka.admin.list_topics(timeout=5).brokers) == 1


@pytest.mark.kafka
def test_topics_grow_are_emptied_and_recreated_with_another_id(
    kafka: KafkaCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    kafka.topics.add_partitions(topic, 3)
    assert set(kafka.topics.leaders(topic)) == {0, 1, 2}
    _produce(kafka, topic, [b"a", b"b", b"c"])
    kafka.topics.delete_records({(topic, 0): 2})
    reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "reader"})
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (2, 3)
    reader.close()
    old = kafka.topics.id(topic)
    kafka.topics.delete(topic)
    kafka.topics.create(topic, 1)
    assert kafka.topics.id(topic) != old


@pytest.mark.kafka
def test_a_node_starts_with_the_classes_of_an_earlier_run(tmp_path: Path) -> None:
    """Java is told to end if it cannot use the archive (`-Xshare:on`); a node passes over it."""
    if not class_archive.archive().is_file():  # scripts/prepare makes it
        class_archive.make()
    jars = os.pathsep.join(str(jar) for jar in KAFKA.jars())
    java = [str(find_java()), "-Xshare:on", *class_archive.options(), "-Xlog:class+load"]
    said = subprocess.run([*java, "-cp", jars, "kafka.Kafka", "--version"], capture_output=True, text=True, check=False)
    loaded = [line for line in said.stdout.splitlines() if " kafka.Kafka$ source:" in line]
    assert ["shared objects file (top)" in line for line in loaded] == [True], said.stdout[-2_000:] + said.stderr
    assert class_archive.options()[0] in KafkaCluster(tmp_path)._java("64m")


PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"


@pytest.mark.kafka
def test_the_example_passes_as_it_stands_on_the_page(tmp_path: Path) -> None:
    for block in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        (tmp_path / block[0]).write_text(block[1])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout
