"""An Iceberg schema as Arrow's, and the other way; columns that are added or widened keep the ids of the others (SPEC K6)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import pyarrow as pa

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
_NAMES = {kind: name for name, kind in _PLAIN.items() if not name.endswith("_ns") and name != "uuid"}
_NAMES |= {pa.int8(): "int", pa.int16(): "int"}
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
    """A type that tables have (`kinds.stored`) in the words of Iceberg; in place of each field's id there is none yet."""
    t = pa.types
    if t.is_struct(kind):
        return {"type": "struct", "fields": [_new_field(each) for each in kind]}
    if t.is_map(kind):
        return {"type": "map", "key": iceberg_type(kind.key_type), "value": iceberg_type(kind.item_type)}
    if t.is_list(kind):
        return {"type": "list", "element": iceberg_type(kind.value_type)}
    if t.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if t.is_fixed_size_binary(kind):
        return f"fixed[{kind.byte_width}]"
    if kind in _NAMES:
        return _NAMES[kind]
    raise CannotCommit(
        f"Arrow's type {kind} has no place in an Iceberg table.", hint="Let the shape give another type."
    )


def _new_field(each: pa.Field) -> Field:
    return {"name": each.name, "required": False, "type": iceberg_type(each.type)}


def new_schema(columns: pa.Schema) -> Schema:
    """The first schema of a table. All columns are optional: a later writer may have nothing to put into one."""
    fields = _Ids(0).numbered([_new_field(each) for each in columns])
    return {"type": "struct", "schema-id": 0, "fields": fields}


def evolved(schema: Schema, columns: pa.Schema, last_id: int) -> Schema | None:
    """The schema with these columns, which are its own (some wider), then new ones; None if it has all of that."""
    fields = _fields(schema["fields"], to_arrow(new_schema(columns)), _Ids(last_id))
    return None if fields == schema["fields"] else {**schema, "fields": fields}


def _fields(old: Sequence[Field], now: Iterable[pa.Field], ids: _Ids) -> list[Field]:
    """Fields with their ids and the types of `now`, and new ones at the end."""
    by_name, kept, new = {each["name"]: each for each in old}, list[Field](), list[Field]()
    for field in now:
        if known := by_name.get(field.name):
            kept.append({**known, "type": _type(known["type"], field.type, ids)})
        else:
            new.append(_new_field(field))
    return kept + ids.numbered(new)


def _type(old: Any, kind: pa.DataType, ids: _Ids) -> Any:
    if isinstance(old, str):
        return old if arrow_type(old) == kind else iceberg_type(kind)
    if old["type"] == "struct":
        return {**old, "fields": _fields(old["fields"], kind, ids)}
    parts = {"element": kind.value_type} if old["type"] == "list" else {"key": kind.key_type, "value": kind.item_type}
    return {**old, **{part: _type(old[part], inner, ids) for part, inner in parts.items()}}


def _parts(kind: Any) -> tuple[str, ...]:
    return ("element",) if kind["type"] == "list" else ("key", "value")


class _Ids:
    """Gives ids to fields that have none, each once."""

    def __init__(self, last: int) -> None:
        self._next = count(last + 1)

    def numbered(self, fields: Sequence[Field]) -> list[Field]:
        """As Iceberg's own catalogs do: the fields of one level first, then what is within them."""
        numbers = [next(self._next) for _ in fields]
        return [
            {"id": number, **each, "type": self._within(each["type"])}
            for number, each in zip(numbers, fields, strict=True)
        ]

    def _within(self, kind: Any) -> Any:
        if isinstance(kind, str):
            return kind
        if kind["type"] == "struct":
            return {**kind, "fields": self.numbered(kind["fields"])}
        parts = _parts(kind)
        made = dict(kind) | {f"{part}-id": next(self._next) for part in parts}
        for part in parts:
            made[part] = self._within(kind[part])
            if part != "key":
                made[f"{part}-required"] = False
        return made


def _children(kind: Any) -> list[tuple[str, int, Any]]:
    """Name, id and type of what is directly within a type."""
    if isinstance(kind, str):
        return []
    if kind["type"] == "struct":
        return [(each["name"], each["id"], each["type"]) for each in kind["fields"]]
    return [(part, kind[f"{part}-id"], kind[part]) for part in _parts(kind)]


def last_id(kind: Any) -> int:
    return max((max(number, last_id(child)) for _, number, child in _children(kind)), default=0)


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
    children, made = _children(kind), []
    present = {name for name, *_ in children}
    for name, number, child in children:
        # A former name that another column has now is that column's, as Iceberg's own catalogs have it: no reader takes it for two.
        former = [each for each in more.get(number, ()) if each not in present]
        names = list(dict.fromkeys([*former, name]))
        within = _mapping(child, more)
        made.append({"field-id": number, "names": names, **({"fields": within} if within else {})})
    return made
