"""What one look for records gives, and the records as Python objects of the Kafka client, which needs no native library."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from operator import methodcaller, ne
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, Message

from crkafka_core.kafka.columns import Buffers, batch_of, bits, ends, packed
from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import Batch, Run

POLL_BYTES = 8 << 20
"""Bytes of keys and values, natively of headers too, at which a batch is full."""
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
    """The records of one consumer, as Python objects; belongs to the consumer's thread. Callbacks run inside `take` here, in the same call
    that returns records (docs/clients.md C-K6)."""

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
    errors = list(map(Message.error, messages))
    if not any(errors):
        return Taken(_batch(messages)) if messages else Taken()
    records: list[Message] = []
    failures: list[Failure] = []
    for message, error in zip(messages, errors, strict=True):
        if error is None:
            records.append(message)
        else:
            partition, offset = (-1 if at is None else at for at in (message.partition(), message.offset()))
            failures.append(Failure(TP(message.topic() or "", partition), offset, error, len(records)))
    return Taken(_batch(records) if records else None, tuple(failures))


def _batch(messages: list[Message]) -> Batch:
    """The batch of these records, in their order, column by column: a Python object for each would cost more (docs/clients.md C-K12)."""
    rows = len(messages)
    topics: list[Any] = list(map(Message.topic, messages))
    epochs = list(map(Message.leader_epoch, messages))
    partitions = np.fromiter(map(Message.partition, messages), np.int32, rows)
    offsets = np.fromiter(map(Message.offset, messages), np.int64, rows)
    times = np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * rows)
    changes = np.diff(partitions) != 0
    for values in (topics, epochs):
        if len(set(values)) > 1:  # seldom
            changes |= np.fromiter(map(ne, values, islice(values, 1, None)), np.bool_, rows - 1)
    runs = []
    for start, stop in pairwise([0, *(np.flatnonzero(changes) + 1).tolist(), rows]):
        tp, epoch = TP(topics[start], int(partitions[start])), epochs[start]
        first, after = int(offsets[start]), int(offsets[stop - 1]) + 1
        runs.append(Run(tp, start, stop, first, after, leader_epoch=-1 if epoch is None else epoch))
    headers, bad_headers = _headers(messages)
    buffers = {
        "partition": partitions,
        "offset": offsets,
        "kind": times[0::2].astype(np.int32),
        "millis": times[1::2],
        **packed("key", list(map(Message.key, messages))),
        **packed("value", list(map(Message.value, messages))),
        **headers,
    }
    return batch_of(buffers, tuple(runs), bad_headers)


def _headers(messages: list[Message]) -> tuple[Buffers, dict[int, str]]:
    """The buffers of the headers; rows whose headers cannot be read, and why."""
    calls, read = map(_call_headers, messages), list[Any]()
    while len(read) < len(messages):
        try:
            read.extend(calls)  # up to the first that cannot be read
        except (SystemError, UnicodeError):
            read.append(False)
    bad = {row: "the client cannot decode a header's name" for row, headers in enumerate(read) if headers is False}
    if not any(read):
        return {}, bad
    counts = np.fromiter((len(headers or ()) for headers in read), np.int32, len(read))
    pairs = [pair for headers in read if headers for pair in _encoded(headers)]
    lists = {"header_ends": ends(counts), "header_valid": bits(counts > 0)}
    names, values = packed("name", [name.encode() for name, _ in pairs]), packed("header_value", [v for _, v in pairs])
    return lists | names | values, bad


_call_headers = methodcaller("headers")
"""`message.headers()`, as a call whose result is checked: the interpreter's quick way for a method without arguments has no check. To be
called once for a message: where a name is not UTF-8 it raises, and the next call gives a list that ends the process when it is gone through
(docs/clients.md C-K20). A name is cut at its first NUL."""


def headers_of(message: Message) -> list[tuple[str, bytes | None]] | None:
    """A record's headers by the client's own method; None where a name is not UTF-8. To be called once."""
    try:
        return _encoded(_call_headers(message) or ())
    except (SystemError, UnicodeError):
        return None


def _encoded(pairs: Iterable[tuple[str, str | bytes | None]]) -> list[tuple[str, bytes | None]]:
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]
