"""Columns of which all rows of a segment have the same value: its footer tells them, and who reads the whole does not decode them.

Few records have headers, and most segments are of one topic. Of a small segment each column costs the same, however little is in it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import SCHEMA

CONSTANTS = "crkafka.constants"
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
        return {CONSTANTS: json.dumps(found, ensure_ascii=False)} if found else {}


def of_footer(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    """Column → its one value; empty for a segment that tells none."""
    found: dict[str, Any] = json.loads((metadata or {}).get(CONSTANTS.encode(), b"{}"))
    return found


def completed(
    read: Mapping[str, pa.Array], rows: int, wanted: Sequence[str], constants: Mapping[str, Any]
) -> pa.RecordBatch:
    """The wanted columns: what was read, and the others as the footer tells them."""
    fields = [SCHEMA.field(name) for name in wanted]
    columns = [read[f.name] if f.name in read else _repeated(constants[f.name], f.type, rows) for f in fields]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA if len(fields) == len(SCHEMA) else pa.schema(fields))


def _repeated(value: str | int | None, kind: pa.DataType, rows: int) -> pa.Array:
    """By its buffers: asked to make an array of Python's values, Arrow first imports pandas."""
    if value is None:
        return pa.nulls(rows, kind)
    if isinstance(value, int):
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(np.full(rows, value, np.int32))])
    text = value.encode()
    ends = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(len(text)))
    return pa.Array.from_buffers(kind, rows, [None, ends, pa.py_buffer(text * rows)])
