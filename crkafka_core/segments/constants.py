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
from crkafka_core.segments.batch import CHECKPOINT, SEGMENT

CONSTANTS = b"crkafka.constants"
"""Key of the footer's metadata under which they are told, as a JSON object."""


class Constants:
    """Gathers them while the segment of a checkpoint is written."""

    def __init__(self, number: int) -> None:
        self._number = number
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
        found = {**(self._found or {}), CHECKPOINT: self._number}
        for name, values in (("topic", {tp.topic for tp in tps}), ("partition", {tp.partition for tp in tps})):
            if len(values) == 1:
                found[name] = values.pop()
        return {CONSTANTS.decode(): json.dumps(found, ensure_ascii=False, sort_keys=True)}


@dataclass(frozen=True)
class Plan:
    """How the wanted columns of a segment are had. Most segments of a region tell the same constants: it is made once."""

    left: tuple[str, ...]
    """Those that are read."""
    read: pa.Schema
    """Theirs."""
    _answer: pa.Schema
    _constants: tuple[_Constant | None, ...]
    """Of each column of the answer; None: it is read."""

    def completed(self, read: Sequence[pa.Array], rows: int) -> pa.RecordBatch:
        """What was read of the others, with the constants in their places."""
        others = iter(read)
        columns = [next(others) if constant is None else constant.repeated(rows) for constant in self._constants]
        return pa.RecordBatch.from_arrays(columns, schema=self._answer)


@lru_cache(maxsize=32)
def plan_of(told: bytes, wanted: tuple[str, ...]) -> Plan:
    """`told`: by the footer. `wanted`: in the order of the segment's columns."""
    values: dict[str, Any] = json.loads(told or b"{}")
    fields = {name: SEGMENT.field(name) for name in wanted}
    left = tuple(name for name in wanted if name not in values)
    constants = {name: _Constant(values[name], field) for name, field in fields.items() if name in values}
    answer = SEGMENT if len(wanted) == len(SEGMENT) else pa.schema(fields.values())
    return Plan(left, pa.schema([fields[n] for n in left]), answer, tuple(constants.get(name) for name in wanted))


class _Constant:
    """One value, in as many rows as are asked for."""

    def __init__(self, value: str | int | None, field: pa.Field) -> None:
        there = {pa.string(): str, pa.int32(): int, pa.int64(): int}.get(field.type, type(None))
        wide = isinstance(value, int) and abs(value) >= 2 ** (field.type.bit_width - 1)
        if (value is None and not field.nullable) or (value is not None and (not isinstance(value, there) or wide)):
            raise ValueError(f"its footer says that {field.name} is {value!r} in all rows")
        self._value, self._kind = value, field.type
        self._made: dict[int, pa.Array] = {}

    def repeated(self, rows: int) -> pa.Array:
        """A part of a few more that were made before: not many more, since who counts bytes counts all of them."""
        if rows > _KEPT:
            return _made(self._value, self._kind, rows)
        size = 1 << max(rows - 1, 0).bit_length()
        if size not in self._made:
            self._made[size] = _made(self._value, self._kind, size)
        return self._made[size].slice(0, rows)


_KEPT = 2048
"""Of how many rows at most constants are kept."""


def _made(value: str | int | None, kind: pa.DataType, rows: int) -> pa.Array:
    """By its buffers: asked to make an array of Python's values, Arrow first imports pandas."""
    if value is None:
        return pa.nulls(rows, kind)
    if isinstance(value, int):
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(np.full(rows, value, f"int{kind.bit_width}"))])
    text = value.encode()
    ends = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(len(text)))
    return pa.Array.from_buffers(kind, rows, [None, ends, pa.py_buffer(text * rows)])
