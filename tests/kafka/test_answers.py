"""What the real client makes of a broker's answers: it goes on by itself, and reports them (SPEC X11, docs/clients.md C-K33, fault 92)."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from confluent_kafka import KafkaError, Producer

from crkafka_core.kafka.consumer import GroupConsumer
from crkafka_core.kafka.errors import KafkaFailed
from crkafka_core.kafka.properties import client_properties
from crkafka_core.model.limits import Limits
from crkafka_core.testing.mock_broker import CLIENT_SETTINGS, Api, MockBroker


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (Api.FETCH, KafkaError.UNKNOWN),
        pytest.param(Api.FETCH, KafkaError.TOPIC_AUTHORIZATION_FAILED, marks=pytest.mark.soak),  # it waits for 15 s
        (Api.JOIN_GROUP, KafkaError.UNKNOWN),
        (Api.JOIN_GROUP, KafkaError.GROUP_AUTHORIZATION_FAILED),
        (Api.FIND_COORDINATOR, KafkaError.UNKNOWN),
        (Api.FIND_COORDINATOR, KafkaError.GROUP_AUTHORIZATION_FAILED),
    ],
)
def test_92_the_client_goes_on_after_an_answer_that_ends_nothing(mock_broker: MockBroker, api: Api, code: int) -> None:
    topic = mock_broker.create_topic("t", 1, replication=3)
    producer = Producer({"bootstrap.servers": mock_broker.bootstrap})
    for i in range(50):
        producer.produce(topic, b"%d" % i)
    assert producer.flush(20) == 0
    given = {"bootstrap.servers": mock_broker.bootstrap, "group.id": "g"}
    settings = client_properties(given, Limits(), client_id="a", single_topic=True)
    mock_broker.push_request_errors(api, *[code] * 3)
    rows, heard, until = 0, list[Exception](), time.monotonic() + 30
    with closing(GroupConsumer(settings | {key: str(value) for key, value in CLIENT_SETTINGS.items()})) as consumer:
        consumer.subscribe([topic])
        while rows < 50 and time.monotonic() < until:
            polled = consumer.poll(100, 0.1)
            heard += [*polled.errors, *polled.troubles.values()]
            rows += polled.batch.rows if polled.batch is not None else 0
            if polled.rebalances and consumer.held:
                consumer.seek(dict.fromkeys(consumer.held, 0))
                consumer.flow(consumer.held)
    assert rows == 50, heard
    assert KafkaError(code).name() in str(heard[0])
    assert not any(isinstance(error, KafkaFailed) for error in heard)
