"""Messages of confluent-kafka → one Arrow batch, column by column, without an object of ours for each record (docs/clients.md C-K12).

Columns are built from buffers: `pyarrow.array(list)` would import pandas, which takes a second and 40 MB.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from crkafka_core.kafka.headers import Headers, read_headers
from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import HEADERS, SCHEMA, Batch, Run, Unreadable

_LAST_MILLI = (2**63 - 1) // 1000


def split_errors(messages: list[Message], kinds: np.ndarray) -> tuple[list[Message], list[tuple[Message, int]]]:
    """Records; and errors, each with the number of records before it.

    An error has no timestamp type, so only messages without one are examined (saves 25 ns each).
    """
    if kinds.all():
        return messages, []
    failed = [i for i in np.flatnonzero(kinds == 0).tolist() if messages[i].error() is not None]
    if not failed:
        return messages, []
    among = frozenset(failed)
    records = [message for i, message in enumerate(messages) if i not in among]
    return records, [(messages[i], i - earlier) for earlier, i in enumerate(failed)]


def timestamps(messages: Sequence[Message]) -> tuple[np.ndarray, np.ndarray]:
    """librdkafka's timestamp types (0 none, 1 create, 2 log append), and milliseconds."""
    pairs = np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * len(messages))
    return pairs[0::2], pairs[1::2]


def to_batch(messages: list[Message], kinds: np.ndarray, millis: np.ndarray) -> Batch:
    """The batch of these records (no errors among them), in their order."""
    count = len(messages)
    partitions = np.fromiter(map(Message.partition, messages), np.int32, count)
    offsets = np.fromiter(map(Message.offset, messages), np.int64, count)
    topics, codes = _topics(messages)
    headers = read_headers(messages)
    times, beyond = timestamp_column(kinds, millis)
    arrays = [
        _binary(list(map(Message.key, messages))),
        _binary(list(map(Message.value, messages))),
        _topic_column(topics, codes, count),
        fixed(pa.int32(), partitions),
        fixed(pa.int64(), offsets),
        times,
        # Spark has -1 for none, 0 for create, 1 for log append.
        fixed(pa.int32(), (kinds - 1).astype(np.int32)),
        _header_column(headers, count),
    ]
    runs = _runs(messages, topics, codes, partitions, offsets)
    failed = unreadable(headers.unreadable | beyond, runs, offsets)
    return Batch(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), runs, failed)


def timestamp_column(kinds: np.ndarray, millis: np.ndarray) -> tuple[pa.Array, dict[int, str]]:
    """The column from librdkafka's types and milliseconds; −1 ms for a record without one, as in Kafka's Java client.

    A time beyond the range of microseconds is null, and is returned by row with the reason (SPEC X9).
    """
    kind = SCHEMA.field("timestamp").type
    millis = np.where(kinds == 0, -1, millis)
    beyond = (millis > _LAST_MILLI) | (millis < -_LAST_MILLI)
    if not beyond.any():
        return fixed(kind, millis * 1000), {}
    validity = pa.py_buffer(np.packbits(~beyond, bitorder="little"))
    data = pa.py_buffer(np.where(beyond, 0, millis) * 1000)
    rows = np.flatnonzero(beyond).tolist()
    column = pa.Array.from_buffers(kind, len(millis), [validity, data], len(rows))
    return column, {i: f"the timestamp {millis[i]} ms is beyond the range of microseconds" for i in rows}


def unreadable(reasons: Mapping[int, str], runs: Sequence[Run], offsets: np.ndarray) -> tuple[Unreadable, ...]:
    """The records of these rows, with the reason why a part of each is null."""
    starts = [run.start for run in runs]
    return tuple(
        Unreadable(runs[bisect_right(starts, row) - 1].tp, int(offsets[row]), why)
        for row, why in sorted(reasons.items())
    )


def _topics(messages: list[Message]) -> tuple[list[str], np.ndarray | None]:
    """Distinct topics, and each record's index among them, or None for a single topic (the usual case)."""
    names: list[Any] = list(map(Message.topic, messages))
    distinct = list(dict.fromkeys(names))
    if len(distinct) == 1:
        return distinct, None
    index = {name: i for i, name in enumerate(distinct)}
    return distinct, np.fromiter(map(index.__getitem__, names), np.int32, len(names))


def _runs(
    messages: Sequence[Message],
    topics: list[str],
    codes: np.ndarray | None,
    partitions: np.ndarray,
    offsets: np.ndarray,
) -> tuple[Run, ...]:
    """Runs of one partition and one leader epoch."""
    changes = np.diff(partitions) != 0
    if codes is not None:
        changes |= np.diff(codes) != 0
    starts = [0, *(np.flatnonzero(changes) + 1).tolist()]
    stops = [*starts[1:], len(partitions)]
    runs = []
    for whole_start, whole_stop in zip(starts, stops, strict=True):
        tp = TP(topics[0 if codes is None else int(codes[whole_start])], int(partitions[whole_start]))
        for start, stop, epoch in _by_leader_epoch(messages, whole_start, whole_stop):
            runs.append(Run(tp, start, stop, int(offsets[start]), int(offsets[stop - 1]) + 1, leader_epoch=epoch))
    return tuple(runs)


def _by_leader_epoch(messages: Sequence[Message], start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Runs of one leader epoch. Epochs only grow within a partition, so equal ones at both ends make one run."""
    while start < stop:
        epoch, end = messages[start].leader_epoch(), stop
        if messages[stop - 1].leader_epoch() != epoch:
            end = next(i for i in range(start, stop) if messages[i].leader_epoch() != epoch)
        yield start, end, -1 if epoch is None else epoch
        start = end


def fixed(kind: pa.DataType, values: np.ndarray) -> pa.Array:
    """A column of numbers without nulls."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))], 0)


def _binary(values: list[bytes | None], kind: pa.DataType | None = None) -> pa.Array:
    """A binary (or string) column; nulls are distinct from empty values."""
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


def _header_column(headers: Headers, count: int) -> pa.Array:
    """Null for a record without headers, as in Spark."""
    if headers.counts is None:
        return pa.nulls(count, HEADERS)
    present = headers.counts > 0
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(headers.counts, out=ends[1:])
    entries = pa.StructArray.from_arrays(
        [_binary(list(headers.names), pa.string()), _binary(headers.values)], fields=list(HEADERS.value_type)
    )
    validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    nulls = count - int(np.count_nonzero(present))
    return pa.Array.from_buffers(HEADERS, count, [validity, pa.py_buffer(ends)], nulls, children=[entries])
