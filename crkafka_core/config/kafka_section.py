"""The `kafka` section: any client property, checked for what a consistent region needs (SPEC U1, R1, R7, X7)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from crkafka_core.config import reference, secret
from crkafka_core.config.problem import KeyedError, nearest
from crkafka_core.model.errors import ConfigError

Scalar = str | int | float

ASSIGNORS = ("range", "roundrobin")
"""The eager assignors; each member lists both, so that a subscription may grow (SPEC R1)."""
COOPERATIVE = "cooperative-sticky"
FORCED = ("auto.offset.reset", "enable.auto.commit", "enable.auto.offset.store")
"""Properties of which the client gets our own value (SPEC S2: librdkafka's reset is always `error`)."""
BROKERS_OWN = ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy")
"""Properties of a member that are the broker's with KIP-848; the client refuses them there."""
MAX_METADATA_REFRESH_MS = 2_000
"""Longest refresh, so that new partitions are seen within seconds (SPEC M7)."""
FALLBACKS = dict.fromkeys(("earliest", "beginning", "smallest"), "earliest")
FALLBACKS |= dict.fromkeys(("latest", "end", "largest"), "latest") | {"error": "error"}
"""Values of `auto.offset.reset` → the one of each meaning."""
_DENIED = {
    "plugin.library.paths": "loads a library of its choice into every member",
    "ssl.engine.location": "loads a library of its choice into every member",
    "sasl.kerberos.kinit.cmd": "runs a command line of its choice in every member; the client's own `kinit` is run without it",
}
"""Properties that would let a line of configuration run programs."""
CALLBACK = "sasl.oauthbearer.callback"
"""Ours, not librdkafka's: the name of an entry point of the group `crkafka.oauthbearer`, a function that returns tokens."""
_NAMES_A_FUNCTION = "names a function that a package declares as an entry point of the group crkafka.oauthbearer"
_PATTERNS = {
    CALLBACK: (r"\w[\w.-]*", f"{_NAMES_A_FUNCTION}; write that name"),
    # librdkafka puts these into the command line of its `kinit`.
    "sasl.kerberos.principal": (r"\w[\w.@/-]*", "reaches a command line; write a principal, as user/host@REALM"),
    "sasl.kerberos.service.name": (r"\w[\w.-]*", "reaches a command line; write a name, as kafka"),
    "sasl.kerberos.keytab": (r"[\w.@/:+=, -]+", "reaches a command line; write a path without quotes or other signs"),
}
"""Patterns of values that name code or reach a shell."""
_ELSEWHERE = {
    "metadata.broker.list": "is another name of bootstrap.servers; write only that",
    "topic.blacklist": "hides topics from the client alone, and the region waits for them; name topics, or mend the pattern",
    "oauth_cb": "is an argument of Python's client; write sasl.oauthbearer.callback: NAME",
    "default.topic.config": "is an argument of Python's client; write what is in it as properties",
    "group.instance.id": "is made from the region and each member's name; leave it out, or set static_membership: false",
    **dict.fromkeys(
        ("error_cb", "stats_cb", "throttle_cb", "on_commit", "on_delivery", "logger"),
        "is an argument of Python's client, and takes no text; leave it out",
    ),
}
"""Properties that have no place here → why, and what to write instead."""
_NUMBER = re.compile(r"\.(ms|k?bytes|messages|seconds|cnt|fails|ttl)$")
"""Names of properties that are whole numbers. The client silently reads `30s` as 30, and `64MB` as 64."""
OFF = ("false", "0", "f", "no", "off")
_ADDRESS = re.compile(
    r"(?:(?:plaintext|ssl|sasl_plaintext|sasl_ssl)://)?(?:\[[0-9a-f:.%\w]+\]|[^\s:/\[\]@$]+)(?::(?P<port>\d{1,5}))?",
    re.IGNORECASE,
)
_NAMES = """
allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms auto.commit.enable
auto.commit.interval.ms auto.offset.reset bootstrap.servers broker.address.family broker.address.ttl broker.version.fallback
builtin.features check.crcs client.dns.lookup client.id client.rack connections.max.idle.ms coordinator.query.interval.ms debug
enable.auto.commit enable.auto.offset.store enable.metrics.push enable.partition.eof enable.random.seed
enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes
fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type
group.remote.assignor heartbeat.interval.ms https.ca.location https.ca.pem internal.termination.signal isolation.level log.connection.close
log.queue log.thread.name log_level max.in.flight max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms
max.poll.records message.copy.max.bytes message.max.bytes metadata.broker.list metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
metadata.recovery.strategy offset.store.method offset.store.path offset.store.sync.interval.ms partition.assignment.strategy
plugin.library.paths queued.max.messages.kbytes queued.min.messages receive.message.max.bytes reconnect.backoff.jitter.ms
reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism sasl.mechanisms
sasl.oauthbearer.callback sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions sasl.oauthbearer.grant.type
sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol session.timeout.ms socket.blocking.max.ms
socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails socket.nagle.disable socket.receive.buffer.bytes
socket.send.buffer.bytes socket.timeout.ms ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location
ssl.certificate.pem ssl.cipher.suites ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.id
ssl.engine.location ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.providers
ssl.sigalgs.list statistics.interval.ms topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
"""
KNOWN = frozenset(_NAMES.split())
"""librdkafka 2.16's properties of a consumer, to distinguish a typo from a newer property."""
_JAVA = {
    "max.poll.records": "write max_poll_records beside the kafka section",
    "key.deserializer": "records are kept as bytes; decode them in Spark",
    "value.deserializer": "records are kept as bytes; decode them in Spark",
    "sasl.jaas.config": "librdkafka takes sasl.username and sasl.password (as references)",
    "ssl.truststore.location": "librdkafka takes ssl.ca.location (PEM)",
}


def normal(properties: Mapping[str, Any]) -> dict[str, Scalar]:
    """Properties in librdkafka's form; ValueError with one sentence for the first wrong one."""
    out: dict[str, Scalar] = {}
    for name, value in properties.items():
        if isinstance(value, bool):
            value = "true" if value else "false"
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, str | int | float):
            joined = ",".join(map(str, value)) if name == "bootstrap.servers" and isinstance(value, list) else ""
            what = f'one text: write "{joined}"' if joined else "text, a number, or true or false"
            if isinstance(value, Mapping):
                what += f"; a property's name is one key: write {name}.{next(iter(value), '…')}"
            raise KeyedError(name, f"must be {what}")
        if name not in _JAVA:  # refused in `_check`, with what to write instead
            try:
                secret.check(name, str(value))
            except ValueError as error:
                raise KeyedError(name, str(error)) from None
        out[name] = value
    for name, value in out.items():
        _check(name, value)
    _check_required(out)
    _check_timeouts(out)
    _check_protocol(out)
    if str(out.get("sasl.mechanism", out.get("sasl.mechanisms", ""))).upper() == "OAUTHBEARER":
        oidc = str(out.get("sasl.oauthbearer.method", "")).lower() == "oidc"
        if not oidc and CALLBACK not in out and "enable.sasl.oauthbearer.unsecure.jwt" not in out:
            raise KeyedError(CALLBACK, f"is missing: it {_NAMES_A_FUNCTION}; or set sasl.oauthbearer.method: oidc")
    return out


def check_resolved(properties: Mapping[str, str]) -> None:
    """Check resolved properties, whose references could not be checked before."""
    try:
        _check_required(properties)
        for name, value in properties.items():
            _check_number(name, value)
            _check_pattern(name, value)
        assignors(properties.get("partition.assignment.strategy", ""))
        _check_protocol(properties)
    except KeyedError as error:
        raise ConfigError(f"kafka: `{error.key}` {error}", hint="Look at what its reference resolves to.") from None


def has_member_epochs(properties: Mapping[str, Scalar]) -> bool:
    """Whether the group is KIP-848's: the broker assigns, and each member has an epoch of its own instead of the group's generation."""
    return str(properties.get("group.protocol", "")).lower() == "consumer"


def _check_required(properties: Mapping[str, Scalar]) -> None:
    for name in ("bootstrap.servers", "group.id"):
        if not str(properties.get(name, "")).strip():
            raise KeyedError(name, f"is missing.{nearest(name, [n for n in properties if n not in KNOWN])}")


def _check(name: str, value: Scalar) -> None:
    text = str(value).strip().lower()
    if name in _JAVA:
        raise KeyedError(name, f"is a property of the Java client: {_JAVA[name]}")
    if name in _DENIED:
        raise KeyedError(name, f"{_DENIED[name]}; leave it out")
    if name in _ELSEWHERE:
        raise KeyedError(name, _ELSEWHERE[name])
    if not reference.has_reference(text):
        _check_number(name, value)
        _check_pattern(name, value)
    if name == "bootstrap.servers" and "@" in reference.mask(text)[0]:
        raise KeyedError(name, "takes host:port; a login does not belong there: write sasl.username and sasl.password")
    if name in ("enable.auto.commit", "auto.commit.enable") and text not in OFF:
        raise KeyedError(name, "must be false: offsets are committed by the cut, never on a timer; leave it out")
    if name == "enable.auto.offset.store" and text not in OFF:
        raise KeyedError(name, "must be false: the region keeps its own offsets; leave it out")
    if name == "enable.partition.eof" and text in OFF:
        raise KeyedError(name, "must be true: a bounded run learns by it that nothing is left; leave it out")
    if name == "ssl.providers" and not re.fullmatch(r"[\w-]+(\s*,\s*[\w-]+)*", text):
        raise KeyedError(name, f"{_DENIED['ssl.engine.location']}, if it is a path; name providers, as default,legacy")
    if name == "bootstrap.servers":
        for address in filter(None, map(str.strip, str(value).split(","))):
            _check_address(address)
    if name == "auto.offset.reset" and text not in FALLBACKS:
        raise KeyedError(name, f"must be earliest, latest or error, not {value!r}.{nearest(text, FALLBACKS)}")
    if name == "partition.assignment.strategy":
        assignors(",".join(word for word in text.split(",") if not reference.has_reference(word)))
    if name not in KNOWN and nearest(name, KNOWN):
        raise KeyedError(name, f"unknown property.{nearest(name, KNOWN)}")


def _check_number(name: str, value: Scalar) -> None:
    if _NUMBER.search(name) and not re.fullmatch(r"-?[0-9]+", str(value).strip()):
        unit = " of milliseconds" if name.endswith(".ms") else ""
        raise KeyedError(name, f"must be a whole number{unit}, not {value!r}")


def _check_pattern(name: str, value: Scalar) -> None:
    pattern, why = _PATTERNS.get(name, ("", ""))
    if pattern and not re.fullmatch(pattern, str(value), re.ASCII):
        raise KeyedError(name, why)


def _check_address(address: str) -> None:
    """Refuse an address that librdkafka cannot parse: it would try it for ever."""
    if reference.has_reference(address):
        return
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match["port"] or 9092) < 65536:
        shown = "what is there" if any(secret.secrets_in(address)) else repr(address)
        write = "host:port, such as localhost:9092" if "$" not in address else "${env:NAME} for what a variable has"
        raise KeyedError("bootstrap.servers", f"{shown} is not the address of a broker; write {write}")


def assignors(strategy: str) -> list[str]:
    """The assignors in a strategy; KeyedError for an unknown one, and for a cooperative one beside others."""
    words, known = [word.strip() for word in strategy.lower().split(",") if word.strip()], (*ASSIGNORS, COOPERATIVE)
    for word in words:
        if word not in known:
            why = f"knows {', '.join(known)}, not {word!r}.{nearest(word, known)}"
            raise KeyedError("partition.assignment.strategy", why)
    if COOPERATIVE in words and len(set(words)) > 1:
        why = f"takes {COOPERATIVE} alone: the client mixes it with no other"
        raise KeyedError("partition.assignment.strategy", why)
    return words


def _check_protocol(properties: Mapping[str, Scalar]) -> None:
    protocol = str(properties.get("group.protocol", "classic")).lower()
    if protocol not in ("classic", "consumer") and not reference.has_reference(protocol):
        raise KeyedError("group.protocol", f"must be classic or consumer, not {protocol!r}")
    if protocol == "classic" and "group.remote.assignor" in properties:
        why = "is for group.protocol: consumer; leave it out, write partition.assignment.strategy"
        raise KeyedError("group.remote.assignor", why)
    if protocol != "consumer":
        return
    for name, write in {
        "partition.assignment.strategy": "write group.remote.assignor, uniform or range",
        "group.protocol.type": "the client refuses it",
        "heartbeat.interval.ms": "it is group.consumer.heartbeat.interval.ms there",
    }.items():
        if name in properties:
            raise KeyedError(name, f"cannot be set with group.protocol: consumer; leave it out, {write}")


def _check_timeouts(properties: Mapping[str, Scalar]) -> None:
    numbers = {}
    timeouts = ("session.timeout.ms", "max.poll.interval.ms", "heartbeat.interval.ms")
    for name in (*timeouts, "topic.metadata.refresh.interval.ms"):
        if name in properties:
            try:
                numbers[name] = int(properties[name])
            except (ValueError, OverflowError):
                raise KeyedError(name, f"must be a whole number of milliseconds, not {properties[name]!r}") from None
            if numbers[name] <= 0 and name in timeouts:
                raise KeyedError(name, "must be above 0")
    session = numbers.get("session.timeout.ms", 45_000)
    beat, poll = numbers.get("heartbeat.interval.ms", 0), numbers.get("max.poll.interval.ms", session)
    if beat >= session:
        why = f"must be below session.timeout.ms ({session}), best a third of it, but is {beat}"
        raise KeyedError("heartbeat.interval.ms", why)
    if poll < session:
        raise KeyedError("max.poll.interval.ms", f"must not be below session.timeout.ms ({session}), but is {poll}")
