"""Messages of confluent-kafka → one Arrow batch, column by column, without an object per record of our own (FACTS K12).

Columns are built from buffers: `pyarrow.array(list)` would import pandas, a second and 40 MB for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import HEADERS, SCHEMA, Batch, Run

Topics = dict[str, int]


def split_errors(messages: list[Message], kinds: np.ndarray) -> tuple[list[Message], list[Message]]:
    """Records and errors. An error never has a timestamp type, so only those without are asked (saves 25 ns each)."""
    if kinds.all():
        return messages, []
    failed = {i for i in np.flatnonzero(kinds == 0).tolist() if messages[i].error() is not None}
    if not failed:
        return messages, []
    records = [message for i, message in enumerate(messages) if i not in failed]
    return records, [messages[i] for i in sorted(failed)]


def timestamps(messages: Sequence[Message]) -> tuple[np.ndarray, np.ndarray]:
    """Timestamp types as librdkafka has them (0 none, 1 create, 2 log append), and milliseconds."""
    pairs = np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * len(messages))
    return pairs[0::2], pairs[1::2]


def to_batch(messages: list[Message], kinds: np.ndarray, millis: np.ndarray) -> Batch:
    """The batch of these records (no errors among them), in the order in which they came."""
    count = len(messages)
    partitions = np.fromiter(map(Message.partition, messages), np.int32, count)
    offsets = np.fromiter(map(Message.offset, messages), np.int64, count)
    topics, codes = _topics(messages)
    arrays = [
        _binary(list(map(Message.key, messages))),
        _binary(list(map(Message.value, messages))),
        _topic_column(topics, codes, count),
        _fixed(pa.int32(), partitions),
        _fixed(pa.int64(), offsets),
        _fixed(SCHEMA.field("timestamp").type, np.where(kinds == 0, -1, millis) * 1000),
        # Spark has -1 for none, 0 for create, 1 for log append.
        _fixed(pa.int32(), (kinds - 1).astype(np.int32)),
        _headers(messages),
    ]
    return Batch(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), _runs(topics, codes, partitions, offsets))


def _topics(messages: list[Message]) -> tuple[list[str], np.ndarray | None]:
    """Distinct topics, and each record's index among them; None if there is one topic only, as mostly."""
    names: list[Any] = list(map(Message.topic, messages))
    distinct = list(dict.fromkeys(names))
    if len(distinct) == 1:
        return distinct, None
    index = {name: i for i, name in enumerate(distinct)}
    return distinct, np.fromiter(map(index.__getitem__, names), np.int32, len(names))


def _runs(topics: list[str], codes: np.ndarray | None, partitions: np.ndarray, offsets: np.ndarray) -> tuple[Run, ...]:
    changes = np.diff(partitions) != 0
    if codes is not None:
        changes |= np.diff(codes) != 0
    starts = [0, *(np.flatnonzero(changes) + 1).tolist()]
    stops = [*starts[1:], len(partitions)]
    return tuple(
        Run(
            TP(topics[0 if codes is None else int(codes[start])], int(partitions[start])),
            start,
            stop,
            int(offsets[start]),
            int(offsets[stop - 1]) + 1,
        )
        for start, stop in zip(starts, stops, strict=True)
    )


def _fixed(kind: pa.DataType, values: np.ndarray) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))], 0)


def _binary(values: list[bytes | None], kind: pa.DataType | None = None) -> pa.Array:
    """A binary (or string) column; nulls are kept apart from empty values."""
    kind = kind or pa.binary()
    count = len(values)
    try:
        lengths = np.fromiter(map(len, values), np.int32, count)  # type: ignore[arg-type]
        filled: Iterable[bytes] = values  # type: ignore[assignment]
        validity, nulls = None, 0
    except TypeError:
        if values.count(None) == count:
            return pa.nulls(count, kind)
        present = np.fromiter((value is not None for value in values), np.bool_, count)
        nulls = count - int(np.count_nonzero(present))
        validity = pa.py_buffer(np.packbits(present, bitorder="little"))
        filled = [value or b"" for value in values]
        lengths = np.fromiter(map(len, filled), np.int32, count)
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(ends), pa.py_buffer(b"".join(filled))], nulls)


def _topic_column(topics: list[str], codes: np.ndarray | None, count: int) -> pa.Array:
    names = [topic.encode() for topic in topics]
    if codes is not None:
        return _binary(list(map(names.__getitem__, codes.tolist())), pa.string())
    ends = np.arange(count + 1, dtype=np.int32) * len(names[0])
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(names[0] * count)], 0)


def _headers(messages: list[Message]) -> pa.Array:
    """Null for a record without headers, as in Spark."""
    per_record = list(map(Message.headers, messages))
    if not any(per_record):
        return pa.nulls(len(messages), HEADERS)
    present = np.fromiter(map(bool, per_record), np.bool_, len(per_record))
    ends = np.zeros(len(per_record) + 1, np.int32)
    np.cumsum(np.fromiter((len(headers or ()) for headers in per_record), np.int32, len(per_record)), out=ends[1:])
    pairs: list[Any] = [pair for headers in per_record if headers for pair in headers]
    entries = pa.StructArray.from_arrays(
        [
            _binary([name.encode() for name, _ in pairs], pa.string()),
            _binary([value.encode() if isinstance(value, str) else value for _, value in pairs]),
        ],
        fields=list(HEADERS.value_type),
    )
    validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    nulls = len(per_record) - int(np.count_nonzero(present))
    return pa.Array.from_buffers(HEADERS, len(per_record), [validity, pa.py_buffer(ends)], nulls, children=[entries])
