"""Records read from Kafka a second time, through the client's own objects: no conversion is shared with the native edge."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from confluent_kafka import KafkaError, Message, TopicPartition

from crkafka_core.kafka import clients
from crkafka_core.kafka.errors import UNREADABLE, VANISHED, error_of
from crkafka_core.kafka.messages import headers_of
from crkafka_core.kafka.properties import reader_properties
from crkafka_core.model.errors import DataLoss, ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import SCHEMA

_AT_ONCE = 5_000
_PATIENCE = 60.0
"""Seconds without a new record after which reading fails."""
_MICROS = range(-(2**63), 2**63)
Headers = list[tuple[str, bytes | None]] | None
"""The headers of one record by the client's own method, which cuts names at a NUL; None if they cannot be read."""


class KafkaAgain:
    """Reads exact ranges by `assign`, without a group. Belongs to one thread."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        name = f"crkafka-verify-{uuid.uuid4().hex[:12]}"
        self._consumer = clients.consumer(reader_properties(kafka, client_id=name))

    def close(self) -> None:
        self._consumer.close()

    def read(self, tp: TP, start: int, stop: int) -> tuple[pa.Table, dict[int, Headers]]:
        """Records with start ≤ offset < stop, in order, without headers; and row → headers, for records that have some."""
        pieces: list[pa.Table] = [_table([])]
        headers: dict[int, Headers] = {}
        rows = 0
        for records in self._records(tp, start, stop):
            pieces.append(_table(records))
            headers |= {rows + i: each for i, each in enumerate(map(headers_of, records)) if each != []}
            rows += len(records)
        return pa.concat_tables(pieces).combine_chunks(), headers

    def _records(self, tp: TP, start: int, stop: int) -> Iterator[Sequence[Message]]:
        self._consumer.assign([TopicPartition(tp.topic, tp.partition, start)])
        position, heard, trouble = start, time.monotonic(), None
        while position < stop:
            records, before = [], position
            for message in self._consumer.consume(min(_AT_ONCE, stop - position), 0.2):
                error, offset = message.error(), int(message.offset() or 0)
                if error is None:
                    position = offset + 1
                    records += [message] if position <= stop else []
                elif error.code() == KafkaError._PARTITION_EOF:
                    position = max(position, offset)
                elif error.code() in VANISHED:
                    raise DataLoss(f"Kafka no longer holds offset {offset} of {tp}.")
                elif error.code() in UNREADABLE:
                    raise DataLoss(f"{tp}@{position} cannot be read.")
                else:
                    trouble = error_of(error, f"reading {tp}")
                    if not isinstance(trouble, ServiceUnavailable):
                        raise trouble
            if records:
                yield records
            if position > before:
                heard = time.monotonic()
            elif time.monotonic() - heard > _PATIENCE:
                raise trouble or DataLoss(f"{tp} ends at offset {position}; what landed goes to {stop}.")


def _table(records: Sequence[Message]) -> pa.Table:
    """The records by the client's own methods, without headers, in the types of landed rows."""
    times = [message.timestamp() for message in records]
    micros = [(-1 if not kind else millis) * 1000 for kind, millis in times]
    columns = {
        "key": [message.key() for message in records],
        "value": [message.value() for message in records],
        "topic": [message.topic() for message in records],
        "partition": [message.partition() for message in records],
        "offset": [message.offset() for message in records],
        "timestamp": [each if each in _MICROS else None for each in micros],
        "timestampType": [kind - 1 for kind, _ in times],
    }
    return pa.table({name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()})
