"""Avro schemas of a registry: each whole, with what it refers to inside of it; a writer's with the logical types of its reader."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from crkafka_core.config.json_columns import NoColumns
from crkafka_core.decode.registry import Registry, Schema

_PRIMITIVE = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})

Named = dict[str, tuple[Any, str]]
"""Full name → the named type, and the namespace that holds inside of it."""


def whole(registry: Registry, schema: Schema) -> tuple[Any, Named]:
    """The schema with what it refers to inside of it, and every named type."""
    named: Named = {}
    for each in _references(registry, schema):
        _collect(json.loads(each.text), "", named)
    given = json.loads(schema.text)
    _collect(given, "", named)
    return _whole(given, "", named, set()), named


def _references(registry: Registry, schema: Schema, known: dict[tuple[str, int], Schema] | None = None) -> list[Schema]:
    """All that the schema is made of, what is needed first in front. A deleted one still says what was written by it."""
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
    """The namespace inside of a named schema."""
    name = str(schema["name"])
    return name.rpartition(".")[0] if "." in name else str(schema.get("namespace", space))


def _collect(schema: Any, space: str, named: Named) -> None:
    """Every named type, by its full name."""
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
        raise NoColumns(f"the type {name} is not there")
    schema, inside = named[full]
    return schema, inside, full


def _whole(schema: Any, space: str, named: Named, seen: set[str]) -> Any:
    """Each named type stands where it comes first, and goes by its full name."""
    if isinstance(schema, list):
        return [_whole(each, space, named, seen) for each in schema]
    if isinstance(schema, str):
        if schema in _PRIMITIVE:
            return schema
        found, inside, full = find(schema, space, named)
        return full if full in seen else _whole(found, inside, named, seen)
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
    """Whether a named type is used again within itself; of a parsed schema, in which names are full."""
    if isinstance(schema, list):
        return any(holds_itself(each, inside) for each in schema)
    if not isinstance(schema, dict):
        return schema in inside
    inside = (*inside, schema["name"]) if "name" in schema else inside
    return any(holds_itself(each, inside) for each in _parts(schema))


def _parts(schema: Mapping[str, Any]) -> list[Any]:
    """The schemas within a parsed one, as it stands, and names of such."""
    return [schema["type"], schema.get("items"), schema.get("values"), *(f["type"] for f in schema.get("fields", ()))]


def counts_nothing(schema: Any) -> bool:
    """Whether there is a list in a parsed schema whose items have no bytes: nulls, or records of such."""
    named: Named = {}
    _collect(schema, "", named)
    return _counts_nothing(schema, _Sizes(named))


def most_fields(schema: Any) -> int:
    """Fields that some record of a parsed schema has at least, those within others among them, however few bytes it has.

    What is in a union or a list is there only if the bytes say so.
    """
    named: Named = {}
    _collect(schema, "", named)
    sizes = _Sizes(named)
    return max(map(sizes.fields, named), default=0)


class _Sizes:
    """What is asked of named types, answered once for each; one within itself counts as nothing more."""

    def __init__(self, named: Named) -> None:
        self._named = named
        self._fields: dict[str, int] = {}
        self._empty: dict[str, bool] = {}

    def fields(self, schema: Any) -> int:
        if isinstance(schema, str) and schema in self._named:
            if schema not in self._fields:
                self._fields[schema] = 0
                of = self._named[schema][0].get("fields", ())
                self._fields[schema] = len(of) + sum(self.fields(f["type"]) for f in of)
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
    if isinstance(schema, list):
        return any(_counts_nothing(each, sizes) for each in schema)
    if not isinstance(schema, dict):
        return False
    empty = schema["type"] == "array" and sizes.have_no_bytes(schema["items"])
    return empty or any(_counts_nothing(each, sizes) for each in _parts(schema))


def decode_defaults(parsed: Any) -> None:
    """Defaults become what is decoded of such a field: fastavro gives them as JSON has them, a number for a time, text for bytes."""
    named: Named = {}
    _collect(parsed, "", named)
    types = {name: schema for name, (schema, _) in named.items()}
    fields = [f for schema in types.values() for f in schema.get("fields", ()) if "default" in f]
    for each, value in [(f, _decoded(f["default"], f["type"], types)) for f in fields]:
        each["default"] = value


def _decoded(given: Any, schema: Any, types: Mapping[str, Any]) -> Any:
    """What is not of its type stays as it is."""
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

    To Avro both are the same number or bytes; fastavro converts by the writer's type alone, so that microseconds would come as
    a bare number, of which nobody could tell the unit.
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
    """What of a union a schema is resolved to, or the schema itself where there is no union."""
    branches = union if isinstance(union, list) else [union]
    return next((each for each in branches if each is not None and _kind(each) == _kind(schema)), None)


def _kind(schema: Any) -> str:
    while isinstance(schema, dict) and isinstance(schema["type"], dict):
        schema = schema["type"]
    return str(schema["type"] if isinstance(schema, dict) else schema)


def _logical(schema: Any) -> Any:
    return schema.get("logicalType") if isinstance(schema, dict) else None
