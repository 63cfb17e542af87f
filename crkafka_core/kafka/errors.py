"""Kafka's errors, one class per reaction, and the table from librdkafka's codes to reactions (SPEC X11).

A code that the table does not name is an outage: it is waited for, alarmed by time, and blamed on no member.
"""

from __future__ import annotations

import re

from confluent_kafka import KafkaError, KafkaException

from crkafka_core.model.errors import ConfigError, CrkafkaError, DataLoss, Lost, Refused, ServiceUnavailable
from crkafka_core.model.offsets import TP


class KafkaUnavailable(ServiceUnavailable):
    """Kafka cannot answer now. Reaction: wait and try again; a cut is aborted, uncounted (SPEC D2, X6, X11)."""

    names_reason = True
    """False for "no broker is reachable", which may hide the reason: it also follows a refused login."""


class GroupRebalanced(Refused):
    """Old generation, unknown member, or a rebalance on its way. Reaction: abort the cut, reset, no restart (SPEC D2)."""


class Fenced(Lost):
    """Another consumer uses our `group.instance.id` (docs/clients.md C-R2). Reaction: SQL decides which one stays (SPEC R7)."""


class PolledTooLate(GroupRebalanced):
    """`max.poll.interval.ms` passed without a poll; the group went on without us. Reaction: poll on; `lost` follows."""


class KafkaFailed(CrkafkaError):
    """The client itself is broken. Reaction: the member fails, and is restarted with a new client."""


class NotAllowed(ConfigError):
    """Kafka refuses our login or our rights. Reaction: wait; after a minute of refusals the region stops (SPEC X11)."""

    reported_once = False
    """True if the client does not repeat the error while the refusal lasts (docs/clients.md C-K33)."""


class OffsetGone(DataLoss):
    """Kafka no longer holds an offset (SPEC S4, docs/clients.md C-R10). Reaction: request a reset, which finds the gap."""

    def __init__(self, tp: TP, offset: int) -> None:
        super().__init__(
            f"Kafka no longer has offset {offset} of {tp}.",
            hint="Retention or a truncation removed it: the reset that follows compares the region's offsets with Kafka's.",
        )
        self.tp = tp
        self.offset = offset


class RecordUnreadable(CrkafkaError):
    """A record that the client cannot decode. Reaction: its partition stands still, all others go on (SPEC X9)."""

    def __init__(self, tp: TP, offset: int, why: str) -> None:
        super().__init__(
            f"{tp}@{offset} cannot be read: {why}.",
            hint=f"If the brokers have no better copy: let a cut land what comes before, then `crkafka skip {tp}@{offset}`, or "
            f"`{tp}@{offset}-LAST` for a whole batch.",
        )


class TopicGone(DataLoss):
    """The topic or partition no longer exists (SPEC S4). Reaction: the next reset compares the region's topics with Kafka's."""


UNREADABLE = {
    *(KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._NOT_IMPLEMENTED),
    *(KafkaError.INVALID_MSG, KafkaError.MSG_SIZE_TOO_LARGE),
}
"""Codes of an unreadable record: `RecordUnreadable`. As errors of a connection (a proxy that answers in HTTP) they are an outage."""
VANISHED = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
"""Codes of an offset outside the log, deleted by retention or past the end: `OffsetGone`."""
_RIGHTS = {
    *(KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
"""Missing rights. FindCoordinator and metadata report them once, JoinGroup each second (docs/clients.md C-K33)."""
_REACTIONS: dict[type[CrkafkaError], tuple[str, tuple[int, ...]]] = {
    KafkaUnavailable: ("It is tried again.", ()),
    GroupRebalanced: (
        "The group rebalanced: the region resets by itself.",
        (
            *(KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS),
            *(KafkaError.STALE_MEMBER_EPOCH, KafkaError.FENCED_MEMBER_EPOCH, KafkaError._ASSIGNMENT_LOST),
        ),
    ),
    PolledTooLate: ("A member was held up for longer than `max.poll.interval.ms`.", (KafkaError._MAX_POLL_EXCEEDED,)),
    Fenced: (
        "Another consumer has joined with the same `group.instance.id`.",
        (KafkaError.FENCED_INSTANCE_ID, KafkaError._FENCED),
    ),
    NotAllowed: (
        "Check the security properties, and the rights of this user in Kafka.",
        (
            *(KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED),
            *(KafkaError.UNSUPPORTED_SASL_MECHANISM, KafkaError.SECURITY_DISABLED, *_RIGHTS),
        ),
    ),
    TopicGone: (
        "Was the topic deleted? See `crkafka forget TOPIC`.",
        (
            *(KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION),
            *(KafkaError.UNKNOWN_TOPIC_ID, KafkaError.INCONSISTENT_TOPIC_ID),
        ),
    ),
    KafkaFailed: ("A new client takes over.", (KafkaError._FATAL, KafkaError._CRIT_SYS_RESOURCE)),
}
"""Hint and codes of each reaction."""
REACTIONS = {code: reaction for reaction, (_, codes) in _REACTIONS.items() for code in codes}
"""Reaction by code. Codes that are not listed, those of later brokers included, are `KafkaUnavailable`."""
_SILENT = {
    *(KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE),
    *(KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE),
}
"""Codes of "no broker answered"; their librdkafka names say no more."""
_NO_SUCH_EPOCH = "broker end offset is -"
"""Text for a leader epoch that the broker never had; librdkafka has no code for it (docs/clients.md C-K25)."""
_NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token"
"""Text for a failed token callback: the token service is away, Kafka refused nothing (docs/clients.md C-K33)."""
_ENDED = {
    "closed by peer.* in state SSL_HANDSHAKE": "It may take no TLS there: are `security.protocol` and the port right?",
    "SSL routines::": "It wants a certificate of this client that it knows: see `ssl.certificate.location` and `ssl.key.location`.",
}
"""Regular expression over librdkafka's text for a closed connection → the probable cause, as a hint."""


def epoch_unknown(error: KafkaError) -> bool:
    """Whether the broker does not know the leader epoch of the request."""
    return error.code() in VANISHED and _NO_SUCH_EPOCH in error.str()


def broker_in(error: KafkaError) -> str:
    """`, at broker HOST:PORT` for a broker that does not answer, else empty."""
    if error.code() not in _SILENT:
        return ""
    broker = re.match(r"(?:\w+://)?(\S+:\d+)/(?:bootstrap|\d+): ", error.str())
    return f", at broker {broker[1]}" if broker else ""


def error_of(error: KafkaError | KafkaException, what: str) -> CrkafkaError:
    """The error for a librdkafka error that happened while doing `what` ("committing offsets of group orders"). librdkafka's text names
    brokers, codes and reasons, never passwords; no property is added here (SPEC U2)."""
    if isinstance(error, KafkaException):
        error = error.args[0] if error.args and isinstance(error.args[0], KafkaError) else KafkaError(KafkaError._FAIL)
    code = error.code()
    text = f"Kafka failed {what}: {error.name()} ({error.str()})."
    if "certificate verify failed" in text:  # either code, _SSL or _TRANSPORT, by chance
        return NotAllowed(
            text,
            hint="Did the authority in `ssl.ca.location` sign the broker's certificate, and is the broker's name, as "
            "`bootstrap.servers` and the broker's own advertised address have it, in that certificate?",
        )
    # A connection that broke during login is reported as a refused login (docs/clients.md C-K29).
    if code in _SILENT or (code == KafkaError._AUTHENTICATION and "Broker transport failure" in error.str()):
        return _no_answer(error, what)
    if re.search(r"supported mechanisms:\s*\(", text):
        return NotAllowed(
            f"Kafka takes no login at this listener ({what}).",
            hint="Is the port the right one? Else `security.protocol` is PLAINTEXT there, or SSL.",
        )
    if _NO_TOKEN in text:
        return KafkaUnavailable(text, hint="The log has the error of `sasl.oauthbearer.callback`; it is called again.")
    # A fenced static member has the general code for "fatal" (docs/clients.md C-R2); only the text distinguishes it.
    fenced = code == KafkaError._FATAL and "fenced" in text.lower()
    kind = Fenced if fenced else REACTIONS.get(code, KafkaUnavailable)
    result = kind(text, hint=_REACTIONS[kind][0])
    if isinstance(result, NotAllowed):
        result.reported_once = code in _RIGHTS and "JoinGroup failed" not in text
    return result


def _no_answer(error: KafkaError, what: str) -> KafkaUnavailable:
    why = next((why for words, why in _ENDED.items() if re.search(words, error.str())), "")
    away = KafkaUnavailable(
        f"Kafka {'ends the connection' if why else 'does not answer'} ({what}).",
        hint=why or "Is the broker up, and are `bootstrap.servers` and `security.protocol` right?",
    )
    away.names_reason = error.code() != KafkaError._ALL_BROKERS_DOWN
    return away


def client_error(error: BaseException, what: str) -> CrkafkaError:
    """The error for any exception of the client while doing `what`."""
    if isinstance(error, CrkafkaError):
        return error
    if isinstance(error, KafkaException):
        return error_of(error, what)
    return KafkaFailed(
        f"The Kafka client failed {what}: {type(error).__name__}: {error}.", hint="A new client takes over."
    )
