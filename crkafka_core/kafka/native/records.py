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
from confluent_kafka import KafkaError, Message

from crkafka_core.kafka.columns import Buffers, batch_of, java_text, packed
from crkafka_core.kafka.messages import POLL_BYTES, TOO_MANY_BYTES, Failure, Records, Taken, taken
from crkafka_core.kafka.native.library import Library, handle, load
from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import Run

_AT_ONCE = 64
"""Records per call of librdkafka: the most by which large records after small ones exceed `POLL_BYTES`."""
_LAST_END = 2**31 - 1
"""Largest 32-bit end in a column."""
_TOPIC_BYTES = _ERROR_BYTES = 256
_BAD_HEADERS = "the client cannot decode its headers"


def records_of(consumer: Any) -> Records:
    """The consumer's records: natively if the library loads, else as Python objects. Both give the same rows."""
    library = load()
    return Records(consumer) if library is None else NativeRecords(consumer, library)


class _Sizes(ctypes.Structure):
    """`sizes` of edge.c."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            *("records", "errors", "runs", "key_bytes", "null_keys", "value_bytes", "null_values"),
            *("with_headers", "headers", "name_bytes", "header_bytes", "null_header_values", "bad_headers"),
        )
    ]


class _Columns(ctypes.Structure):
    """`columns` of edge.c."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("partition", "kind", "offset", "millis", "key_ends", "value_ends")),
        *((name, ctypes.c_void_p) for name in ("keys", "values", "key_valid", "value_valid")),
        *((name, ctypes.c_void_p) for name in ("header_ends", "name_ends", "header_value_ends", "header_valid")),
        *((name, ctypes.c_void_p) for name in ("names", "header_values", "header_value_valid")),
        *((name, ctypes.c_void_p) for name in ("runs", "topics", "errors", "error_texts", "bad_headers")),
        *((name, ctypes.c_int64) for name in ("topic_count", "odd_names")),
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
        edge, functions, sizes = self._library.edge, ctypes.byref(self._library.functions), self._sizes
        if len(self._pointers) < most:
            self._pointers = (ctypes.c_void_p * most)()
        bounds = (round(timeout * 1000), most, POLL_BYTES, self._at_once)
        try:
            count = edge.take(functions, self._queue, *bounds, self._pointers, ctypes.byref(sizes))
            if count <= 0:
                return Taken()
            size = sizes.key_bytes + sizes.value_bytes + sizes.name_bytes + sizes.header_bytes
            # With one record per call only the last record of a batch exceeds POLL_BYTES, by any size.
            if sizes.records > 1 and size > (TOO_MANY_BYTES if self._at_once > 1 else _LAST_END):
                edge.drop(functions, self._pointers, count)
                self._at_once = 1
                return Taken(lost=True)
            self._at_once = min(2 * self._at_once, _AT_ONCE)
            buffers = _buffers(sizes)
            columns = _Columns(**{name: buffer.ctypes.data for name, buffer in buffers.items()})
            seen = np.empty(sizes.runs + sizes.errors, np.uintp)
            edge.fill(functions, self._pointers, count, ctypes.byref(columns), seen.ctypes.data)
            return _taken(buffers, sizes, columns)
        except BaseException:  # also after a signal: librdkafka waits for ever for a message that is not freed
            edge.drop(functions, self._pointers, len(self._pointers))
            raise

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


def _buffers(sizes: _Sizes) -> Buffers:
    """Buffers of these sizes; what no record needs is left out. Bits of validity, and the names of topics, are zero at first."""
    rows, headers, errors = sizes.records, sizes.headers, sizes.errors
    counts: dict[Any, dict[str, int]] = {
        np.int32: {"partition": rows, "kind": rows, "key_ends": rows + 1, "value_ends": rows + 1},
        np.int64: {"offset": rows, "millis": rows, "runs": 6 * sizes.runs, "errors": 6 * errors},
        np.uint8: {"keys": sizes.key_bytes, "values": sizes.value_bytes, "error_texts": _ERROR_BYTES * errors},
    }
    bits = {"key_valid": rows * bool(sizes.null_keys), "value_valid": rows * bool(sizes.null_values)}
    if headers:
        counts[np.int32] |= {"header_ends": rows + 1, "name_ends": headers + 1, "header_value_ends": headers + 1}
        counts[np.uint8] |= {"names": sizes.name_bytes, "header_values": sizes.header_bytes}
        bits |= {"header_valid": rows, "header_value_valid": headers * bool(sizes.null_header_values)}
    if sizes.bad_headers:
        counts[np.int64]["bad_headers"] = sizes.bad_headers
    made = {name: np.empty(count, kind) for kind, named in counts.items() for name, count in named.items()}
    made |= {name: np.zeros((count + 7) // 8, np.uint8) for name, count in bits.items() if count}
    return {**made, "topics": np.zeros(_TOPIC_BYTES * (sizes.runs + errors), np.uint8)}


def _taken(buffers: Buffers, sizes: _Sizes, columns: _Columns) -> Taken:
    names = [
        buffers["topics"][i * _TOPIC_BYTES : (i + 1) * _TOPIC_BYTES].tobytes().rstrip(b"\0").decode()
        for i in range(columns.topic_count)
    ]
    failures = []
    for i, numbers in enumerate(buffers["errors"].reshape(-1, 6).tolist()):
        code, topic, partition, offset, length, before = numbers
        text = buffers["error_texts"][_ERROR_BYTES * i :][:length].tobytes().decode(errors="replace")
        error = KafkaError(code, text) if text else KafkaError(code)
        failures.append(Failure(TP(names[topic], partition), offset, error, before))
    if not sizes.records:
        return Taken(failures=tuple(failures))
    if columns.odd_names:
        whole = buffers["names"].tobytes()
        buffers |= packed("name", [java_text(whole[a:b]).encode() for a, b in pairwise(buffers["name_ends"].tolist())])
    numbers = buffers["runs"].reshape(-1, 6).tolist()
    stops = [*(run[2] for run in numbers[1:]), sizes.records]
    runs = tuple(
        Run(TP(names[topic], partition), start, stop, first, after, leader_epoch=epoch)
        for (topic, partition, start, first, after, epoch), stop in zip(numbers, stops, strict=True)
    )
    bad_headers = buffers["bad_headers"].tolist() if sizes.bad_headers else ()
    return Taken(batch_of(buffers, runs, dict.fromkeys(bad_headers, _BAD_HEADERS)), tuple(failures))
