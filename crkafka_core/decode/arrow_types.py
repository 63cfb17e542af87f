"""Arrow types of declared columns, from the JSON form of Spark's types in `config.json_columns` and `registry_columns`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_PLAIN = {
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def of_columns(kind: Any) -> pa.DataType:
    """The Arrow type of a column or a struct of columns, with the same nullability."""
    if isinstance(kind, str):
        if kind in _PLAIN:
            return _PLAIN[kind]
        precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    if kind["type"] == "struct":
        return pa.struct([pa.field(f["name"], of_columns(f["type"]), f["nullable"]) for f in kind["fields"]])
    if kind["type"] == "array":
        return pa.list_(pa.field("element", of_columns(kind["elementType"]), kind["containsNull"]))
    item = pa.field("value", of_columns(kind["valueType"]), kind["valueContainsNull"])
    return pa.map_(of_columns(kind["keyType"]), item)
