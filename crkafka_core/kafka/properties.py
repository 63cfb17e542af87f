"""Properties of the Kafka clients: the user's, with what the system needs forced or filled in (SPEC 17, X7, R1)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from crkafka_core.model.errors import ConfigError
from crkafka_core.model.limits import Limits

_log = logging.getLogger(__name__)

Warn = Callable[[str], None]

DEFAULTS: dict[str, str] = {
    "isolation.level": "read_committed",
    "fetch.queue.backoff.ms": "5",  # docs/clients.md K11: nine times the speed of the default
    "heartbeat.interval.ms": "1000",  # a member learns of a rebalance by heartbeat: docs/clients.md R1
    "reconnect.backoff.max.ms": "2000",
    "allow.auto.create.topics": "false",
    "topic.metadata.refresh.interval.ms": "1000",
    "enable.partition.eof": "true",  # the only sign that nothing but control records is left: SPEC V3
    "check.crcs": "true",  # else a record that is damaged on the broker's disk is left out without a word: docs/clients.md K24
    # A member stays below 300 MB with an unbounded backlog (SPEC 21, row 7).
    "queued.max.messages.kbytes": "32768",
    "queued.min.messages": "50000",
    "fetch.max.bytes": "16777216",
    "socket.keepalive.enable": "true",
}

FORCED: dict[str, tuple[str, str]] = {
    "enable.auto.commit": ("false", "offsets are committed by drain, together with a checkpoint"),
    "enable.auto.offset.store": ("false", "offsets are kept by the offset manager"),
    "auto.offset.reset": ("error", "a vanished offset must be seen, not jumped over; say `start:` instead"),
}
"""Property → the only value that works, and why."""

RECEIVED_BYTES = 100_000_000
"""librdkafka's own `receive.message.max.bytes`: a larger answer of a broker ends the connection, again and again."""
RECEIVED_BESIDE = 512
"""Bytes of an answer beside a message, as librdkafka reckons."""

MAX_METADATA_REFRESH_MS = 2_000  # SPEC M7
_ASSIGNORS = ("range", "roundrobin")
_CONNECTION = (
    *("bootstrap.", "security.", "sasl.", "ssl.", "socket.", "broker.", "client.", "https."),
    *("enable.ssl", "enable.sasl", "debug"),
)
_SECRET_WORDS = ("password", "secret", "key.pem", "sasl.jaas", "token", "sasl.oauthbearer.config")


def client_properties(
    kafka: Mapping[str, str],
    limits: Limits,
    *,
    client_id: str,
    instance_id: str | None = None,
    single_topic: bool = False,
    warn: Warn = _log.warning,
) -> dict[str, str]:
    """Properties of one member's consumer. `kafka` holds resolved values: they must not be logged.

    `single_topic`: the subscription names exactly one topic (SPEC R1). What is replaced is told to `warn`; what
    contradicts the system is a ConfigError.
    """
    given = {name: _text(value) for name, value in kafka.items()}
    _require(given)
    for name, (value, why) in FORCED.items():
        if given.get(name, value).lower() not in (value, "none" if name == "auto.offset.reset" else value):
            raise ConfigError(f"kafka: `{name}` must be {value}: {why}.", hint=f"Remove `{name}`.")
    properties = {**DEFAULTS, **_timeouts(given, limits, warn), **given}
    properties |= {name: value for name, (value, _) in FORCED.items()}
    properties["client.id"] = client_id  # docs/clients.md K16: equal ones can loop the assignor for ever
    properties["group.protocol"] = _protocol(given)
    properties["partition.assignment.strategy"] = _assignors(given, single_topic, warn)
    _refresh(properties, warn)
    if "group.instance.id" in given:
        raise ConfigError(
            "kafka: `group.instance.id` cannot be set by hand: every member needs its own.",
            hint="Remove it; static membership is made from region and operator name.",
        )
    if instance_id is not None:
        properties["group.instance.id"] = instance_id
    return properties


def admin_properties(kafka: Mapping[str, str], *, client_id: str) -> dict[str, str]:
    """Properties of a client that only asks: connection and security of the user, nothing of the group."""
    given = {name: _text(value) for name, value in kafka.items()}
    _require(given, group=False)
    kept = {name: value for name, value in given.items() if name.startswith(_CONNECTION)}
    return {"reconnect.backoff.max.ms": "2000", "socket.keepalive.enable": "true", **kept, "client.id": client_id}


def reader_properties(kafka: Mapping[str, str], *, client_id: str) -> dict[str, str]:
    """Properties of a consumer that reads given ranges by `assign`, with no effect on a group (SPEC K3).

    It names the region's group, which this user has the right to read, and joins none.
    """
    connection = admin_properties(kafka, client_id=client_id)
    given = {name: _text(value) for name, value in kafka.items()}
    tuned = {name: value for name, value in DEFAULTS.items() if name != "heartbeat.interval.ms"}
    passed = {n: v for n, v in given.items() if n.startswith(("fetch.", "queued.", "isolation.", "check.crcs"))}
    forced = {name: value for name, (value, _) in FORCED.items()}
    return {**tuned, **connection, **passed, **forced, "group.id": given.get("group.id", client_id)}


def shown(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties as a person or a log may see them: secrets are replaced by `***` (SPEC 17)."""
    return {n: "***" if any(word in n for word in _SECRET_WORDS) else v for n, v in sorted(properties.items())}


def _require(given: Mapping[str, str], *, group: bool = True) -> None:
    for name in ("bootstrap.servers", *(("group.id",) if group else ())):
        if not given.get(name, "").strip():
            raise ConfigError(f"kafka: `{name}` is missing.", hint=f"Add `{name}` to `kafka:`.")


def _timeouts(given: Mapping[str, str], limits: Limits, warn: Warn) -> dict[str, str]:
    session = round(limits.session_timeout * 1000)
    poll = max(300_000, round(3 * max(limits.drain_timeout, limits.reset_timeout) * 1000))  # SPEC X7
    session = _whole(given, "session.timeout.ms", session)
    wanted = _whole(given, "max.poll.interval.ms", poll)
    if wanted < session:
        raise ConfigError(
            f"kafka: `max.poll.interval.ms` ({wanted}) is below `session.timeout.ms` ({session}).",
            hint=f"Remove it, or set at least {poll}.",
        )
    if wanted < poll:
        warn(
            f"kafka: max.poll.interval.ms {wanted} is below 3 × max(drain_timeout, reset_timeout) = {poll}: "
            "a long cut or reset can cost a member its partitions."
        )
    beat = min(int(DEFAULTS["heartbeat.interval.ms"]), max(1, session // 3))
    return {
        "session.timeout.ms": str(session),
        "max.poll.interval.ms": str(max(poll, session)),
        "heartbeat.interval.ms": str(beat),
    }


def _protocol(given: Mapping[str, str]) -> str:
    protocol = given.get("group.protocol", "classic").lower()
    if protocol != "classic":
        raise ConfigError(
            f"kafka: `group.protocol={protocol}` is not supported: a consistent region needs the classic protocol.",
            hint="Remove `group.protocol`.",
        )
    return protocol


def _assignors(given: Mapping[str, str], single_topic: bool, warn: Warn) -> str:
    """Range for exactly one topic, else round robin; both are listed, so that a subscription may grow (SPEC R1)."""
    default = _ASSIGNORS if single_topic else _ASSIGNORS[::-1]
    asked = [name.strip() for name in given.get("partition.assignment.strategy", "").split(",") if name.strip()]
    kept = [name for name in asked if name in _ASSIGNORS]
    unknown = [name for name in asked if name not in (*_ASSIGNORS, "cooperative-sticky")]
    if unknown:
        raise ConfigError(
            f"kafka: unknown `partition.assignment.strategy` {', '.join(unknown)}.", hint="Use range or roundrobin."
        )
    if "cooperative-sticky" in asked:
        warn(
            "kafka: partition.assignment.strategy cooperative-sticky is replaced by "
            f"{(kept or default)[0]}: a consistent region works with eager assignors only."
        )
    first = kept or list(default)
    return ",".join(dict.fromkeys([*first, *default]))


def _refresh(properties: dict[str, str], warn: Warn) -> None:
    name = "topic.metadata.refresh.interval.ms"
    wanted = _whole(properties, name, MAX_METADATA_REFRESH_MS)
    if not 0 < wanted <= MAX_METADATA_REFRESH_MS:
        most = str(MAX_METADATA_REFRESH_MS)
        warn(f"kafka: {name} {wanted} is replaced by {most}, so that new partitions are seen within seconds.")
        properties[name] = most


def _whole(given: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(given.get(name, default))
    except ValueError:
        raise ConfigError(f"kafka: `{name}` must be a whole number, not {given[name]!r}.") from None


def _text(value: object) -> str:
    """YAML's true and 5 are `true` and `5` to librdkafka."""
    return str(value).lower() if isinstance(value, bool) else str(value)
