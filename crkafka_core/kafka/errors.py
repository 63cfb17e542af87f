"""What Kafka can say, one class per reaction, and the table from librdkafka's codes to them."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from crkafka_core.model.errors import ConfigError, CrkafkaError, DataLoss, Lost, Refused, ServiceUnavailable
from crkafka_core.model.offsets import TP


class KafkaUnavailable(ServiceUnavailable):
    """No broker answers, or no coordinator. Reaction: wait and try again; a cut is aborted, uncounted (SPEC D2, X6)."""


class GroupRebalanced(Refused):
    """Old generation, unknown member, or a rebalance on its way. Reaction: abort the cut, reset, no restart (SPEC D2)."""


class Fenced(Lost):
    """Another consumer uses our `group.instance.id` (FACTS R2). Reaction: SQL decides which one stays (SPEC R7)."""


class PolledTooLate(GroupRebalanced):
    """`max.poll.interval.ms` passed without a poll; the group went on without us. Reaction: poll on; `lost` follows."""


class CommitFailed(CrkafkaError):
    """A commit failed for a reason we do not know. Reaction: fail, and be restarted (SPEC D2)."""


class KafkaFailed(CrkafkaError):
    """A fatal or unknown error of the client. Reaction: fail, and be restarted with a new client."""


class NotAllowed(ConfigError):
    """Kafka refuses our identity, or what it may do. Reaction: mend the security settings or the rights."""


class OffsetGone(DataLoss):
    """Kafka no longer holds an offset (SPEC S4, FACTS R10). Reaction: request a reset, which finds the gap."""

    def __init__(self, tp: TP, offset: int) -> None:
        super().__init__(
            f"Kafka no longer has offset {offset} of {tp}.",
            hint="Retention or a truncation removed it: the reset that follows compares with what is left.",
        )
        self.tp = tp
        self.offset = offset


class TopicGone(DataLoss):
    """The topic, or the partition, is not there any more (SPEC S4)."""


_UNREACHABLE = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
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
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.KAFKA_STORAGE_ERROR,
}
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
    KafkaError._NOENT,
}
_FENCED = {KafkaError.FENCED_INSTANCE_ID, KafkaError._FENCED}


def error_of(error: KafkaError | KafkaException, what: str) -> CrkafkaError:
    """The error for a librdkafka error that happened while doing `what` ("committing offsets of group orders").

    librdkafka's text names brokers, codes and reasons, never passwords; no property is added here (SPEC 17).
    """
    if isinstance(error, KafkaException):
        error = error.args[0] if error.args and isinstance(error.args[0], KafkaError) else KafkaError(KafkaError._FAIL)
    code = error.code()
    text = f"Kafka failed {what}: {error.name()} ({error.str()})."
    if code in _UNREACHABLE:
        return KafkaUnavailable(text, hint="Is the broker up, and `bootstrap.servers` right? It is tried again.")
    if code in _REBALANCED:
        return GroupRebalanced(text, hint="The group rebalanced: the region resets by itself.")
    if code == KafkaError._MAX_POLL_EXCEEDED:
        return PolledTooLate(text, hint="A member was held up for longer than `max.poll.interval.ms`.")
    if code in _REFUSED:
        return NotAllowed(text, hint="Check the security properties, and the rights of this user in Kafka.")
    if code in _GONE:
        return TopicGone(text, hint="Was the topic deleted? See `crkafka forget TOPIC`.")
    # A fenced static member shows as the general code for "fatal" (FACTS R2); only the text tells it from other ends.
    if code in _FENCED or (code == KafkaError._FATAL and "fenced" in text.lower()):
        return Fenced(text, hint="Another consumer has joined with the same `group.instance.id`.")
    return KafkaFailed(text)
