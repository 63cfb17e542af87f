"""An Iceberg schema as Arrow's, and the other way; columns that are added or widened keep the ids of the others (SPEC K6)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from crkafka_core.lake import evolution
from crkafka_core.lake.port import CannotCommit

Field = dict[str, Any]
Schema = dict[str, Any]
NAME_MAPPING = "schema.name-mapping.default"
"""Property of a table: how files without field ids, such as segments, are read."""
_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
    "uuid": pa.binary(16),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_FIXED = re.compile(r"fixed\[(\d+)\]")


def to_arrow(schema: Schema) -> pa.Schema:
    """Without field ids: a file has either all of them or none, and ours have none."""
    return pa.schema([_arrow_field(each) for each in schema["fields"]])


def _arrow_field(each: Field) -> pa.Field:
    return pa.field(each["name"], arrow_type(each["type"]), nullable=not each["required"])


def arrow_type(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        if decimal := _DECIMAL.fullmatch(kind):
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if fixed := _FIXED.fullmatch(kind):
            return pa.binary(int(fixed[1]))
        if kind not in _PLAIN:
            raise CannotCommit(f"Iceberg's type {kind} is not supported.", hint="Drop the column, or write with Spark.")
        return _PLAIN[kind]
    if kind["type"] == "struct":
        return pa.struct([_arrow_field(each) for each in kind["fields"]])
    if kind["type"] == "list":
        return pa.list_(pa.field("element", arrow_type(kind["element"]), nullable=not kind["element-required"]))
    value = pa.field("value", arrow_type(kind["value"]), nullable=not kind["value-required"])
    return pa.map_(arrow_type(kind["key"]), value)


def iceberg_type(kind: pa.DataType) -> Any:
    """A type in the words of Iceberg; in place of each field's id there is none yet."""
    t = pa.types
    if t.is_dictionary(kind):
        return iceberg_type(kind.value_type)
    if t.is_struct(kind):
        return {"type": "struct", "fields": [_new_field(each) for each in kind]}
    if t.is_map(kind):
        return {"type": "map", "key": iceberg_type(kind.key_type), "value": iceberg_type(kind.item_type)}
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        return {"type": "list", "element": iceberg_type(kind.value_type)}
    if t.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if t.is_fixed_size_binary(kind):
        return f"fixed[{kind.byte_width}]"
    if t.is_timestamp(kind) and kind.unit != "ns":
        return "timestamptz" if kind.tz else "timestamp"
    tests = (
        (t.is_boolean, "boolean"),
        (lambda k: k in (pa.int64(), pa.uint32()), "long"),
        (lambda k: t.is_integer(k) and k != pa.uint64(), "int"),
        (t.is_float32, "float"),
        (t.is_float16, "float"),
        (t.is_float64, "double"),
        (t.is_date, "date"),
        (t.is_time, "time"),
        (lambda k: t.is_string(k) or t.is_large_string(k) or t.is_string_view(k), "string"),
        (lambda k: t.is_binary(k) or t.is_large_binary(k) or t.is_binary_view(k), "binary"),
    )
    for matches, name in tests:
        if matches(kind):
            return name
    raise CannotCommit(
        f"Arrow's type {kind} has no place in an Iceberg table.", hint="Let the shape give another type."
    )


def _new_field(each: pa.Field) -> Field:
    return {"name": each.name, "required": False, "type": iceberg_type(each.type)}


def new_schema(columns: pa.Schema) -> Schema:
    """The first schema of a table. All columns are optional: a later writer may have nothing to put into one."""
    ids = _Ids(0)
    fields = ids.numbered([_new_field(each) for each in columns])
    return {"type": "struct", "schema-id": 0, "fields": fields}


def evolved(schema: Schema, columns: pa.Schema, last_id: int) -> Schema | None:
    """The schema with new columns at its end and widened types; None if it has all of that. Columns that only the table has stay."""
    try:
        then = evolution.evolved(to_arrow(schema), to_arrow(new_schema(columns)))
    except evolution.Incompatible as error:
        hint = "Iceberg widens int to long, float to double, and the digits of a decimal. Give the new values another column."
        raise CannotCommit(f"An Iceberg table cannot follow its schema: {error}.", hint=hint) from None
    fields = _fields(schema["fields"], then, _Ids(last_id))
    return None if fields == schema["fields"] else {**schema, "fields": fields}


def _fields(old: Sequence[Field], then: Iterable[pa.Field], ids: _Ids) -> list[Field]:
    """Fields with their ids and the types of `then`, which has them in the same order, and new ones at the end."""
    by_name, now = {each["name"]: each for each in old}, list(then)
    kept = [{**by_name[f.name], "type": _type(by_name[f.name]["type"], f.type, ids)} for f in now if f.name in by_name]
    return kept + ids.numbered([_new_field(f) for f in now if f.name not in by_name])


def _type(old: Any, kind: pa.DataType, ids: _Ids) -> Any:
    if isinstance(old, str):
        return old if arrow_type(old) == kind else iceberg_type(kind)
    if old["type"] == "struct":
        return {**old, "fields": _fields(old["fields"], kind, ids)}
    parts = {"element": kind.value_type} if old["type"] == "list" else {"key": kind.key_type, "value": kind.item_type}
    return {**old, **{part: _type(old[part], of, ids) for part, of in parts.items()}}


class _Ids:
    """Gives ids to fields that have none, each once."""

    def __init__(self, last: int) -> None:
        self._last = last

    def _next(self) -> int:
        self._last += 1
        return self._last

    def numbered(self, fields: Sequence[Field]) -> list[Field]:
        """As Iceberg's own catalogs do: the fields of one level first, then what is within them."""
        numbers = [self._next() for _ in fields]
        return [
            {"id": number, **each, "type": self._within(each["type"])}
            for number, each in zip(numbers, fields, strict=True)
        ]

    def _within(self, kind: Any) -> Any:
        if isinstance(kind, str):
            return kind
        if kind["type"] == "struct":
            return {**kind, "fields": self.numbered(kind["fields"])}
        parts = ("element",) if kind["type"] == "list" else ("key", "value")
        made = dict(kind) | {f"{part}-id": self._next() for part in parts}
        for part in parts:
            made[part] = self._within(kind[part])
            if part != "key":
                made[f"{part}-required"] = False
        return made


def last_id(schema: Schema) -> int:
    return max(_ids(schema), default=0)


def _ids(kind: Any) -> Iterator[int]:
    if isinstance(kind, dict):
        for each in kind.get("fields", ()):
            yield each["id"]
            yield from _ids(each["type"])
        for part in ("element", "key", "value"):
            if part in kind:
                yield kind[f"{part}-id"]
                yield from _ids(kind[part])


def name_mapping(schema: Schema, before: str | None) -> str:
    """The mapping of a schema as JSON. Names that the mapping of before has besides stay: files have them still."""
    more = {each["field-id"]: each["names"] for each in _mapped(json.loads(before) if before else [])}
    return json.dumps(_mapping(schema, more), separators=(",", ":"))


def _mapped(mapping: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for each in mapping:
        if "field-id" in each:
            yield each
        yield from _mapped(each.get("fields") or ())


def _mapping(kind: Any, more: Mapping[int, Sequence[str]]) -> list[dict[str, Any]]:
    if isinstance(kind, str):
        return []
    if kind["type"] == "struct":
        children = [(each["name"], each["id"], each["type"]) for each in kind["fields"]]
    else:
        parts = ("element",) if kind["type"] == "list" else ("key", "value")
        children = [(part, kind[f"{part}-id"], kind[part]) for part in parts]
    made = []
    present = {name for name, *_ in children}
    for name, number, child in children:
        # A former name that another column has now is that column's, as Iceberg's own catalogs have it: no reader takes it for two.
        former = [each for each in more.get(number, ()) if each not in present]
        names = list(dict.fromkeys([*former, name]))
        within = _mapping(child, more)
        made.append({"field-id": number, "names": names, **({"fields": within} if within else {})})
    return made
