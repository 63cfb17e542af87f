"""The consumer of a group's member on a real Kafka: start, flow, seek, errors (SPEC M5, M7, R4, S4; docs/clients.md)."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.kafka.errors import KafkaUnavailable, OffsetGone
from crkafka_core.model.limits import Limits
from crkafka_core.model.offsets import TP
from crkafka_core.testing.generator import Generator
from tests.kafka.conftest import BOTH_WAYS, COOPERATIVE, KIP_848, MakeProbe

pytestmark = pytest.mark.kafka
NewTopic = Callable[..., str]


def test_nothing_flows_before_it_is_told_to(probe: MakeProbe, new_topic: NewTopic, generator: Generator) -> None:
    """SPEC R4: `on_assign` assigns paused and returns."""
    topic = new_topic(4)
    generator.send(topic, 2_000, partitions=4)
    member = probe([topic])
    assert member.settle() == {TP(topic, p) for p in range(4)}
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        member.poll()
    assert member.rows() == 0
    assert member.dropped == 0
    assert member.errors == []


def test_each_partition_begins_exactly_at_its_offset_many_times(
    probe: MakeProbe, new_topic: NewTopic, generator: Generator
) -> None:
    """A seek right after the assignment is not undone by what the assignment asked the broker for."""
    topic = new_topic(4)
    generator.send(topic, 4_000, partitions=4)
    for round_number in range(12):
        member = probe([topic])
        held = member.settle()
        wanted = {tp: 100 + 37 * round_number + tp.partition for tp in held}
        if round_number % 3 == 0:
            for _ in range(10):
                member.poll()
        member.consumer.seek(wanted)
        member.consumer.flow(held)
        member.poll_until(lambda m=member, h=held: set(m.offsets()) == h)
        assert {tp: found[0] for tp, found in member.offsets().items()} == wanted
        assert member.dropped == 0
        member.consumer.close()


@BOTH_WAYS
def test_only_what_flows_is_handed_out_and_a_pause_loses_nothing(
    probe: MakeProbe, new_topic: NewTopic, generator: Generator
) -> None:
    topic = new_topic(2)
    first, second = TP(topic, 0), TP(topic, 1)
    generator.send(topic, 10_000, partitions=2)
    member = probe([topic])
    member.start_at(0)
    member.poll_until(lambda: member.rows() > 500)
    member.consumer.flow([second])
    paused_at = len(member.offsets().get(first, []))
    member.poll_until(lambda: len(member.offsets().get(second, [])) == 5_000)
    for _ in range(20):
        member.poll()
    assert len(member.offsets().get(first, [])) == paused_at
    member.consumer.flow([first, second])
    member.poll_until(lambda: member.rows() == 10_000)
    assert member.offsets() == {first: list(range(5_000)), second: list(range(5_000))}


def test_the_first_record_after_an_idle_pause_comes_at_once(
    probe: MakeProbe, new_topic: NewTopic, generator: Generator
) -> None:
    """docs/clients.md C-K18: without the wake-up it takes a second."""
    topic = new_topic(4)
    generator.send(topic, 4_000, partitions=4)
    member = probe([topic])
    held = member.settle()
    took = []
    for _ in range(5):
        until = time.monotonic() + 1.3
        while time.monotonic() < until:
            member.poll()
        member.consumer.seek(dict.fromkeys(held, 10))
        began, before = time.monotonic(), member.rows()
        member.consumer.flow(held)
        while member.rows() == before:
            member.poll(100, 0.01)
        took.append(time.monotonic() - began)
        member.consumer.flow([])
    assert sorted(took)[2] < 0.9, took


@BOTH_WAYS
def test_values_keys_headers_and_timestamps_arrive_as_they_are(
    kafka: KafkaCluster, probe: MakeProbe, new_topic: NewTopic
) -> None:
    topic = new_topic(1, config={"retention.ms": "-1"})  # the timestamps are years old
    stamped = new_topic(1, name="stamped", config={"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, b"v", key=b"k", timestamp=1_700_000_000_123, headers=[("a", b"1"), ("b", None), ("a", b"")])
    producer.produce(topic, None, key=b"", timestamp=1_700_000_000_124)
    producer.produce(topic, b"", timestamp=1_700_000_000_125)
    producer.produce(stamped, b"\xff" * 900_000)
    assert producer.flush(20) == 0
    member = probe([topic, stamped])
    member.start_at(0)
    member.poll_until(lambda: member.rows() == 4)
    rows = [
        row for polled in member.polled if polled.batch for piece in polled.batch.pieces() for row in piece.to_pylist()
    ]
    rows.sort(key=lambda row: (row["topic"] != topic, row["offset"]))
    assert [(row["key"], row["value"]) for row in rows[:3]] == [(b"k", b"v"), (b"", None), (None, b"")]
    assert rows[0]["headers"] == [{"key": "a", "value": b"1"}, {"key": "b", "value": None}, {"key": "a", "value": b""}]
    assert rows[1]["headers"] is None
    assert [round(row["timestamp"].timestamp() * 1000) for row in rows[:3]] == [1_700_000_000_123 + i for i in range(3)]
    assert [row["timestampType"] for row in rows] == [0, 0, 0, 1]
    assert rows[3]["value"] == b"\xff" * 900_000


def test_the_end_is_told_also_when_only_control_records_are_left(
    probe: MakeProbe, new_topic: NewTopic, generator: Generator
) -> None:
    """SPEC V3, docs/clients.md C-R6: aborted records are skipped, their markers take offsets."""
    topic = new_topic(1)
    tp = TP(topic, 0)
    generator.transaction(topic, 10)
    generator.transaction(topic, 5, abort=True)
    member = probe([topic])
    member.start_at(0)
    member.poll_until(lambda: tp in member.ends)
    assert member.offsets() == {tp: list(range(10))}
    assert member.ends[tp] == 17
    again = probe([topic])
    member.consumer.close()
    again.settle()
    again.consumer.seek({tp: 11})
    again.consumer.flow([tp])
    again.poll_until(lambda: tp in again.ends)
    assert again.rows() == 0
    assert again.ends[tp] == 17


@BOTH_WAYS
@pytest.mark.parametrize(
    "protocol",
    [
        pytest.param({}, id="classic"),
        pytest.param(COOPERATIVE, id="cooperative", marks=pytest.mark.soak),
        pytest.param(KIP_848, id="kip848", marks=pytest.mark.soak),
    ],
)
def test_a_vanished_offset_is_told_and_the_partition_can_be_sought_again(
    kafka: KafkaCluster, probe: MakeProbe, new_topic: NewTopic, generator: Generator, protocol: dict[str, str]
) -> None:
    """SPEC S4, docs/clients.md C-R10."""
    topic = new_topic(2)
    gone, fine = TP(topic, 0), TP(topic, 1)
    generator.send(topic, 2_000, partitions=2)
    kafka.topics.delete_records({(topic, 0): 400})
    member = probe([topic], properties=protocol)
    held = member.settle()
    member.consumer.seek({gone: 100, fine: 100})
    member.consumer.flow(held)
    member.poll_until(lambda: bool(member.errors) and len(member.offsets().get(fine, [])) == 900)
    assert len(member.errors) == 1, member.errors
    (error,) = member.errors
    assert isinstance(error, OffsetGone)
    assert (error.tp, error.offset) == (gone, 100)
    assert member.offsets() == {fine: list(range(100, 1_000))}
    member.consumer.seek({gone: 400})
    member.poll_until(lambda: gone in member.offsets() and len(member.offsets()[gone]) == 600)
    assert member.offsets() == {gone: list(range(400, 1_000)), fine: list(range(100, 1_000))}
    assert member.dropped == 0


def test_a_partition_whose_leader_epoch_the_broker_never_had_is_read_all_the_same(
    probe: MakeProbe, new_topic: NewTopic, generator: Generator
) -> None:
    """docs/clients.md C-K25: nothing comes until it is sought anew, while it flows and while it is paused."""
    topic = new_topic(2)
    flows, paused = TP(topic, 0), TP(topic, 1)
    generator.send(topic, 2_000, partitions=2)
    member = probe([topic])
    member.settle()
    wanted = {flows: 100, paused: 100}
    for tp in (flows, paused):
        member.polled.clear()
        member.consumer.seek(wanted, {tp: 99})
        member.consumer.flow({flows})
        member.poll_until(lambda: any(polled.disturbed for polled in member.polled))
        assert tp not in member.offsets()
    member.consumer.seek(wanted, dict.fromkeys(wanted, 99))
    member.consumer.flow(wanted)
    member.polled.clear()
    member.poll_until(lambda: member.rows() == 1_800)
    assert member.offsets() == {tp: list(range(100, 1_000)) for tp in wanted}
    assert member.errors == []


def test_partitions_without_their_first_records_are_no_error_before_they_are_sought(
    kafka: KafkaCluster, probe: MakeProbe, new_topic: NewTopic, generator: Generator
) -> None:
    """The placeholder of the assignment is below the log's start; nobody asked for it."""
    topic = new_topic(2)
    generator.send(topic, 2_000, partitions=2)
    kafka.topics.delete_records({(topic, 0): 400, (topic, 1): 400})
    member = probe([topic])
    held = member.settle()
    for _ in range(25):
        member.poll()
    member.consumer.seek(dict.fromkeys(held, 500))
    member.consumer.flow(held)
    member.poll_until(lambda: member.rows() == 1_000)
    assert member.errors == []
    assert member.offsets() == {tp: list(range(500, 1_000)) for tp in held}


def test_an_absent_broker_is_told_once_and_consumption_goes_on(
    kafka: KafkaCluster, probe: MakeProbe, new_topic: NewTopic, generator: Generator
) -> None:
    """docs/clients.md C-R12: no callback, no record lost."""
    topic = new_topic(2)
    generator.send(topic, 1_000, partitions=2)
    member = probe([topic], limits=Limits(session_timeout=120, drain_timeout=10, reset_timeout=10))
    member.start_at(0)
    member.poll_until(lambda: member.rows() == 1_000)
    member.polled.clear()
    kafka.kill()
    until = time.monotonic() + 3.0
    while time.monotonic() < until:
        member.poll()
    assert 1 <= len(member.errors) <= 4, member.errors
    assert all(type(error).__name__ == "KafkaUnavailable" for error in member.errors)
    kafka.start_node()
    generator.send(topic, 500, partitions=2)
    member.poll_until(lambda: member.rows() == 500, within=60)
    assert member.rebalances == []
    assert member.offsets() == {TP(topic, p): list(range(500, 750)) for p in range(2)}


GONE = """
import sys, time
from confluent_kafka.admin import AdminClient
from crkafka_core.kafka.consumer import GroupConsumer
from crkafka_core.kafka.properties import client_properties
from crkafka_core.model.limits import Limits
from crkafka_core.segments.storage import Storage
from crkafka_core.segments.writer import SegmentWriter

bootstrap, topic, group, folder = sys.argv[1:]
writer = SegmentWriter(Storage.open(folder), "u/00000001/a-0-1.parquet")
given = {"bootstrap.servers": bootstrap, "group.id": group, "topic.metadata.propagation.max.ms": "1"}
consumer = GroupConsumer(client_properties(given, Limits(), client_id="a", single_topic=True))
admin = AdminClient({"bootstrap.servers": bootstrap})
consumer.subscribe([topic])
rows, told, end = 0, [], time.monotonic() + 40
while not any("desired partition" in str(error) for error in told) and time.monotonic() < end:
    got = consumer.poll(5_000, 0.1)
    if got.rebalances and consumer.held:
        consumer.seek(dict.fromkeys(consumer.held, 0))
        consumer.flow(consumer.held)
    before, rows = rows, rows + (got.batch.rows if got.batch else 0)
    if got.batch is not None:
        writer.write(got.batch)
    told += got.errors
    if before < 100 <= rows:
        admin.delete_topics([topic])[topic].result(20)
writer.close()
consumer.close()
print(rows, {type(error).__name__ for error in told}, "pandas" in sys.modules)
"""


def test_a_topic_that_is_deleted_while_it_is_read_is_told_and_ends_no_process(
    kafka: KafkaCluster, way: str, new_topic: NewTopic, generator: Generator, group_id: str, tmp_path: Path
) -> None:
    """librdkafka tells it from within the call that takes records; a callback of confluent-kafka would abort the process there.
    Nor is pandas imported, a second of each start and 40 MB of each member (docs/speed.md, row 7)."""
    topic = new_topic(2)
    generator.send(topic, 100, partitions=2)
    done = subprocess.run(
        [sys.executable, "-c", GONE, kafka.bootstrap, topic, group_id, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "100 {'TopicGone'} False\n"), done.stderr[-2_000:]


@BOTH_WAYS
def test_72_a_partition_whose_seek_failed_hands_out_nothing_until_it_is_sought(
    probe: MakeProbe, new_topic: NewTopic, generator: Generator
) -> None:
    """A poll that was dropped has moved the client: only a seek that went well says where it stands."""
    topic = new_topic(2)
    first, second = TP(topic, 0), TP(topic, 1)
    generator.send(topic, 4_000, partitions=2)
    member = probe([topic])
    member.start_at(0)
    member.poll_until(lambda: {first, second} == set(member.offsets()))
    frontier = {tp: offsets[-1] + 1 for tp, offsets in member.offsets().items()}
    client = member.consumer._consumer
    member.consumer._consumer = _Refusing(client, second)
    member.consumer._next = {}  # what a disturbed poll does
    with pytest.raises(KafkaUnavailable):
        member.consumer.seek(dict(sorted(frontier.items())))
    for _ in range(20):
        member.poll()
    assert {tp: offsets[-1] + 1 for tp, offsets in member.offsets().items()} == frontier
    member.consumer._consumer = client
    member.consumer.seek(frontier)
    member.poll_until(lambda: member.rows() == 4_000)
    assert member.offsets() == {first: list(range(2_000)), second: list(range(2_000))}


class _Refusing:
    """The client, except that it does not seek one partition."""

    def __init__(self, client: Any, tp: TP) -> None:
        self._client, self._tp = client, tp

    def seek(self, partition: TopicPartition) -> None:
        if (partition.topic, partition.partition) == self._tp:
            raise KafkaException(KafkaError(KafkaError._FAIL, "as the test wants it"))
        self._client.seek(partition)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)
