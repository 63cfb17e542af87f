"""Properties of the clients: forced, filled in, passed through (SPEC U1, X7, R1, M7)."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from crkafka_core.kafka.properties import admin_properties, client_properties, reader_properties
from crkafka_core.model.limits import Limits

GIVEN = {"bootstrap.servers": "localhost:9092", "group.id": "orders"}


def made(limits: Limits | None = None, *, single_topic: bool = False, **given: object) -> dict[str, str]:
    extra = {name.replace("_", "."): value for name, value in given.items()}
    return client_properties(
        GIVEN | extra,  # type: ignore[arg-type]
        limits or Limits(),
        client_id="orders/0",
        single_topic=single_topic,
    )


def test_what_must_be_is_there_and_librdkafka_takes_all_of_it() -> None:
    properties = made()
    assert properties["enable.auto.commit"] == "false"
    assert properties["auto.offset.reset"] == "error"
    assert properties["isolation.level"] == "read_committed"
    assert properties["session.timeout.ms"] == "45000"
    assert properties["max.poll.interval.ms"] == "540000"
    assert int(properties["topic.metadata.refresh.interval.ms"]) <= 2000
    assert int(properties["fetch.queue.backoff.ms"]) < 100
    assert properties["client.id"] == "orders/0"
    Consumer(properties).close()
    Consumer(reader_properties(GIVEN, client_id="r")).close()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"isolation_level": "read_uncommitted"}, "read_uncommitted"),
        ({"ssl_ca_location": "/ca.pem"}, "/ca.pem"),
        ({"session_timeout_ms": 10_000}, "10000"),
        ({"max_poll_interval_ms": 60_000}, "60000"),
        ({"enable_auto_commit": True}, "false"),
        ({"enable_auto_offset_store": True}, "false"),
        ({"auto_offset_reset": "earliest"}, "error"),
        ({"enable_partition_eof": False}, "true"),  # else a bounded run would wait behind control records (SPEC V3)
        ({"topic_metadata_refresh_interval_ms": 300_000}, "2000"),  # SPEC M7; the configuration warns of it
    ],
)
def test_users_properties_pass_through_but_those_that_are_forced(given: dict[str, object], wanted: str) -> None:
    ((name, _),) = given.items()
    assert made(**given)[name.replace("_", ".")] == wanted


def test_timeouts_follow_the_limits() -> None:
    properties = made(Limits(session_timeout=6, drain_timeout=400, reset_timeout=20))
    assert properties["session.timeout.ms"] == "6000"
    assert properties["max.poll.interval.ms"] == "1200000"
    assert int(properties["heartbeat.interval.ms"]) * 3 <= 6000


def test_whoever_reads_again_takes_answers_as_large_as_a_member() -> None:
    """Else a large record lands, and no replay could read it (SPEC K3)."""
    large = GIVEN | {"receive.message.max.bytes": "150000512"}
    assert reader_properties(large, client_id="r")["receive.message.max.bytes"] == "150000512"


def test_range_for_one_topic_else_round_robin_and_both_are_listed() -> None:
    name = "partition.assignment.strategy"
    assert made(single_topic=True)[name] == "range,roundrobin"
    assert made(single_topic=False)[name] == "roundrobin,range"
    assert made(single_topic=False, partition_assignment_strategy="range")[name] == "range,roundrobin"


def test_a_cooperative_assignor_stands_alone_and_kip848_has_none() -> None:
    """SPEC R1; librdkafka takes both."""
    name = "partition.assignment.strategy"
    cooperative, epochs = made(partition_assignment_strategy="cooperative-sticky"), made(group_protocol="consumer")
    assert cooperative[name] == "cooperative-sticky"
    assert not {name, "session.timeout.ms", "heartbeat.interval.ms"} & epochs.keys()
    for properties in (cooperative, epochs):
        Consumer(properties).close()


def test_an_admin_gets_connection_and_security_only() -> None:
    properties = admin_properties(
        GIVEN
        | {
            "sasl.password": "geheim",
            "connections.max.idle.ms": "180000",
            "session.timeout.ms": "1",
            "isolation.level": "x",
        },
        client_id="a",
    )
    assert properties["sasl.password"] == "geheim"
    assert properties["connections.max.idle.ms"] == "180000", (
        "what is between ends a connection that is idle for longer"
    )
    assert not {"group.id", "session.timeout.ms", "isolation.level"} & set(properties)
