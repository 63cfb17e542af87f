"""Properties of the clients: forced, filled in, passed through, refused (SPEC 17, X7, R1, M7)."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from crkafka_core.kafka.properties import admin_properties, client_properties, reader_properties, shown
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.limits import Limits

GIVEN = {"bootstrap.servers": "localhost:9092", "group.id": "orders"}


def made(
    limits: Limits | None = None, *, single_topic: bool = False, **given: object
) -> tuple[dict[str, str], list[str]]:
    warnings: list[str] = []
    extra = {name.replace("_", "."): value for name, value in given.items()}
    properties = client_properties(
        GIVEN | extra,  # type: ignore[arg-type]
        limits or Limits(),
        client_id="orders/0",
        single_topic=single_topic,
        warn=warnings.append,
    )
    return properties, warnings


def test_what_must_be_is_there_and_librdkafka_takes_all_of_it() -> None:
    properties, warnings = made()
    assert warnings == []
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


def test_users_properties_pass_through() -> None:
    properties, _ = made(isolation_level="read_uncommitted", ssl_ca_location="/ca.pem", session_timeout_ms=10_000)
    assert properties["isolation.level"] == "read_uncommitted"
    assert properties["ssl.ca.location"] == "/ca.pem"
    assert properties["session.timeout.ms"] == "10000"


def test_timeouts_follow_the_limits() -> None:
    properties, _ = made(Limits(session_timeout=6, drain_timeout=400, reset_timeout=20))
    assert properties["session.timeout.ms"] == "6000"
    assert properties["max.poll.interval.ms"] == "1200000"
    assert int(properties["heartbeat.interval.ms"]) * 3 <= 6000


def test_a_short_poll_interval_is_warned_of_and_one_below_the_session_refused() -> None:
    properties, warnings = made(max_poll_interval_ms=60_000)
    assert properties["max.poll.interval.ms"] == "60000"
    assert len(warnings) == 1
    with pytest.raises(ConfigError, match=r"max\.poll\.interval\.ms"):
        made(max_poll_interval_ms=1_000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable_auto_commit", True),
        ("enable_auto_commit", "true"),
        ("enable_auto_offset_store", "true"),
        ("auto_offset_reset", "earliest"),
        ("group_protocol", "consumer"),
        ("group_instance_id", "me"),
        ("partition_assignment_strategy", "sticky"),
        ("session_timeout_ms", "soon"),
        ("bootstrap_servers", ""),
        ("group_id", " "),
    ],
)
def test_contradictions_are_refused_with_the_property_named(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        made(**{name: value})
    assert name.replace("_", ".") in str(caught.value)


def test_forced_values_may_be_spelled_out() -> None:
    assert made(enable_auto_commit=False, auto_offset_reset="error", group_protocol="classic")[1] == []


def test_range_for_one_topic_else_round_robin_and_both_are_listed() -> None:
    """SPEC R1."""
    name = "partition.assignment.strategy"
    assert made(single_topic=True)[0][name] == "range,roundrobin"
    assert made(single_topic=False)[0][name] == "roundrobin,range"
    assert made(single_topic=False, partition_assignment_strategy="range")[0][name] == "range,roundrobin"


def test_a_cooperative_assignor_is_replaced_with_a_warning() -> None:
    """SPEC R1."""
    properties, warnings = made(single_topic=True, partition_assignment_strategy="cooperative-sticky")
    assert properties["partition.assignment.strategy"] == "range,roundrobin"
    assert "cooperative-sticky is replaced by range" in warnings[0]


def test_a_slow_metadata_refresh_is_replaced_with_a_warning() -> None:
    """SPEC M7."""
    properties, warnings = made(topic_metadata_refresh_interval_ms=300_000)
    assert properties["topic.metadata.refresh.interval.ms"] == "2000"
    assert len(warnings) == 1


def test_an_admin_gets_connection_and_security_only() -> None:
    properties = admin_properties(
        GIVEN | {"sasl.password": "geheim", "session.timeout.ms": "1", "isolation.level": "x"}, client_id="a"
    )
    assert properties["sasl.password"] == "geheim"
    assert not {"group.id", "session.timeout.ms", "isolation.level"} & set(properties)


def test_secrets_are_not_shown() -> None:
    secret = {"sasl.password": "geheim", "ssl.key.pem": "geheim", "ssl.key.password": "geheim"}
    seen = shown(made()[0] | secret | {"sasl.oauthbearer.client.secret": "geheim"})
    assert "geheim" not in str(seen)
    assert seen["bootstrap.servers"] == "localhost:9092"
    for broken in ("true", "yes"):
        with pytest.raises(ConfigError) as caught:
            client_properties(GIVEN | secret | {"enable.auto.commit": broken}, Limits(), client_id="x")
        assert "geheim" not in str(caught.value)
