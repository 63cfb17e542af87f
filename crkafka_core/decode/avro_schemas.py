"""Avro schemas of a registry, with their references included; and a writer's schema with its reader's logical types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from crkafka_core.config.json_columns import MOST, NoColumns
from crkafka_core.decode.registry import Registry, Schema

_PRIMITIVE = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})

Named = dict[str, tuple[Any, str]]
"""Full name → the named type, and the namespace inside it."""


def whole(registry: Registry, schema: Schema) -> tuple[Any, Named]:
    """The schema with its references included, and all named types."""
    named: Named = {}
    for each in _references(registry, schema):
        _collect(json.loads(each.text), "", named)
    given = json.loads(schema.text)
    _collect(given, "", named)
    return _whole(given, "", named, set()), named


def _references(registry: Registry, schema: Schema, known: dict[tuple[str, int], Schema] | None = None) -> list[Schema]:
    """All schemas that it refers to, in order of dependency, including deleted ones, by which records may have been written."""
    known = {} if known is None else known
    for _, subject, version in schema.references:
        if (subject, version) not in known:
            each = registry.version(subject, version, deleted=True)
            _references(registry, each, known)
            known[subject, version] = each
    return list(known.values())


def full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def space_inside(schema: Mapping[str, Any], space: str) -> str:
    """The namespace inside a named schema."""
    name = str(schema["name"])
    return name.rpartition(".")[0] if "." in name else str(schema.get("namespace", space))


def _collect(schema: Any, space: str, named: Named) -> None:
    """Collect all named types by their full names."""
    if isinstance(schema, list):
        for each in schema:
            _collect(each, space, named)
    elif isinstance(schema, dict):
        if schema.get("type") in _NAMED:
            space = space_inside(schema, space)
            named[full_name(str(schema["name"]), space)] = (schema, space)
        for key in ("items", "values"):
            _collect(schema.get(key), space, named)
        if isinstance(schema.get("type"), dict | list):
            _collect(schema["type"], space, named)
        for each in schema.get("fields", ()):
            _collect(each["type"], space, named)


def find(name: str, space: str, named: Named) -> tuple[Any, str, str]:
    """A named type, the namespace inside of it, and its full name."""
    full = full_name(name, space) if full_name(name, space) in named else name
    if full not in named:
        raise NoColumns(f"the type {name} does not exist")
    schema, inside = named[full]
    return schema, inside, full


def _whole(schema: Any, space: str, named: Named, seen: set[str]) -> Any:
    """The schema with each named type defined at its first use, and its full name at the others."""
    if isinstance(schema, list):
        return [_whole(each, space, named, seen) for each in schema]
    if isinstance(schema, str):
        if schema in _PRIMITIVE:
            return schema
        named_type, inside, full = find(schema, space, named)
        return full if full in seen else _whole(named_type, inside, named, seen)
    out = dict(schema)
    if schema.get("type") in _NAMED:
        space = space_inside(schema, space)
        out["name"] = full_name(str(schema["name"]), space)
        out.pop("namespace", None)
        seen.add(out["name"])
        if "fields" in schema:
            out["fields"] = [{**f, "type": _whole(f["type"], space, named, seen)} for f in schema["fields"]]
        return out
    for key in ("items", "values", "type"):
        if key in schema and not (key == "type" and schema[key] in ("array", "map")):
            out[key] = _whole(schema[key], space, named, seen)
    return out


def holds_itself(schema: Any, inside: tuple[str, ...] = ()) -> bool:
    """Whether a named type of a parsed schema, with full names, is used inside itself."""
    if isinstance(schema, list):
        return any(holds_itself(each, inside) for each in schema)
    if not isinstance(schema, dict):
        return schema in inside
    inside = (*inside, schema["name"]) if "name" in schema else inside
    return any(holds_itself(each, inside) for each in _parts(schema))


def _parts(schema: Mapping[str, Any]) -> list[Any]:
    """The direct parts of a parsed schema: schemas or names."""
    return [schema["type"], schema.get("items"), schema.get("values"), *(f["type"] for f in schema.get("fields", ()))]


def check_sizes(schema: Any) -> None:
    """Refuse a parsed schema whose records may be large with few bytes: ValueError.

    Fields in a union or list are not counted: they exist only if the bytes have them.
    """
    named: Named = {}
    _collect(schema, "", named)
    sizes = _Sizes(named)
    if max(map(sizes.fields, named), default=0) > MOST:
        raise ValueError(f"it has more than {MOST:,} fields within each other")
    if _counts_nothing(schema, sizes):
        raise ValueError("it has a list whose items have no bytes, so that a damaged record could count to any number")


class _Sizes:
    """Properties of named types, computed once for each; a recursive use counts nothing."""

    def __init__(self, named: Named) -> None:
        self._named = named
        self._fields: dict[str, int] = {}
        self._empty: dict[str, bool] = {}

    def fields(self, schema: Any) -> int:
        if isinstance(schema, str) and schema in self._named:
            if schema not in self._fields:
                self._fields[schema] = 0
                fields = self._named[schema][0].get("fields", ())
                self._fields[schema] = len(fields) + sum(self.fields(f["type"]) for f in fields)
            return self._fields[schema]
        if isinstance(schema, dict):
            return self.fields(schema["name"] if "name" in schema else schema["type"])
        return 0

    def have_no_bytes(self, schema: Any) -> bool:
        if isinstance(schema, str) and schema in self._named:
            if schema not in self._empty:
                self._empty[schema] = False
                self._empty[schema] = self.have_no_bytes(self._named[schema][0])
            return self._empty[schema]
        if not isinstance(schema, dict):
            return bool(schema == "null")
        if "fields" in schema:
            return all(self.have_no_bytes(f["type"]) for f in schema["fields"])
        if schema["type"] == "fixed":
            return bool(schema["size"] == 0)
        return self.have_no_bytes(schema["type"])


def _counts_nothing(schema: Any, sizes: _Sizes) -> bool:
    """Whether it has a list whose items have no bytes: nulls, or records of nulls."""
    if isinstance(schema, list):
        return any(_counts_nothing(each, sizes) for each in schema)
    if not isinstance(schema, dict):
        return False
    empty = schema["type"] == "array" and sizes.have_no_bytes(schema["items"])
    return empty or any(_counts_nothing(each, sizes) for each in _parts(schema))


def decode_defaults(parsed: Any) -> None:
    """Convert defaults to decoded values: fastavro leaves them as in JSON, a number for a time, a text for bytes."""
    named: Named = {}
    _collect(parsed, "", named)
    types = {name: schema for name, (schema, _) in named.items()}
    fields = [f for schema in types.values() for f in schema.get("fields", ()) if "default" in f]
    for each, value in [(f, _decoded(f["default"], f["type"], types)) for f in fields]:
        each["default"] = value


def _decoded(given: Any, schema: Any, types: Mapping[str, Any]) -> Any:
    """A default as a decoded value; unchanged if it does not fit its type."""
    from fastavro.read import LOGICAL_READERS

    if isinstance(schema, list):
        schema = next((each for each in schema if each != "null"), "null")
    if isinstance(schema, str):
        schema = types.get(schema, {"type": schema})
    kind = schema["type"]
    if "fields" in schema and isinstance(given, dict):
        whole = {f["name"]: f["default"] for f in schema["fields"] if "default" in f} | given
        return {f["name"]: _decoded(whole[f["name"]], f["type"], types) for f in schema["fields"] if f["name"] in whole}
    if kind == "array" and isinstance(given, list):
        return [_decoded(each, schema["items"], types) for each in given]
    if kind == "map" and isinstance(given, dict):
        return {key: _decoded(each, schema["values"], types) for key, each in given.items()}
    read = LOGICAL_READERS.get(f"{kind}-{schema.get('logicalType')}")
    try:
        value = given.encode("latin-1") if kind in ("bytes", "fixed") else given
        return value if read is None or value is None else read(value, schema, schema)
    except (ValueError, TypeError, ArithmeticError, AttributeError):
        return given


def read_as(writer: Any, reader: Any) -> Any:
    """The writer's schema with the reader's logical types, where one of the two has none.

    To Avro both are the same number or bytes; fastavro converts by the writer's type only, so that microseconds would be a plain number
    of unknown unit.
    """
    if isinstance(writer, list):
        return [read_as(branch, _branch(branch, reader)) for branch in writer]
    if isinstance(reader, list):
        reader = _branch(writer, reader)
    kind = _kind(writer)
    if reader is None or kind != _kind(reader):
        return writer
    if kind in ("record", "error") and isinstance(writer, dict) and isinstance(reader, dict):
        types = {name: f["type"] for f in reader["fields"] for name in (f["name"], *f.get("aliases", ()))}
        return {**writer, "fields": [{**f, "type": read_as(f["type"], types.get(f["name"]))} for f in writer["fields"]]}
    if kind in ("array", "map") and isinstance(reader, dict):
        inner = "items" if kind == "array" else "values"
        return {**writer, inner: read_as(writer[inner], reader[inner])}
    if kind in _PRIMITIVE and (_logical(writer) is None) != (_logical(reader) is None):
        return reader
    return writer


def _branch(schema: Any, union: Any) -> Any:
    """The branch of a union with the kind of a schema; a schema that is not a union counts as one branch."""
    branches = union if isinstance(union, list) else [union]
    return next((each for each in branches if each is not None and _kind(each) == _kind(schema)), None)


def _kind(schema: Any) -> str:
    while isinstance(schema, dict) and isinstance(schema["type"], dict):
        schema = schema["type"]
    return str(schema["type"] if isinstance(schema, dict) else schema)


def _logical(schema: Any) -> Any:
    return schema.get("logicalType") if isinstance(schema, dict) else None
