"""The mock broker: groups and commits work, and each kind of failure can be had on demand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from crkafka_core.dev.errors import ServiceFailed
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.testing.mock_broker import CLIENT_SETTINGS, Api, MockBroker


@pytest.fixture
def topic(mock_broker: MockBroker) -> str:
    mock_broker.create_topic("t", 2, replication=3)
    producer = Producer({"bootstrap.servers": mock_broker.bootstrap})
    for partition in (0, 1):
        for number in range(5):
            producer.produce("t", b"%d" % number, partition=partition)
    assert producer.flush(10) == 0
    return "t"


@pytest.fixture
def consumer(mock_broker: MockBroker, topic: str) -> Iterator[Consumer]:
    settings = {"group.id": "g", "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": mock_broker.bootstrap, **CLIENT_SETTINGS, **settings})
    consumer.subscribe([topic])
    yield consumer
    consumer.close()


def _consume(consumer: Consumer, count: int) -> int:
    deadline, seen = time.monotonic() + 20, 0
    while seen < count and time.monotonic() < deadline:
        seen += sum(message.error() is None for message in consumer.consume(count - seen, 0.2))
    return seen


def _commit_code(consumer: Consumer) -> int | None:
    try:
        committed = consumer.commit(offsets=[TopicPartition("t", 0, 3)], asynchronous=False)
    except KafkaException as failed:
        return failed.args[0].code()
    error = committed[0].error
    return error.code() if error else None


def test_a_group_reads_and_commits(consumer: Consumer) -> None:
    assert _consume(consumer, 10) == 10
    assert _commit_code(consumer) is None


def test_the_next_commit_gets_the_injected_error_and_the_one_after_works(
    mock_broker: MockBroker, consumer: Consumer
) -> None:
    assert _consume(consumer, 10) == 10
    mock_broker.push_request_errors(Api.OFFSET_COMMIT, KafkaError.ILLEGAL_GENERATION)
    assert _commit_code(consumer) == KafkaError.ILLEGAL_GENERATION
    mock_broker.push_request_errors(Api.OFFSET_COMMIT, *[KafkaError.UNKNOWN_MEMBER_ID] * 3)
    mock_broker.clear_request_errors(Api.OFFSET_COMMIT)
    assert _commit_code(consumer) != KafkaError.UNKNOWN_MEMBER_ID


def test_latency_of_one_broker_is_felt(mock_broker: MockBroker, consumer: Consumer) -> None:
    assert _consume(consumer, 10) == 10
    mock_broker.rtt(400)
    began = time.monotonic()
    _commit_code(consumer)
    assert time.monotonic() - began >= 0.4


def test_all_brokers_down_fails_metadata_and_up_again_heals(mock_broker: MockBroker, topic: str) -> None:
    for broker in (1, 2, 3):
        mock_broker.broker_down(broker)
    producer = Producer({"bootstrap.servers": mock_broker.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 100})
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=0.5)
    for broker in (1, 2, 3):
        mock_broker.broker_up(broker)
    assert set(producer.list_topics(timeout=10).topics) == {topic}


def test_leader_and_coordinator_move(mock_broker: MockBroker, consumer: Consumer, topic: str) -> None:
    for broker in (1, 2, 3):
        mock_broker.leader(topic, 0, broker)
        assert consumer.list_topics(timeout=10).topics[topic].partitions[0].leader == broker
        mock_broker.coordinator("g", broker)
    assert _consume(consumer, 10) == 10


def test_what_the_cluster_refuses_is_said(mock_broker: MockBroker) -> None:
    with pytest.raises(ServiceFailed, match="partition_set_leader was refused"):
        mock_broker.leader("no-such-topic", 0, 99)


def test_u5_a_broker_that_cannot_describe_a_group_names_no_member(mock_broker: MockBroker) -> None:
    """It was asked again without end by a member that starts."""
    with closing(KafkaAdmin({"bootstrap.servers": mock_broker.bootstrap})) as admin:
        assert admin.client_ids("g") == []


def test_its_process_ends_with_it() -> None:
    with MockBroker() as broker:
        assert broker.alive
    assert not broker.alive
    with pytest.raises((ServiceFailed, ValueError)):
        broker.rtt(1)
