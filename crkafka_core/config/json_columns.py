"""Columns of a JSON Schema, in Spark's JSON form of types. Pure, so that a bad schema is refused with the configuration. Numbers have the
widest type (`long`, `double`), so that they still fit after the schema is widened."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PLAIN = {"integer": "long", "number": "double", "boolean": "boolean", "string": "string"}
_FORMATS = {"date-time": "timestamp", "date": "date"}
_OF_VALUES = {str: "string", int: "integer", float: "number", bool: "boolean"}
_UNFIT = set(" ,;{}()\n\t=")
"""Characters that Delta and Parquet refuse in the name of a column."""
PREFIX = "kafka_"
"""Prefix of the columns with a record's topic, offset and so on, beside the decoded ones."""
OWN = "crkafka_"
DEEPEST = 60
"""Levels of nested columns: Arrow sends at most 64 between processes, and our own struct is around them."""
TOO_DEEP = f"its columns are nested deeper than {DEEPEST} levels, of which a map counts as two; Arrow takes no more"
MOST = 10_000
"""Columns of a table, nested ones included; a type that is used twice counts twice."""


class NoColumns(ValueError):
    """A schema that gives no columns, with the place and the reason."""


class Count:
    """Limits the columns of one schema: with types that use others twice, a kilobyte of schema could have a million."""

    def __init__(self) -> None:
        self._left = MOST

    def one(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise NoColumns(f"it has more than {MOST:,} columns within each other")


def load(file: str) -> dict[str, Any]:
    """The columns of a file with a JSON Schema."""
    try:
        return columns(json.loads(Path(file).read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise NoColumns(f"there is no file {file}") from None
    except OSError as error:
        raise NoColumns(f"{file} cannot be read: {error.strerror}") from None
    except NoColumns as error:
        raise NoColumns(f"{file}: {error}") from None
    except json.JSONDecodeError as error:
        raise NoColumns(f"{file} is not JSON from line {error.lineno}, column {error.colno} on") from None
    except ValueError:
        raise NoColumns(f"{file} is not text") from None
    except RecursionError:
        raise NoColumns(f"{file}: {TOO_DEEP}") from None


def columns(schema: Any) -> dict[str, Any]:
    root = _Root(schema)
    whole = _resolved(schema, root, "", ()) if isinstance(schema, dict) else {}
    if not isinstance(whole.get("properties"), dict):
        raise NoColumns("it is no JSON Schema of an object: it has no `properties`")
    try:
        return checked(_object(whole, root, "", ()))
    except RecursionError:
        raise NoColumns(TOO_DEEP) from None


def checked(struct: dict[str, Any]) -> dict[str, Any]:
    """The struct, if a table can have these columns; else NoColumns."""
    for name in (each["name"] for each in struct["fields"]):
        if name.lower().startswith((PREFIX, OWN)):
            raise NoColumns(f"the field {name} is called as columns of ours are, which begin with {PREFIX} and {OWN}")
    _inside(struct, "", 1)
    return struct


def _inside(kind: Any, path: str, level: int) -> None:
    """Check the names inside a type, and their depth."""
    if not isinstance(kind, Mapping):
        return
    if level > DEEPEST:
        raise NoColumns(TOO_DEEP)
    seen: dict[str, str] = {}
    for each in kind.get("fields", ()):
        name, at = each["name"], f"`{path}`" if path else "the record"
        if not name or _UNFIT & set(name):
            raise NoColumns(f"{at} has a field {name!r}, which is not a name for a column")
        if seen.setdefault(name.lower(), name) != name:
            raise NoColumns(f"{at} has fields {seen[name.lower()]!r} and {name!r}, which Spark takes for one")
        _inside(each["type"], f"{path}.{name}" if path else name, level + 1)
    _inside(kind.get("elementType"), path, level + 1)
    _inside(kind.get("valueType"), path, level + 2)


def struct(fields: Mapping[str, tuple[Any, bool]]) -> dict[str, Any]:
    """A struct type from each field's type and whether it may be null."""
    return {
        "type": "struct",
        "fields": [{"name": n, "type": t, "nullable": null, "metadata": {}} for n, (t, null) in fields.items()],
    }


def array(of: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": of, "containsNull": True}


def mapping(of: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": "string", "valueType": of, "valueContainsNull": True}


class _Root:
    """The whole schema, for its references, and the count of its columns."""

    def __init__(self, schema: Any) -> None:
        self.schema, self.count = schema, Count()


def _object(schema: Mapping[str, Any], root: _Root, path: str, inside: tuple[str, ...]) -> dict[str, Any]:
    required = set(schema.get("required", ()))
    fields = {}
    for name, each in schema["properties"].items():
        root.count.one()
        kind, null = _type(each, root, f"{path}.{name}" if path else name, inside)
        fields[name] = (kind, null or name not in required)
    return struct(fields)


def _type(schema: Any, root: _Root, path: str, inside: tuple[str, ...]) -> tuple[Any, bool]:
    resolved = _resolved(schema, root, path, inside)
    inside = (*inside, *([str(schema["$ref"])] if isinstance(schema, dict) and "$ref" in schema else []))
    null = False
    if several := resolved.get("anyOf", resolved.get("oneOf")):
        others = [o for o in several if not (isinstance(o, dict) and o.get("type") == "null")]
        if len(others) != 1:
            raise NoColumns(f"`{path}` is one of several types; a column has one, or one and null")
        kind, inner = _type(others[0], root, path, inside)
        return kind, inner or len(others) < len(several)
    name = resolved.get("type")
    if isinstance(name, list):
        null, rest = "null" in name, [n for n in name if n != "null"]
        if set(rest) == {"integer", "number"}:
            rest = ["number"]
        if len(rest) != 1:
            raise NoColumns(f"`{path}` has the types {', '.join(map(str, name))}; a column has one, or one and null")
        name = rest[0]
    if name is None and ("enum" in resolved or "const" in resolved):
        kinds = {type(v) for v in resolved.get("enum", [resolved.get("const")]) if v is not None}
        name = _OF_VALUES.get(kinds.pop()) if len(kinds) == 1 else None
        if name is None:
            raise NoColumns(f"`{path}` lists values of several types; a column has one")
    if name is None and "properties" in resolved:
        name = "object"
    if name == "array":
        return array(_type(resolved.get("items", {}), root, f"{path}[]", inside)[0]), null
    if name == "object":
        values = resolved.get("additionalProperties")
        if isinstance(resolved.get("properties"), dict) and resolved["properties"]:
            return _object(resolved, root, path, inside), null
        if isinstance(values, dict) and values:
            return mapping(_type(values, root, f"{path}{{}}", inside)[0]), null
        write = "write its properties, or additionalProperties with a type"
        raise NoColumns(f"`{path}` is an object without a schema; {write}")
    if name == "string":
        return _FORMATS.get(str(resolved.get("format")), "string"), null
    if name not in _PLAIN:
        raise NoColumns(f"`{path}` has no type that a column can have: {name!r}; write type: string, integer, number …")
    return _PLAIN[name], null


def _resolved(schema: Any, root: _Root, path: str, inside: tuple[str, ...]) -> Mapping[str, Any]:
    """The schema, or the one that its reference names in the same file."""
    seen = set(inside)
    while isinstance(schema, dict) and "$ref" in schema:
        name = str(schema["$ref"])
        if name in seen:
            raise NoColumns(f"`{path}` holds itself ({name}); a column cannot")
        seen.add(name)
        if not name.startswith("#/"):
            raise NoColumns(f"`{path}` refers to {name}; only references inside of the file are followed (#/$defs/…)")
        schema = root.schema
        for part in name[2:].split("/"):
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(schema, dict) or part not in schema:
                raise NoColumns(f"`{path}` refers to {name}, which is not there")
            schema = schema[part]
    if not isinstance(schema, dict):
        raise NoColumns(f"`{path}` has no schema")
    return schema
