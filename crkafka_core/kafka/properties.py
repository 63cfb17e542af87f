"""Properties of the Kafka clients: the user's, with what the system needs forced or filled in (SPEC U1, X7, R1).

What a user may write is checked where it is written: `config/kafka_section.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from crkafka_core.config import kafka_section as section
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.limits import Limits

DEFAULTS: dict[str, str] = {
    "isolation.level": "read_committed",
    "fetch.queue.backoff.ms": "5",  # docs/clients.md C-K11: nine times the speed of the default
    "heartbeat.interval.ms": "1000",  # a member learns of a rebalance by heartbeat: docs/clients.md C-R1
    "reconnect.backoff.max.ms": "2000",
    "allow.auto.create.topics": "false",
    "topic.metadata.refresh.interval.ms": "1000",
    "check.crcs": "true",  # else a record that is damaged on the broker's disk is skipped silently: docs/clients.md C-K24
    # A member stays below 300 MB with an unbounded backlog (docs/speed.md, row 7).
    "queued.max.messages.kbytes": "32768",
    "queued.min.messages": "50000",
    "fetch.max.bytes": "16777216",
    "socket.keepalive.enable": "true",
}

FORCED: dict[str, str] = {
    "enable.auto.commit": "false",  # offsets are committed by drain, together with a checkpoint
    "enable.auto.offset.store": "false",  # offsets are kept by the offset manager
    "enable.partition.eof": "true",  # the only sign that nothing but control records is left: SPEC V3
    "auto.offset.reset": "error",  # a vanished offset must be reported, not skipped; `start:` sets where to begin
}

INTERNAL = "__"
"""Prefix of internal topics, such as `__consumer_offsets`, which no pattern subscribes to (docs/clients.md C-K30)."""
REFRESH = "topic.metadata.refresh.interval.ms"
RECEIVE = "receive.message.max.bytes"
RECEIVED_BYTES = 100_000_000
"""librdkafka's default of `receive.message.max.bytes`: each larger response closes the connection."""
RECEIVED_BESIDE = 512
"""Bytes that librdkafka adds to a message for the rest of a response."""

_CONNECTION = (
    *("bootstrap.", "security.", "sasl.", "ssl.", "socket.", "broker.", "client.", "connections.", "https."),
    *("enable.ssl", "enable.sasl", "debug"),
)


def client_properties(
    kafka: Mapping[str, str],
    limits: Limits,
    *,
    client_id: str,
    instance_id: str | None = None,
    single_topic: bool = False,
    pattern: bool = False,
) -> dict[str, str]:
    """Properties of one member's consumer. `kafka` holds resolved values: they must not be logged. `single_topic`: the subscription names
    exactly one topic (SPEC R1). `pattern`: it is a pattern; internal topics are excluded."""
    given = {name: _text(value) for name, value in kafka.items()}
    properties = {**DEFAULTS, **_timeouts(given, limits), **given, **FORCED}
    properties["client.id"] = client_id  # docs/clients.md C-K16: equal ones can loop the assignor for ever
    if section.has_member_epochs(given):
        properties = {name: value for name, value in properties.items() if name not in section.BROKERS_OWN}
    else:
        properties["partition.assignment.strategy"] = _strategy(given, single_topic)
    if not 0 < int(properties[REFRESH]) <= section.MAX_METADATA_REFRESH_MS:
        properties[REFRESH] = str(section.MAX_METADATA_REFRESH_MS)
    if pattern:
        properties["topic.blacklist"] = f"^{INTERNAL}"
    if instance_id is not None:
        properties["group.instance.id"] = instance_id
    return properties


def admin_properties(kafka: Mapping[str, str], *, client_id: str) -> dict[str, str]:
    """Properties of a client for queries: the user's connection and security, nothing of the group."""
    given = {name: _text(value) for name, value in kafka.items()}
    if not given.get("bootstrap.servers", "").strip():  # options of a reader come without a validated configuration
        raise ConfigError("kafka: `bootstrap.servers` is missing.", hint="Say where Kafka is by `bootstrap.servers`.")
    kept = {name: value for name, value in given.items() if name.startswith(_CONNECTION)}
    return {"reconnect.backoff.max.ms": "2000", "socket.keepalive.enable": "true", **kept, "client.id": client_id}


def reader_properties(kafka: Mapping[str, str], *, client_id: str) -> dict[str, str]:
    """Properties of a consumer that reads given ranges by `assign`, with no effect on a group (SPEC K3). It names the region's group, which
    this user may read, and does not join it."""
    connection = admin_properties(kafka, client_id=client_id)
    given = {name: _text(value) for name, value in kafka.items()}
    tuned = {name: value for name, value in DEFAULTS.items() if name != "heartbeat.interval.ms"}
    own = ("fetch.", "queued.", "isolation.", "check.crcs", RECEIVE)
    passed = {n: v for n, v in given.items() if n.startswith(own)}
    return {**tuned, **connection, **passed, **FORCED, "group.id": given.get("group.id", client_id)}


def _timeouts(given: Mapping[str, str], limits: Limits) -> dict[str, str]:
    session = int(given.get("session.timeout.ms", round(limits.session_timeout * 1000)))
    poll = max(300_000, round(3 * max(limits.drain_timeout, limits.reset_timeout) * 1000))  # SPEC X7
    beat = min(int(DEFAULTS["heartbeat.interval.ms"]), max(1, session // 3))
    return {
        "session.timeout.ms": str(session),
        "max.poll.interval.ms": str(max(poll, session)),
        "heartbeat.interval.ms": str(beat),
    }


def _strategy(given: Mapping[str, str], single_topic: bool) -> str:
    """Range for exactly one topic, else round robin; both are listed, so that a subscription may grow (SPEC R1). A cooperative assignor
    stands alone: the client takes none beside it."""
    default = section.ASSIGNORS if single_topic else section.ASSIGNORS[::-1]
    chosen = section.assignors(given.get("partition.assignment.strategy", ""))
    if section.COOPERATIVE in chosen:
        return section.COOPERATIVE
    return ",".join(dict.fromkeys([*(chosen or default), *default]))


def _text(value: object) -> str:
    """YAML's true and 5 are `true` and `5` to librdkafka."""
    return str(value).lower() if isinstance(value, bool) else str(value)
