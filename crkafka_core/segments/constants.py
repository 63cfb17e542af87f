"""Constant columns of a segment: its footer has their values, and a reader of the whole segment does not decode them.

Few records have headers, and most segments are of one topic; in a small segment each column costs about the same to decode.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import CHECKPOINT, SEGMENT, repeated

CONSTANTS = b"crkafka.constants"
"""Key of the constants in the footer's metadata, as a JSON object."""


class Constants:
    """Collects the constants while a segment is written."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._values: dict[str, Any] | None = None

    def add(self, rows: pa.Table) -> None:
        """Note rows of the segment, at least one."""
        here: dict[str, Any] = {
            name: None for name in ("key", "headers", "timestampType") if rows.column(name).null_count == rows.num_rows
        }
        kinds = rows.column("timestampType")
        bounds = pc.min_max(kinds).as_py()
        if not kinds.null_count and bounds["min"] == bounds["max"]:
            here["timestampType"] = bounds["min"]
        self._values = here if self._values is None else dict(self._values.items() & here.items())

    def footer(self, tps: Collection[TP]) -> dict[str, str]:
        """Entry of the file's metadata, for rows of these partitions."""
        constants = {**(self._values or {}), CHECKPOINT: self._number}
        for name, values in (("topic", {tp.topic for tp in tps}), ("partition", {tp.partition for tp in tps})):
            if len(values) == 1:
                constants[name] = values.pop()
        return {CONSTANTS.decode(): json.dumps(constants, ensure_ascii=False, sort_keys=True)}


@dataclass(frozen=True)
class Plan:
    """Which wanted columns are read and which are constant. Cached: most segments of a region have the same constants."""

    left: tuple[str, ...]
    """Names of the columns to read."""
    read: pa.Schema
    """Schema of the columns to read."""
    _answer: pa.Schema
    _constants: tuple[_Constant | None, ...]
    """One for each column of the answer; None for a column to read."""

    def completed(self, read: Sequence[pa.Array], rows: int) -> pa.RecordBatch:
        """The wanted columns: those that were read, and the constants."""
        others = iter(read)
        columns = [next(others) if constant is None else constant.repeated(rows) for constant in self._constants]
        return pa.RecordBatch.from_arrays(columns, schema=self._answer)


@lru_cache(maxsize=32)
def plan_of(constants_json: bytes, wanted: tuple[str, ...]) -> Plan:
    """The plan for `wanted`, in the order of the segment's columns, by the constants in its footer."""
    values: dict[str, Any] = json.loads(constants_json or b"{}")
    fields = {name: SEGMENT.field(name) for name in wanted}
    left = tuple(name for name in wanted if name not in values)
    constants = {name: _Constant(values[name], field) for name, field in fields.items() if name in values}
    answer = SEGMENT if len(wanted) == len(SEGMENT) else pa.schema(fields.values())
    return Plan(left, pa.schema([fields[n] for n in left]), answer, tuple(constants.get(name) for name in wanted))


class _Constant:
    """One value, repeated for any number of rows."""

    def __init__(self, value: str | int | None, field: pa.Field) -> None:
        expected = {pa.string(): str, pa.int32(): int, pa.int64(): int}.get(field.type, type(None))
        wide = isinstance(value, int) and abs(value) >= 2 ** (field.type.bit_width - 1)
        if (value is None and not field.nullable) or (value is not None and (not isinstance(value, expected) or wide)):
            raise ValueError(f"its footer says that {field.name} is {value!r} in all rows")
        self._value, self._kind = value, field.type
        self._made: dict[int, pa.Array] = {}

    def repeated(self, rows: int) -> pa.Array:
        """A slice of a kept array, of less than twice the rows: a count of bytes includes the whole array."""
        if rows > _KEPT:
            return repeated(self._value, self._kind, rows)
        size = 1 << max(rows - 1, 0).bit_length()
        if size not in self._made:
            self._made[size] = repeated(self._value, self._kind, size)
        return self._made[size].slice(0, rows)


_KEPT = 2048
"""Most rows of a kept array."""
