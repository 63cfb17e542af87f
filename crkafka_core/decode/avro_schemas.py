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


def _references(registry: Registry, schema: Schema) -> list[Schema]:
    """All that the schema is made of, what is needed first in front. A deleted one still says what was written by it."""
    needed: list[Schema] = []
    for _, subject, version in schema.references:
        each = registry.version(subject, version, deleted=True)
        needed += [one for one in [*_references(registry, each), each] if one not in needed]
    return needed


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
    return _counts_nothing(schema, named)


def _counts_nothing(schema: Any, named: Named) -> bool:
    if isinstance(schema, list):
        return any(_counts_nothing(each, named) for each in schema)
    if not isinstance(schema, dict):
        return False
    empty = schema["type"] == "array" and _has_no_bytes(schema["items"], named, ())
    return empty or any(_counts_nothing(each, named) for each in _parts(schema))


def _has_no_bytes(schema: Any, named: Named, inside: tuple[str, ...]) -> bool:
    if isinstance(schema, str) and schema in named:
        if schema in inside:
            return False
        return _has_no_bytes(named[schema][0], named, (*inside, schema))
    if not isinstance(schema, dict):
        return bool(schema == "null")
    if "fields" in schema:
        return all(_has_no_bytes(f["type"], named, inside) for f in schema["fields"])
    if schema["type"] == "fixed":
        return bool(schema["size"] == 0)
    return _has_no_bytes(schema["type"], named, inside)


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
