"""Kafka's errors in a simulation: every code there is, as the answer to a poll, a commit, a question, or the fetch of one partition."""

from __future__ import annotations

from random import Random

from confluent_kafka import KafkaError

from crkafka_core.kafka.errors import (
    REACTIONS,
    UNREADABLE,
    VANISHED,
    KafkaUnavailable,
    RecordUnreadable,
    TopicGone,
    error_of,
)
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP

CODES = sorted(
    code
    for name, code in vars(KafkaError).items()
    if name.isupper() and code not in (KafkaError.NO_ERROR, KafkaError._PARTITION_EOF)
)
_BY_REACTION: dict[type[CrkafkaError], list[int]] = {}
for _code in CODES:
    _BY_REACTION.setdefault(REACTIONS.get(_code, KafkaUnavailable), []).append(_code)
_KINDS = sorted(_BY_REACTION, key=lambda kind: kind.__name__)


def draw(rng: Random) -> int:
    """A code: half of all are outages, the others of each reaction as often as of another."""
    return rng.choice(_BY_REACTION[KafkaUnavailable if rng.random() < 0.5 else rng.choice(_KINDS)])


def _error(rng: Random, what: str) -> CrkafkaError:
    return error_of(KafkaError(draw(rng), "as simulated"), what)


def to_a_poll(rng: Random) -> CrkafkaError:
    return _error(rng, "in group group")


def to_a_question(rng: Random) -> CrkafkaError:
    return _error(rng, "asking")


def to_a_commit(rng: Random) -> CrkafkaError:
    error = _error(rng, "committing offsets of group group")
    return KafkaUnavailable(error.message, hint=error.hint) if isinstance(error, TopicGone) else error


def to_a_fetch(rng: Random, tp: TP, offset: int) -> CrkafkaError:
    """Why one partition gives no records. A vanished offset has a reaction of its own, and a fault: `retention`."""
    code = draw(rng)
    if code in UNREADABLE:
        return RecordUnreadable(tp, offset, KafkaError(code).str())
    if code in VANISHED:
        return KafkaUnavailable(f"{tp} gives nothing.")
    return error_of(KafkaError(code, "as simulated"), f"reading {tp}")
