"""Every error that `kafka/errors.py` knows, as a simulated Kafka answers with it: for a group, a commit, or one partition."""

from __future__ import annotations

from random import Random

from confluent_kafka import KafkaError

from crkafka_core.kafka.errors import (
    REACTIONS,
    UNREADABLE,
    VANISHED,
    KafkaUnavailable,
    NotAllowed,
    RecordUnreadable,
    TopicGone,
    error_of,
)
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP

_CODES = sorted(
    code
    for name, code in vars(KafkaError).items()
    if name.isupper() and code not in (KafkaError.NO_ERROR, KafkaError._PARTITION_EOF)
)
_BY_REACTION: dict[type[CrkafkaError], list[int]] = {}
for _code in _CODES:
    _BY_REACTION.setdefault(REACTIONS.get(_code, KafkaUnavailable), []).append(_code)
_KINDS = sorted(_BY_REACTION, key=lambda kind: kind.__name__)
_OF_PARTITIONS = (KafkaUnavailable, NotAllowed, TopicGone)


def _pick(rng: Random, kinds: list[type[CrkafkaError]], what: str) -> CrkafkaError:
    """Each reaction as often as another; half of all are outages."""
    kind = KafkaUnavailable if rng.random() < 0.5 else rng.choice(kinds)
    return error_of(KafkaError(rng.choice(_BY_REACTION[kind]), "as simulated"), what)


def to_the_group(rng: Random) -> CrkafkaError:
    return _pick(rng, _KINDS, "in group group")


def to_a_commit(rng: Random) -> CrkafkaError:
    """As `GroupConsumer.commit` raises it."""
    error = _pick(rng, _KINDS, "committing offsets of group group")
    return KafkaUnavailable(error.message, hint=error.hint) if isinstance(error, TopicGone) else error


def to_a_partition(rng: Random, tp: TP, offset: int) -> CrkafkaError:
    """What keeps one partition from giving records; that its offset is gone is no such thing."""
    if rng.random() < 0.25:
        return RecordUnreadable(tp, offset, KafkaError(rng.choice(sorted(UNREADABLE))).str())
    while True:
        code = rng.choice(_BY_REACTION[rng.choice(_OF_PARTITIONS)])
        if code not in UNREADABLE | VANISHED:
            return error_of(KafkaError(code, "as simulated"), f"reading {tp}")
