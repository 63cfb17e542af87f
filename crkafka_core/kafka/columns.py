"""Arrow batches from the buffers of their columns, which `native/edge.c` fills, or `messages.py` from Python objects.

Columns are built from buffers: `pyarrow.array(list)` would import pandas, which takes a second and 40 MB.
"""

from __future__ import annotations

import codecs
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from crkafka_core.segments.batch import HEADERS, SCHEMA, Batch, Run, Unreadable

Buffers = dict[str, Any]
"""Buffers by the names of `columns` in edge.c. A column without nulls has no `…_valid`; without any header all of theirs are missing."""
_LAST_MILLI = (2**63 - 1) // 1000


def batch_of(buffers: Buffers, runs: tuple[Run, ...], bad_headers: Mapping[int, str]) -> Batch:
    """The batch in these buffers. `bad_headers`: rows whose headers are null since they cannot be read, and why (SPEC X9)."""
    kinds, offsets = buffers["kind"], buffers["offset"]
    rows = len(kinds)
    times, beyond = _timestamps(kinds, buffers["millis"])
    columns = [
        _binary(pa.binary(), rows, "key", buffers),
        _binary(pa.binary(), rows, "value", buffers),
        _topics(runs, rows),
        _fixed(pa.int32(), buffers["partition"]),
        _fixed(pa.int64(), offsets),
        times,
        _fixed(pa.int32(), kinds - 1),  # Spark has -1 for none, 0 for create, 1 for log append
        _headers(buffers, rows),
    ]
    starts = [run.start for run in runs]
    unreadable = tuple(
        Unreadable(runs[bisect_right(starts, row) - 1].tp, int(offsets[row]), why)
        for row, why in sorted({**bad_headers, **beyond}.items())
    )
    return Batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), runs, unreadable)


def packed(name: str, values: Sequence[bytes | None]) -> Buffers:
    """The buffers of a binary column with these values; nulls are distinct from empty values."""
    try:
        lengths = np.fromiter(map(len, values), np.int32, len(values))  # type: ignore[arg-type]
    except TypeError:  # some are null
        present = np.fromiter((value is not None for value in values), np.bool_, len(values))
        return {**packed(name, [value or b"" for value in values]), f"{name}_valid": bits(present)}
    return {f"{name}s": b"".join(values), f"{name}_ends": ends(lengths)}  # type: ignore[arg-type]


def ends(lengths: np.ndarray) -> np.ndarray:
    """The ends of values of these lengths, from 0 on."""
    made = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=made[1:])
    return made


def bits(present: np.ndarray) -> np.ndarray:
    return np.packbits(present, bitorder="little")


def _timestamps(kinds: np.ndarray, millis: np.ndarray) -> tuple[pa.Array, dict[int, str]]:
    """The column from librdkafka's types (0 none, 1 create, 2 log append) and milliseconds; −1 ms for a record without a time, as in
    Kafka's Java client. A time beyond the range of microseconds is null, and is returned by row with the reason (SPEC X9)."""
    kind = SCHEMA.field("timestamp").type
    millis = np.where(kinds == 0, -1, millis)
    beyond = (millis > _LAST_MILLI) | (millis < -_LAST_MILLI)
    if not beyond.any():
        return _fixed(kind, millis * 1000), {}
    buffers = [pa.py_buffer(bits(~beyond)), pa.py_buffer(np.where(beyond, 0, millis) * 1000)]
    reasons = {
        row: f"the timestamp {millis[row]} ms is beyond the range of microseconds"
        for row in np.flatnonzero(beyond).tolist()
    }
    return pa.Array.from_buffers(kind, len(millis), buffers), reasons


def _fixed(kind: pa.DataType, values: np.ndarray) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))], 0)


def _binary(kind: pa.DataType, count: int, name: str, buffers: Buffers) -> pa.Array:
    valid = buffers.get(f"{name}_valid")
    parts = [
        None if valid is None else pa.py_buffer(valid),
        *map(pa.py_buffer, (buffers[f"{name}_ends"], buffers[f"{name}s"])),
    ]
    return pa.Array.from_buffers(kind, count, parts)


def _topics(runs: Sequence[Run], rows: int) -> pa.Array:
    names = [run.tp.topic.encode() for run in runs]
    lengths = np.repeat(np.fromiter(map(len, names), np.int32, len(runs)), [run.rows for run in runs])
    text = b"".join(name * run.rows for name, run in zip(names, runs, strict=True))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends(lengths)), pa.py_buffer(text)], 0)


def _headers(buffers: Buffers, rows: int) -> pa.Array:
    """Null for a record without headers, as in Spark."""
    if "header_ends" not in buffers:
        return pa.nulls(rows, HEADERS)
    count = len(buffers["name_ends"]) - 1
    parts = [_binary(pa.string(), count, "name", buffers), _binary(pa.binary(), count, "header_value", buffers)]
    entries = pa.StructArray.from_arrays(parts, fields=list(HEADERS.value_type))
    validity, lists = pa.py_buffer(buffers["header_valid"]), pa.py_buffer(buffers["header_ends"])
    return pa.Array.from_buffers(HEADERS, rows, [validity, lists], children=[entries])


def java_text(raw: bytes) -> str:
    """UTF-8 as Java's `new String(raw, UTF_8)` decodes it: malformed bytes become U+FFFD, one for a surrogate's three."""
    return raw.decode("utf-8", "crkafka.java")


def _java_replacement(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    raw, at = error.object, error.start
    if raw[at] == 0xED and 0xA0 <= (raw[at + 1] if at + 1 < len(raw) else 0) <= 0xBF:
        third = raw[at + 2] if at + 2 < len(raw) else 0
        return "\N{REPLACEMENT CHARACTER}", at + (3 if 0x80 <= third <= 0xBF else 2)
    return "\N{REPLACEMENT CHARACTER}", error.end


codecs.register_error("crkafka.java", _java_replacement)
