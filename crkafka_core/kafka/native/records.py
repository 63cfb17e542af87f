"""Records from librdkafka's queues into Arrow columns, without a Python object for each (docs/clients.md C-K19).

The queues of held partitions are forwarded to a queue of ours: native calls on the consumer's own queue would run the client's
callbacks without Python. `serve` runs the callbacks, so that they never run in a call that returns records.

Queues are forwarded after the assignment: an `unassign` still pending in librdkafka would undo it. Records that came before are in the
consumer's own queue, and are returned first. Records of a partition that was revoked, paused or sought since are outdated by
librdkafka's version numbers; it drops them when they are taken.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, Message

from crkafka_core.kafka import convert
from crkafka_core.kafka.headers import java_text
from crkafka_core.kafka.messages import TOO_MANY_BYTES, Failure, Records, Taken, taken
from crkafka_core.kafka.native.library import Library, handle, load
from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import HEADERS, SCHEMA, Batch, Run

MOST_BYTES = 8 * 1024 * 1024
"""Bytes of keys, values and headers at which a batch is full."""
_AT_ONCE = 64
"""Records per call of librdkafka: the most by which large records after small ones exceed `MOST_BYTES`."""
_LAST_END = 2**31 - 1
"""Largest 32-bit end in a column."""
_TOPIC_BYTES = _ERROR_BYTES = 256
_BAD_HEADERS = "the client cannot decode its headers"


def records_of(consumer: Any) -> Records:
    """The consumer's records: natively if the library loads, else as Python objects. Both give the same rows."""
    library = load()
    return Records(consumer) if library is None else NativeRecords(consumer, library)


class _Sizes(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            *("records", "errors", "runs"),
            *("key_bytes", "null_keys", "value_bytes", "null_values"),
            *("with_headers", "headers", "name_bytes", "header_bytes", "null_header_values", "bad_headers"),
        )
    ]

    @property
    def bytes(self) -> int:
        return int(self.key_bytes + self.value_bytes + self.name_bytes + self.header_bytes)


class _Columns(ctypes.Structure):
    _fields_ = [
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("partition", "kind", "offset", "millis"),
                *("key_ends", "value_ends", "keys", "values", "key_valid", "value_valid"),
                *("header_ends", "name_ends", "header_value_ends"),
                *("header_valid", "names", "header_values", "header_value_valid"),
                *("runs", "topics", "errors", "error_texts", "bad_headers"),
            )
        ),
        ("topic_count", ctypes.c_int64),
        ("bad_names", ctypes.c_int64),
    ]


class NativeRecords(Records):
    """Records by forwarded queues, as the module describes."""

    def __init__(self, consumer: Any, library: Library) -> None:
        super().__init__(consumer)
        self._library = library
        self._rk = handle(consumer)
        self._queue: int | None = library.kafka.rd_kafka_queue_new(self._rk)
        self._held: frozenset[TP] = frozenset()
        self._pointers: Any = (ctypes.c_void_p * 0)()
        self._sizes = _Sizes()
        self._at_once = _AT_ONCE

    def hold(self, tps: Iterable[TP]) -> None:
        self._held = frozenset(tps)
        for tp in self._held:
            self._forward(tp, self._queue)

    def serve(self) -> Taken:
        messages: list[Message] = []
        while (message := self._consumer.poll(0)) is not None:
            if message.error() is None and not messages:
                self.hold(self._held)  # later records go to our queue
            messages.append(message)
        return taken(messages)

    def take(self, most: int, timeout: float) -> Taken:
        if len(self._pointers) < most:
            self._pointers = (ctypes.c_void_p * most)()
        try:
            return self._take(most, round(timeout * 1000))
        except BaseException:  # also after a signal: librdkafka waits for ever for a message that is not freed
            self._library.edge.drop(ctypes.byref(self._library.functions), self._pointers, len(self._pointers))
            raise

    def _take(self, most: int, millis: int) -> Taken:
        edge, functions, sizes = self._library.edge, ctypes.byref(self._library.functions), self._sizes
        count = edge.take(
            functions, self._queue, millis, most, MOST_BYTES, self._at_once, self._pointers, ctypes.byref(sizes)
        )
        if count <= 0:
            return Taken()
        # With one record per call only the last record of a batch exceeds MOST_BYTES, by any size.
        if sizes.records > 1 and sizes.bytes > (TOO_MANY_BYTES if self._at_once > 1 else _LAST_END):
            edge.drop(functions, self._pointers, count)
            self._at_once = 1
            return Taken(lost=True)
        self._at_once = min(2 * self._at_once, _AT_ONCE)
        buffers = _Buffers(sizes)
        edge.fill(functions, self._pointers, count, ctypes.byref(buffers.columns), buffers.seen.ctypes.data)
        return buffers.taken()

    def close(self) -> None:
        """Return the partitions to the consumer's queue, and end ours while the client still lives."""
        if self._queue is None:
            return
        for tp in self._held:
            self._forward(tp, None)
        self._library.kafka.rd_kafka_queue_destroy(self._queue)
        self._queue = None

    def _forward(self, tp: TP, queue: int | None) -> None:
        kafka = self._library.kafka
        own = kafka.rd_kafka_queue_get_partition(self._rk, tp.topic.encode(), tp.partition)
        if own is None:
            raise RuntimeError(f"librdkafka has no queue for {tp}")
        kafka.rd_kafka_queue_forward(own, queue)
        kafka.rd_kafka_queue_destroy(own)


class _Buffers:
    """The columns of one batch while they are filled."""

    def __init__(self, sizes: _Sizes) -> None:
        self._sizes = sizes
        self._arrays: dict[str, np.ndarray] = {}
        self.columns = _Columns()
        rows, headers = sizes.records, sizes.headers
        for name, kind in (("partition", np.int32), ("kind", np.int32), ("offset", np.int64), ("millis", np.int64)):
            self._make(name, kind, rows)
        self._make("key_ends", np.int32, rows + 1)
        self._make("value_ends", np.int32, rows + 1)
        self._make("keys", np.uint8, sizes.key_bytes)
        self._make("values", np.uint8, sizes.value_bytes)
        if sizes.null_keys:
            self._bits("key_valid", rows)
        if sizes.null_values:
            self._bits("value_valid", rows)
        if headers:
            self._make("header_ends", np.int32, rows + 1)
            self._bits("header_valid", rows)
            self._make("name_ends", np.int32, headers + 1)
            self._make("header_value_ends", np.int32, headers + 1)
            self._make("names", np.uint8, sizes.name_bytes)
            self._make("header_values", np.uint8, sizes.header_bytes)
            if sizes.null_header_values:
                self._bits("header_value_valid", headers)
        most = sizes.runs + sizes.errors
        self._make("runs", np.int64, 6 * sizes.runs)
        self.seen = np.empty(most, np.uintp)
        self._topics = np.zeros(_TOPIC_BYTES * most, np.uint8)
        self._arrays["topics"] = self._topics
        self._make("errors", np.int64, 6 * sizes.errors)
        self._make("error_texts", np.uint8, _ERROR_BYTES * sizes.errors)
        if sizes.bad_headers:
            self._make("bad_headers", np.int64, sizes.bad_headers)
        for name, array in self._arrays.items():
            setattr(self.columns, name, array.ctypes.data)

    def _make(self, name: str, kind: Any, count: int) -> None:
        self._arrays[name] = np.empty(count, kind)

    def _bits(self, name: str, count: int) -> None:
        self._arrays[name] = np.zeros((count + 7) // 8, np.uint8)

    def taken(self) -> Taken:
        """The batch and failures of the filled buffers."""
        names = [
            self._topics[i * _TOPIC_BYTES : (i + 1) * _TOPIC_BYTES].tobytes().rstrip(b"\0").decode()
            for i in range(self.columns.topic_count)
        ]
        failures = tuple(self._failure(i, names) for i in range(self._sizes.errors))
        return Taken(self._batch(names) if self._sizes.records else None, failures)

    def _failure(self, index: int, names: list[str]) -> Failure:
        code, topic, partition, offset, length, before = self._arrays["errors"][6 * index : 6 * index + 6].tolist()
        text = self._arrays["error_texts"][_ERROR_BYTES * index :][:length].tobytes().decode(errors="replace")
        error = KafkaError(code, text) if text else KafkaError(code)
        return Failure(TP(names[topic], partition), offset, error, before)

    def _batch(self, names: list[str]) -> Batch:
        rows, sizes, arrays = self._sizes.records, self._sizes, self._arrays
        numbers = arrays["runs"].reshape(-1, 6).tolist()
        stops = [*(run[2] for run in numbers[1:]), rows]
        runs = tuple(
            Run(TP(names[topic], partition), start, stop, first, after, leader_epoch=epoch)
            for (topic, partition, start, first, after, epoch), stop in zip(numbers, stops, strict=True)
        )
        times, beyond = convert.timestamp_column(arrays["kind"], arrays["millis"])
        columns = [
            self._binary(pa.binary(), rows, "key", sizes.null_keys),
            self._binary(pa.binary(), rows, "value", sizes.null_values),
            _topic_column(runs, rows),
            convert.fixed(pa.int32(), arrays["partition"]),
            convert.fixed(pa.int64(), arrays["offset"]),
            times,
            convert.fixed(pa.int32(), arrays["kind"] - 1),
            self._headers(rows),
        ]
        bad = dict.fromkeys(arrays["bad_headers"].tolist(), _BAD_HEADERS) if sizes.bad_headers else {}
        failed = convert.unreadable(bad | beyond, runs, arrays["offset"])
        return Batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), runs, failed)

    def _binary(self, kind: pa.DataType, count: int, name: str, nulls: int) -> pa.Array:
        if nulls == count:
            return pa.nulls(count, kind)
        validity = pa.py_buffer(self._arrays[f"{name}_valid"]) if nulls else None
        ends, data = pa.py_buffer(self._arrays[f"{name}_ends"]), pa.py_buffer(self._arrays[f"{name}s"])
        return pa.Array.from_buffers(kind, count, [validity, ends, data], nulls)

    def _headers(self, rows: int) -> pa.Array:
        """Null for a record without headers, as in Spark."""
        sizes, arrays = self._sizes, self._arrays
        if not sizes.headers:
            return pa.nulls(rows, HEADERS)
        if self.columns.bad_names:
            names = self._mended_names()
        else:
            buffers = [None, pa.py_buffer(arrays["name_ends"]), pa.py_buffer(arrays["names"])]
            names = pa.Array.from_buffers(pa.string(), sizes.headers, buffers, 0)
        values = self._binary(pa.binary(), sizes.headers, "header_value", sizes.null_header_values)
        entries = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
        validity, ends = pa.py_buffer(arrays["header_valid"]), pa.py_buffer(arrays["header_ends"])
        return pa.Array.from_buffers(HEADERS, rows, [validity, ends], rows - sizes.with_headers, children=[entries])

    def _mended_names(self) -> pa.Array:
        """Header names of which some are not UTF-8, decoded as by Kafka's Java client."""
        ends, whole = self._arrays["name_ends"].tolist(), self._arrays["names"].tobytes()
        mended = [java_text(whole[a:b]) for a, b in pairwise(ends)]
        return pa.array(mended, pa.string(), from_pandas=False)


def _topic_column(runs: tuple[Run, ...], rows: int) -> pa.Array:
    names = [run.tp.topic.encode() for run in runs]
    lengths = np.repeat(np.fromiter(map(len, names), np.int32, len(runs)), [run.rows for run in runs])
    ends = np.zeros(rows + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    text = b"".join(name * run.rows for name, run in zip(names, runs, strict=True))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(text)], 0)
