"""A log that was cut by an unclean election and has grown again: its ends say nothing, the leader's epoch does (SPEC S4, fault 71)."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.consumer import GroupConsumer
from crkafka_core.kafka.edge import Polled
from crkafka_core.kafka.errors import OffsetGone
from crkafka_core.kafka.properties import client_properties
from crkafka_core.kafka.range_reader import RangeReader, check_uncut
from crkafka_core.model.errors import DataLoss
from crkafka_core.model.limits import Limits
from crkafka_core.model.offsets import TP
from crkafka_core.plane.reading import KafkaRange
from crkafka_core.testing.pytest_services import unique

pytestmark = pytest.mark.kafka


def test_71_a_log_that_was_cut_and_has_grown_again_is_noticed_by_the_leader_epoch(kafka3: KafkaCluster) -> None:
    tp, before = a_log_of_160(kafka3)
    topic = tp.topic
    paused = consumer_at_the_end(kafka3, tp)
    elect_who_has_100(kafka3, topic)
    send(kafka3, topic, 20)
    forbid_unclean_elections(kafka3, topic)
    admin = KafkaAdmin({"bootstrap.servers": kafka3.bootstrap}, timeout=20)
    assert admin.watermarks([tp], "read_uncommitted") == {tp: (0, 120)}
    assert admin.cut_below({tp: (160, before[160])}) == {tp: 100}, "where it was cut, and not where it ends now"
    until(lambda: gone_at(160, paused.poll()))
    paused.close()
    send(kafka3, topic, 180)
    kafka3.start_node(1)
    assert admin.watermarks([tp], "read_uncommitted") == {tp: (0, 300)}, "160 is within"
    after = read_epochs(kafka3, tp, 300)
    assert list(after) == [100, 300] and after[300] > before[160], "a run is of one leader epoch"
    assert admin.cut_below({tp: (160, before[160])}) == {tp: 100}
    assert admin.cut_below({tp: (100, before[160])}) == {}, "what was not cut is as it was read"
    assert admin.cut_below({tp: (300, after[300])}) == {}
    check_uncut(admin, [archived(1, tp, 0, 100, before[160])])
    with pytest.raises(DataLoss, match=r"Checkpoint 2 .*\[100, 160\) .* log ends at 100 now"):
        check_uncut(admin, [archived(1, tp, 0, 100, before[160]), archived(2, tp, 100, 160, before[160])])


@pytest.mark.soak
def test_71_a_partition_that_was_sought_and_is_not_read_yet_hears_that_its_log_was_cut_and_has_grown_past_it(
    kafka3: KafkaCluster,
) -> None:
    """Else it would go on at 160 of the new log, over 60 records that nobody has read (docs/clients.md C-K25)."""
    tp, epochs = a_log_of_160(kafka3)
    paused = consumer_of(kafka3, tp)
    paused.seek({tp: 160}, {tp: epochs[160]})
    elect_who_has_100(kafka3, tp.topic)
    send(kafka3, tp.topic, 200)
    forbid_unclean_elections(kafka3, tp.topic)
    kafka3.start_node(1)
    late = consumer_of(kafka3, tp)
    late.seek({tp: 160}, {tp: epochs[160]})
    late.flow({tp})
    for consumer in (paused, late):
        polled = poll_until(consumer, lambda p: gone_at(160, p))
        assert not any(p.batch for p in polled), "nothing of the new log before it is known where it was cut"
        consumer.seek({tp: 100})
        consumer.flow({tp})
        (*_, last) = poll_until(consumer, lambda p: p.batch is not None)
        assert last.batch is not None and last.batch.runs[0].first == 100
        consumer.close()


def poll_until(consumer: GroupConsumer, condition: Callable[[Polled], bool]) -> list[Polled]:
    polled: list[Polled] = []

    def polls() -> bool:
        polled.append(consumer.poll())
        return condition(polled[-1])

    try:
        until(polls)
    except AssertionError as error:
        told = [p for p in polled if p.errors or p.rebalances or p.batch or p.disturbed]
        raise AssertionError(f"in vain; the client stands at {consumer._next}, and told {told[-10:]}") from error
    return polled


def gone_at(offset: int, polled: Polled) -> bool:
    return any(isinstance(e, OffsetGone) and e.offset == offset for e in polled.errors)


def a_log_of_160(kafka: KafkaCluster) -> tuple[TP, dict[int, int]]:
    """Of which node 1 has all and node 2 the first 100 and is down; and the leader epochs of its stretches."""
    topic = unique("cut")
    unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    new = NewTopic(topic, 1, replica_assignment=[[1, 2]], config=unclean)
    until(lambda: is_made(kafka, new))
    until(lambda: 0 in kafka.topics.leaders(topic))
    kafka.topics.elect_preferred_leader(topic, 0)  # node 1 does not lead if it missed its heartbeats just then
    until(lambda: kafka.topics.leaders(topic) == {0: 1})
    send(kafka, topic, 100, acks="all")
    until(lambda: kafka.topics.in_sync(topic) == {0: {1, 2}})
    kafka.stop_node(2)
    send(kafka, topic, 60)
    epochs = read_epochs(kafka, TP(topic, 0), 160)
    assert 160 in epochs  # a Kafka that raises the epoch as node 2 leaves makes a run of the first hundred
    return TP(topic, 0), epochs


def is_made(kafka: KafkaCluster, topic: NewTopic) -> bool:
    """The client drops the connection that it began with once it knows the brokers, and what it asked for by it."""
    try:
        kafka.admin.create_topics([topic])[topic.topic].result(30)
    except KafkaException as error:
        code = error.args[0].code()
        if code not in (KafkaError._DESTROY_BROKER, KafkaError.TOPIC_ALREADY_EXISTS):
            raise
        return bool(code == KafkaError.TOPIC_ALREADY_EXISTS)
    return True


def elect_who_has_100(kafka: KafkaCluster, topic: str) -> None:
    kafka.kill(1)
    kafka.start_node(2, wait=False)
    until(lambda: kafka.topics.leaders(topic) == {0: 2})


def archived(checkpoint: int, tp: TP, start: int, stop: int, epoch: int) -> KafkaRange:
    return KafkaRange(checkpoint, tp.topic, tp.partition, start, stop, stop - start, leader_epoch=epoch)


def consumer_of(kafka: KafkaCluster, tp: TP) -> GroupConsumer:
    """One that holds the partition, and does not read it yet."""
    given = {"bootstrap.servers": kafka.bootstrap, "group.id": unique("g")}
    consumer = GroupConsumer(client_properties(given, Limits(), client_id="a", single_topic=True))
    consumer.subscribe([tp.topic])
    until(lambda: (consumer.poll(), tp in consumer.held)[1])
    return consumer


def consumer_at_the_end(kafka: KafkaCluster, tp: TP) -> GroupConsumer:
    """One that has read all there is, and is paused: it has to hear of a cut all the same, since librdkafka gives nothing more."""
    consumer = consumer_of(kafka, tp)
    consumer.seek({tp: 0})
    consumer.flow({tp})
    until(lambda: consumer.poll().ends.get(tp) == 160)
    consumer.poll()
    consumer.flow(())
    return consumer


def read_epochs(kafka: KafkaCluster, tp: TP, stop: int) -> dict[int, int]:
    """End of each stretch of one leader epoch → that epoch."""
    found: dict[int, int] = {}
    with RangeReader({"bootstrap.servers": kafka.bootstrap}) as reader:
        for batch in reader.read(tp, 0, stop):
            for run in batch.runs:
                found = {end: epoch for end, epoch in found.items() if epoch != run.leader_epoch}
                found[run.next] = run.leader_epoch
    return found


def forbid_unclean_elections(kafka: KafkaCluster, topic: str) -> None:
    """The leader of a busy machine may miss its heartbeats: the log must not be cut a second time."""
    entry = ConfigEntry("unclean.leader.election.enable", "false", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    kafka.admin.incremental_alter_configs([changed])[changed].result(30)


def send(kafka: KafkaCluster, topic: str, count: int, acks: str = "1") -> None:
    """`acks` all: each node in sync has them too; one that misses its heartbeats is not, until it has fetched them all."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": acks, "message.timeout.ms": 30_000})
    for i in range(count):
        producer.produce(topic, b"%d" % i, partition=0)
        if i % 10 == 0:
            producer.flush(20)
    assert producer.flush(20) == 0


def until(condition: Callable[[], bool], within: float = 60.0) -> None:
    """Wait for it; a node that is just starting may not answer."""
    end = time.monotonic() + within
    while True:
        with suppress(KafkaException):
            if condition():
                return
        assert time.monotonic() < end
        time.sleep(0.3)
