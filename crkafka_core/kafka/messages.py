"""What one look for records gives, and the records as Python objects of the Kafka client, which needs no native library."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, Message

from crkafka_core.kafka.convert import split_errors, timestamps, to_batch
from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import Batch

POLL_BYTES = 8 << 20
"""Bytes of keys and values that one call should return, about."""
_MOST_RECORDS = 5_000
"""More objects at once leave the processor's cache, and are slower."""
TOO_MANY_BYTES = 64 << 20
"""Largest batch, in bytes of keys and values. librdkafka holds a second copy of them while it is made."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error in the place of a record; the end of a partition is one too."""

    tp: TP
    offset: int
    error: KafkaError
    before: int = 0
    """Number of records before it in the same look."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Records and failures of one look."""

    batch: Batch | None = None
    failures: tuple[Failure, ...] = ()
    lost: bool = False
    """The records were too large for one batch and were dropped: after a seek they come in smaller batches."""


class Records:
    """The records of one consumer, as Python objects; belongs to the consumer's thread.

    Callbacks run inside `take` here, in the same call that returns records (docs/clients.md C-K6).
    """

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._most = 250
        """Records that one call may ask for, by the size of the last ones (SPEC X9)."""

    def hold(self, tps: Iterable[TP]) -> None:
        """Called right after an assignment, with exactly the assigned partitions."""

    def serve(self) -> Taken:
        """Run the callbacks that are due. Records seldom come with them."""
        return Taken()

    def take(self, most: int, timeout: float) -> Taken:
        """Up to `most` records, within `timeout` seconds."""
        messages = self._consumer.consume(min(most, self._most), timeout)
        size = sum(map(len, messages)) + sum(map(len, filter(None, map(Message.key, messages))))
        too_many = size > TOO_MANY_BYTES and len(messages) > 1
        if too_many or len(messages) == self._most or size > POLL_BYTES:
            self._most = max(1, min(4 * self._most, POLL_BYTES * len(messages) // max(1, size), _MOST_RECORDS))
        return Taken(lost=True) if too_many else taken(messages)

    def close(self) -> None:
        """Called before the consumer is closed."""


def taken(messages: list[Message]) -> Taken:
    """Messages as a batch and failures."""
    if not messages:
        return Taken()
    kinds, millis = timestamps(messages)
    records, failed = split_errors(messages, kinds)
    failures = tuple(_failure(message, before) for message, before in failed)
    if not records:
        return Taken(failures=failures)
    if failed:
        kinds, millis = timestamps(records)
    return Taken(to_batch(records, kinds, millis), failures)


def _failure(message: Message, before: int) -> Failure:
    partition, offset = message.partition(), message.offset()
    tp = TP(message.topic() or "", -1 if partition is None else partition)
    error = message.error()
    assert error is not None
    return Failure(tp, -1 if offset is None else offset, error, before)
