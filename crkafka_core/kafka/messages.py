"""Records as Python objects of the Kafka client: the way that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Message

from crkafka_core.kafka.convert import split_errors, timestamps, to_batch
from crkafka_core.kafka.taken import Failure, Taken
from crkafka_core.model.offsets import TP

POLL_BYTES = 8 << 20
"""Bytes of keys and values that one call is to return, about."""
_MOST_RECORDS = 5_000
"""More objects at once leave the processor's cache, and are slower."""
TOO_MANY_BYTES = 64 << 20
"""Bytes of keys and values that are made into a batch. librdkafka holds them already: one that expands a thousandfold costs them twice."""


class MessageRecords:
    """Callbacks run inside `take` here, in the same call that returns records (docs/clients.md C-K6)."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._most = 250
        """How many records one call may ask for, by the bytes that the last ones had: they can be as large as they like (SPEC X9)."""

    def hold(self, tps: Iterable[TP]) -> None:
        pass

    def serve(self) -> Taken:
        return Taken()

    def take(self, most: int, timeout: float) -> Taken:
        messages = self._consumer.consume(min(most, self._most), timeout)
        size = sum(map(len, messages)) + sum(map(len, filter(None, map(Message.key, messages))))
        if size > TOO_MANY_BYTES and len(messages) > 1:
            self._fit(len(messages), size)
            return Taken(lost=True)
        if len(messages) == self._most or size > POLL_BYTES:
            self._fit(len(messages), size)
        return taken(messages)

    def close(self) -> None:
        pass

    def _fit(self, count: int, size: int) -> None:
        self._most = max(1, min(4 * self._most, POLL_BYTES * count // max(1, size), _MOST_RECORDS))


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
