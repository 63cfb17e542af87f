"""What Kafka can say, one class per reaction, and the table from librdkafka's codes to them."""

from __future__ import annotations

import re

from confluent_kafka import KafkaError, KafkaException

from crkafka_core.model.errors import ConfigError, CrkafkaError, DataLoss, Lost, Refused, ServiceUnavailable
from crkafka_core.model.offsets import TP


class KafkaUnavailable(ServiceUnavailable):
    """No broker answers, or no coordinator. Reaction: wait and try again; a cut is aborted, uncounted (SPEC D2, X6)."""


class GroupRebalanced(Refused):
    """Old generation, unknown member, or a rebalance on its way. Reaction: abort the cut, reset, no restart (SPEC D2)."""


class Fenced(Lost):
    """Another consumer uses our `group.instance.id` (docs/clients.md C-R2). Reaction: SQL decides which one stays (SPEC R7)."""


class PolledTooLate(GroupRebalanced):
    """`max.poll.interval.ms` passed without a poll; the group went on without us. Reaction: poll on; `lost` follows."""


class CommitFailed(CrkafkaError):
    """A commit failed for a reason we do not know. Reaction: fail, and be restarted (SPEC D2)."""


class KafkaFailed(CrkafkaError):
    """A fatal or unknown error of the client. Reaction: fail, and be restarted with a new client."""


class NotAllowed(ConfigError):
    """Kafka refuses our identity, or what it may do. Reaction: mend the security settings or the rights."""


class OffsetGone(DataLoss):
    """Kafka no longer holds an offset (SPEC S4, docs/clients.md C-R10). Reaction: request a reset, which finds the gap."""

    def __init__(self, tp: TP, offset: int) -> None:
        super().__init__(
            f"Kafka no longer has offset {offset} of {tp}.",
            hint="Retention or a truncation removed it: the reset that follows compares with what is left.",
        )
        self.tp = tp
        self.offset = offset


class RecordUnreadable(CrkafkaError):
    """The client cannot make anything of what the broker gives. Reaction: the partition stands still, all else goes on (SPEC X9)."""

    def __init__(self, tp: TP, offset: int, why: str) -> None:
        super().__init__(
            f"{tp}@{offset} cannot be read: {why}.",
            hint=f"If the brokers have no better copy: let a cut land what comes before, then `crkafka skip {tp}@{offset}`, or "
            f"`{tp}@{offset}-LAST` for a whole batch.",
        )


UNREADABLE = {
    KafkaError._BAD_MSG,
    KafkaError._BAD_COMPRESSION,
    KafkaError._NOT_IMPLEMENTED,
    KafkaError.INVALID_MSG,
    KafkaError.MSG_SIZE_TOO_LARGE,
}
VANISHED = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
"""The offset is not in the log: retention has taken it, or the log ends before it."""
_NO_SUCH_EPOCH = "broker end offset is -"
"""A leader epoch that the broker never had: librdkafka tells it in this text only (docs/clients.md C-K25)."""


class TopicGone(DataLoss):
    """The topic, or the partition, is not there any more (SPEC S4)."""


_UNREACHABLE = {
    KafkaError._WAIT_COORD,
    KafkaError._WAIT_CACHE,
    KafkaError._NODE_UPDATE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_CONTROLLER,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.LISTENER_NOT_FOUND,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.OFFSET_NOT_AVAILABLE,  # a leader that was elected a moment ago does not know its log's end yet
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError._DESTROY_BROKER,  # the connection that a client begins with is dropped once it knows the brokers
    # What the client knows of the leaders is old, or it knows of none: so it is while a broker is away, and after its return.
    KafkaError._NOENT,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
_SILENT = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
}
"""Nobody said anything: what librdkafka calls it tells a person nothing more."""
_ENDED = {
    "closed by peer.* in state SSL_HANDSHAKE": "It may take no TLS there: are `security.protocol` and the port right?",
    "SSL routines::": "It wants a certificate of this client that it knows: see `ssl.certificate.location` and `ssl.key.location`.",
}
"""What librdkafka says of a connection that was ended (a regular expression) → what that may mean."""
_REBALANCED = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError._ASSIGNMENT_LOST,
}
_REFUSED = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.SECURITY_DISABLED,
}
_GONE = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError.INCONSISTENT_TOPIC_ID,
}
_FENCED = {KafkaError.FENCED_INSTANCE_ID, KafkaError._FENCED}


def _cut_off(error: KafkaError) -> bool:
    """Whether the connection went away during its login, which librdkafka calls a refused login (docs/clients.md C-K29)."""
    return error.code() == KafkaError._AUTHENTICATION and "Broker transport failure" in error.str()


def epoch_unknown(error: KafkaError) -> bool:
    """Whether the broker knows nothing of the leader epoch that it was asked for."""
    return error.code() in VANISHED and _NO_SUCH_EPOCH in error.str()


def broker_in(error: KafkaError) -> str:
    """Which broker does not answer, to stand behind what was done; empty where the error names none, or its own text is told."""
    if error.code() not in _SILENT:
        return ""
    broker = re.match(r"(?:\w+://)?(\S+:\d+)/(?:bootstrap|\d+): ", error.str())
    return f", at broker {broker[1]}" if broker else ""


def error_of(error: KafkaError | KafkaException, what: str) -> CrkafkaError:
    """The error for a librdkafka error that happened while doing `what` ("committing offsets of group orders").

    librdkafka's text names brokers, codes and reasons, never passwords; no property is added here (SPEC U2).
    """
    if isinstance(error, KafkaException):
        error = error.args[0] if error.args and isinstance(error.args[0], KafkaError) else KafkaError(KafkaError._FAIL)
    code = error.code()
    text = f"Kafka failed {what}: {error.name()} ({error.str()})."
    if "certificate verify failed" in text:  # as _SSL, or as _TRANSPORT: one and the same refusal, by chance
        return NotAllowed(
            text,
            hint="Did the authority in `ssl.ca.location` sign the broker's certificate, and is the broker's name, as "
            "`bootstrap.servers` and the broker's own advertised address have it, in that certificate?",
        )
    if code in _SILENT or _cut_off(error):
        why = next((why for said, why in _ENDED.items() if re.search(said, error.str())), "")
        return KafkaUnavailable(
            f"Kafka {'ends the connection' if why else 'does not answer'} ({what}).",
            hint=why or "Is the broker up, and are `bootstrap.servers` and `security.protocol` right?",
        )
    if code in _UNREACHABLE:
        return KafkaUnavailable(text, hint="It is tried again.")
    if code in _REBALANCED:
        return GroupRebalanced(text, hint="The group rebalanced: the region resets by itself.")
    if code == KafkaError._MAX_POLL_EXCEEDED:
        return PolledTooLate(text, hint="A member was held up for longer than `max.poll.interval.ms`.")
    if re.search(r"supported mechanisms:\s*\(", text):
        return NotAllowed(
            f"Kafka takes no login at this listener ({what}).",
            hint="Is the port the right one? Else `security.protocol` is PLAINTEXT there, or SSL.",
        )
    if code in _REFUSED:
        return NotAllowed(text, hint="Check the security properties, and the rights of this user in Kafka.")
    if code in _GONE:
        return TopicGone(text, hint="Was the topic deleted? See `crkafka forget TOPIC`.")
    # A fenced static member shows as the general code for "fatal" (docs/clients.md C-R2); only the text tells it from other ends.
    if code in _FENCED or (code == KafkaError._FATAL and "fenced" in text.lower()):
        return Fenced(text, hint="Another consumer has joined with the same `group.instance.id`.")
    return KafkaFailed(text)
