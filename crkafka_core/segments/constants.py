"""Columns of which all rows of a segment have the same value: its footer tells them, and who reads the whole does not decode them.

Few records have headers, and most segments are of one topic. Of a small segment each column costs the same, however little is in it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import SCHEMA

CONSTANTS = b"crkafka.constants"
"""Key of the footer's metadata under which they are told, as a JSON object."""


class Constants:
    """Gathers them while a segment is written."""

    def __init__(self) -> None:
        self._found: dict[str, Any] | None = None

    def add(self, rows: pa.Table) -> None:
        """Rows that are written, at least one."""
        here: dict[str, Any] = {
            name: None for name in ("key", "headers", "timestampType") if rows.column(name).null_count == rows.num_rows
        }
        kinds = rows.column("timestampType")
        bounds = pc.min_max(kinds).as_py()
        if not kinds.null_count and bounds["min"] == bounds["max"]:
            here["timestampType"] = bounds["min"]
        self._found = here if self._found is None else dict(self._found.items() & here.items())

    def footer(self, tps: Collection[TP]) -> dict[str, str]:
        """What to add to the file's metadata, if all of its rows are of these partitions."""
        found = dict(self._found or {})
        for name, values in (("topic", {tp.topic for tp in tps}), ("partition", {tp.partition for tp in tps})):
            if len(values) == 1:
                found[name] = values.pop()
        return {CONSTANTS.decode(): json.dumps(found, ensure_ascii=False, sort_keys=True)} if found else {}


@dataclass(frozen=True)
class Plan:
    """How the wanted columns of a segment are had. Most segments of a region tell the same constants: it is made once."""

    left: tuple[str, ...]
    """Those that are read."""
    read: pa.Schema
    """Theirs."""
    _answer: pa.Schema
    _constants: tuple[tuple[pa.Array, Any] | None, ...]
    """Of each column of the answer some rows, and its value; None: it is read."""

    def completed(self, read: Sequence[pa.Array], rows: int) -> pa.RecordBatch:
        """What was read of the others, with the constants in their places."""
        others = iter(read)
        columns = [next(others) if told is None else _repeated(*told, rows) for told in self._constants]
        return pa.RecordBatch.from_arrays(columns, schema=self._answer)


@lru_cache(maxsize=64)
def plan_of(told: bytes, wanted: tuple[str, ...]) -> Plan:
    """`told`: by the footer, empty for a segment of an older version. `wanted`: in the order of the segment's columns."""
    constants: dict[str, Any] = json.loads(told or b"{}")
    fields = {name: SCHEMA.field(name) for name in wanted}
    left = tuple(name for name in wanted if name not in constants)
    some = {n: (_made(constants[n], f.type, _SOME), constants[n]) for n, f in fields.items() if n in constants}
    answer = SCHEMA if len(wanted) == len(SCHEMA) else pa.schema(fields.values())
    return Plan(left, pa.schema([fields[n] for n in left]), answer, tuple(some.get(name) for name in wanted))


_SOME = 2048
"""Rows of a constant that are kept: a small segment's are a part of them."""


def _repeated(some: pa.Array, value: str | int | None, rows: int) -> pa.Array:
    return some.slice(0, rows) if rows <= len(some) else _made(value, some.type, rows)


def _made(value: str | int | None, kind: pa.DataType, rows: int) -> pa.Array:
    """By its buffers: asked to make an array of Python's values, Arrow first imports pandas."""
    if value is None:
        return pa.nulls(rows, kind)
    if isinstance(value, int):
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(np.full(rows, value, np.int32))])
    text = value.encode()
    ends = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(len(text)))
    return pa.Array.from_buffers(kind, rows, [None, ends, pa.py_buffer(text * rows)])
