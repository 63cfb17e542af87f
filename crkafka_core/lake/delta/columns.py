"""A Delta schema as Arrow's, and the other way; what a table with such columns asks of programs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from crkafka_core.lake.port import CannotCommit, needed


@lru_cache(maxsize=1024)
def in_files(text: str) -> pa.Schema:
    """The columns of a schema of the log, by the names that they have in the table's files (column mapping)."""
    return pa.schema(_struct(json.loads(text)))


_PLAIN = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def _struct(schema: Mapping[str, Any]) -> pa.StructType:
    """By hand: deltalake reads no schema of more than about 40 levels."""
    return pa.struct(
        [
            pa.field(
                (field.get("metadata") or {}).get("delta.columnMapping.physicalName", field["name"]),
                _type(field["type"]),
                nullable=field.get("nullable", True),
            )
            for field in schema["fields"]
        ]
    )


def _type(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        if decimal := _DECIMAL.fullmatch(kind):
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if kind not in _PLAIN:
            raise CannotCommit(f"Delta's type {kind} is not supported.", hint="Drop the column, or write with Spark.")
        return _PLAIN[kind]
    if kind["type"] == "struct":
        return _struct(kind)
    if kind["type"] == "array":
        return pa.list_(pa.field("element", _type(kind["elementType"]), nullable=kind.get("containsNull", True)))
    value = pa.field("value", _type(kind["valueType"]), nullable=kind.get("valueContainsNull", True))
    return pa.map_(_type(kind["keyType"]), value)


def schema_text(schema: pa.Schema) -> str:
    """As Delta's log has it."""
    lake = deltalake()
    try:
        return str(lake.Schema.from_arrow(schema).to_json())
    except Exception as error:  # deltalake has none of its own for this
        raise CannotCommit(
            f"Delta has no type for {', '.join(f'{each.name}: {each.type}' for each in schema)}.",
            hint="Let the shape give another type.",
        ) from error


_WRITER = (
    (2, "appendOnly"),
    (2, "invariants"),
    (3, "checkConstraints"),
    (4, "changeDataFeed"),
    (4, "generatedColumns"),
)
"""Features of versions of the protocol from before features had names."""


def protocol_of(schema: pa.Schema, now: Mapping[str, Any], *, marks: bool = False) -> Mapping[str, Any]:
    """What a table with these columns asks of programs: times without a zone are a feature of their own, and deletion vectors are."""
    features = {"timestampNtz"} if any(_zoneless(field.type) for field in schema) else set[str]()
    features |= {"deletionVectors"} if marks else set()
    if not features:
        return now
    reader, writer = list(now.get("readerFeatures") or ()), now.get("writerFeatures")
    old = int(now.get("minWriterVersion", 2))
    writer = [name for least, name in _WRITER if old >= least] if writer is None else list(writer)
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": sorted({*reader, *features}),
        "writerFeatures": sorted({*writer, *features}),
    }


def _zoneless(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    if pa.types.is_map(kind):
        return _zoneless(kind.key_type) or _zoneless(kind.item_type)
    if pa.types.is_list(kind):
        return _zoneless(kind.value_type)
    return pa.types.is_struct(kind) and any(_zoneless(field.type) for field in kind)


def deltalake() -> Any:
    return needed("deltalake", "A Delta table", "delta")
