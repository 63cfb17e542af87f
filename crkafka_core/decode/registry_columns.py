"""Columns of a registry's schema (JSON Schema, Avro or Protobuf) in Spark's JSON form of types, and their decoder (SPEC K6)."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crkafka_core.config import json_columns as columns
from crkafka_core.config.json_columns import NoColumns
from crkafka_core.decode import avro_schemas
from crkafka_core.decode.decoders import Avro, Json, Protobuf
from crkafka_core.decode.protobuf_bulk import TIMESTAMP, is_repeated
from crkafka_core.decode.registry import Registry, Schema
from crkafka_core.model.errors import ConfigError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

_AVRO = {"boolean": "boolean", "int": "long", "long": "long", "float": "double", "double": "double"}
_AVRO |= {"string": "string", "enum": "string", "bytes": "binary", "fixed": "binary"}
_LOGICAL = {"timestamp-millis": "timestamp", "timestamp-micros": "timestamp", "date": "date"}
_LOGICAL |= {"local-timestamp-millis": "timestamp_ntz", "local-timestamp-micros": "timestamp_ntz"}
_LOGICAL |= {"time-millis": "string", "time-micros": "string", "uuid": "string"}
_BROUGHT = ("any", "duration", "empty", "struct", "timestamp", "wrappers")
"""Files of Protobuf itself, which are known once they are imported."""
_DIGITS = 38
"""Precision of all decimals, the largest, so that a wider decimal in a later schema changes no column."""


def json_schema(_: Registry, schema: Schema) -> tuple[Json, dict[str, Any]]:
    """Decoder and columns of a JSON Schema. Fields are identified by their keys, so that records of any version can be read."""
    _kind(schema, "JSON")
    try:
        return Json(wire_format=True), columns.columns(json.loads(schema.text))
    except (ValueError, RecursionError) as error:
        raise _unfit(error) from error


def avro(registry: Registry, schema: Schema) -> tuple[Avro, dict[str, Any]]:
    """Decoder and columns of an Avro schema, to which records of the subject's other schemas are resolved."""
    _kind(schema, "AVRO")
    try:
        whole, named = avro_schemas.whole(registry, schema)
        struct, _ = _avro_type(whole, "", _Named(named, columns.Count()), (), "")
        if not isinstance(struct, dict) or struct["type"] != "struct":
            raise NoColumns("it is not a record")
        return Avro(reader=json.dumps(whole), **_asking(registry)), columns.checked(struct)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unfit(error) from error
    except RecursionError:
        raise _unfit(NoColumns(columns.TOO_DEEP)) from None


@dataclass(frozen=True)
class _Named:
    """Types by name, and the count of columns."""

    types: avro_schemas.Named
    count: columns.Count


def _avro_type(schema: Any, space: str, named: _Named, inside: tuple[str, ...], path: str) -> tuple[Any, bool]:
    """The type of a column, and whether it may be null."""
    if isinstance(schema, list):
        others = [s for s in schema if s != "null"]
        if len(others) != 1:
            raise NoColumns(f"`{path}` is a union of several types; a column has one, or one and null")
        return _avro_type(others[0], space, named, inside, path)[0], len(others) < len(schema)
    if isinstance(schema, str):
        if schema in _AVRO:
            return _AVRO[schema], False
        referred, space, _ = avro_schemas.find(schema, space, named.types)
        return _avro_type(referred, space, named, inside, path)
    kind, logical = schema["type"], schema.get("logicalType")
    if isinstance(kind, dict | list):
        return _avro_type(kind, space, named, inside, path)
    if logical == "decimal":
        return f"decimal({_DIGITS},{int(schema.get('scale', 0))})", False
    if logical in _LOGICAL:
        return _LOGICAL[logical], False
    if kind == "array":
        return columns.array(_avro_type(schema["items"], space, named, inside, f"{path}[]")[0]), False
    if kind == "map":
        return columns.mapping(_avro_type(schema["values"], space, named, inside, f"{path}{{}}")[0]), False
    if kind in ("record", "error"):
        space = avro_schemas.space_inside(schema, space)
        name = avro_schemas.full_name(str(schema["name"]), space)
        if name in inside:
            raise NoColumns(f"`{path}` holds itself ({name}); a column cannot")
        inside, fields = (*inside, name), {}
        for f in schema["fields"]:
            named.count.one()
            fields[f["name"]] = _avro_type(
                f["type"], space, named, inside, f"{path}.{f['name']}" if path else f["name"]
            )
        return columns.struct(fields), False
    return _avro_type(kind, space, named, inside, path)


def protobuf(registry: Registry, schema: Schema) -> tuple[Protobuf, dict[str, Any]]:
    """Decoder and columns of the file's first message. Fields are identified by their numbers, so that records of any version can be read.

    Whether a record is such a message is decided by the schema of its id.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool

    _kind(schema, "PROTOBUF")
    files: dict[str, FileDescriptorProto] = {}
    _file(registry, schema, "crkafka.proto", files)
    pool = descriptor_pool.DescriptorPool()
    try:
        for each in files.values():
            pool.Add(each)
        first = files["crkafka.proto"]
        if not first.message_type:
            raise NoColumns("it has no message")
        name = ".".join(filter(None, [first.package, first.message_type[0].name]))
        struct = columns.checked(_message(pool.FindMessageTypeByName(name), columns.Count(), (), ""))
    except (TypeError, KeyError, ValueError) as error:
        raise _unfit(error) from error
    except RecursionError:
        raise _unfit(NoColumns(columns.TOO_DEEP)) from None
    whole = descriptor_pb2.FileDescriptorSet(file=list(files.values())).SerializeToString()
    return Protobuf(whole, name, wire_format=True, times=True, **_asking(registry)), struct


def _file(registry: Registry, schema: Schema, name: str, files: dict[str, FileDescriptorProto]) -> None:
    """Add the file's descriptor, after those that it imports, each under its imported name."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    for each in _BROUGHT:
        importlib.import_module(f"google.protobuf.{each}_pb2")
    try:
        file = schema.file()
    except ValueError as error:
        raise ConfigError(
            "The schema registry gives Protobuf as source text alone, of which no columns can be made.",
            hint="It has to serve `?format=serialized`, as Confluent's does; else decode by a descriptor set, in your own shape.",
        ) from error
    referred = {r[0]: r for r in schema.references}
    for path in file.dependency:
        if path in files:
            continue
        if path in referred:
            _, subject, version = referred[path]
            _file(registry, registry.version(subject, version, serialized=True), path, files)
        else:
            try:
                theirs = descriptor_pb2.FileDescriptorProto()
                descriptor_pool.Default().FindFileByName(path).CopyToProto(theirs)
            except KeyError:
                raise ConfigError(
                    f"The Protobuf schema imports {path}, which the registry does not refer to.",
                    hint="Register it with its references.",
                ) from None
            files[path] = theirs
    file.name = name
    files[name] = file


def _message(message: Any, count: columns.Count, inside: tuple[str, ...], path: str) -> dict[str, Any]:
    if message.full_name in inside:
        raise NoColumns(f"`{path}` holds itself ({message.full_name}); a column cannot")
    inside = (*inside, message.full_name)
    fields = {f.name: (_field(f, count, inside, f"{path}.{f.name}" if path else f.name), True) for f in message.fields}
    return columns.struct(fields)


def _field(field: Any, count: columns.Count, inside: tuple[str, ...], path: str) -> Any:
    count.one()
    repeated = is_repeated(field)
    if repeated and field.message_type is not None and field.message_type.GetOptions().map_entry:
        parts = field.message_type.fields_by_name
        kind = columns.mapping(_single(parts["value"], count, inside, f"{path}{{}}"))
        return {**kind, "keyType": _single(parts["key"], count, inside, path)}
    one = _single(field, count, inside, path)
    return columns.array(one) if repeated else one


def _single(field: Any, count: columns.Count, inside: tuple[str, ...], path: str) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            return "timestamp"
        return _message(field.message_type, count, inside, path)
    if field.enum_type is not None:
        return "string"
    if field.type in (field.TYPE_UINT64, field.TYPE_FIXED64):
        return "decimal(20,0)"
    if field.type == field.TYPE_BYTES:
        return "binary"
    kinds = {field.CPPTYPE_BOOL: "boolean", field.CPPTYPE_STRING: "string"}
    kinds |= {field.CPPTYPE_DOUBLE: "double", field.CPPTYPE_FLOAT: "double"}
    return kinds.get(field.cpp_type, "long")


def _asking(registry: Registry) -> dict[str, Any]:
    """Arguments of a decoder that asks this registry."""
    return {"registry": registry.url, "user": registry.user, "headers": registry.headers, "patience": registry.patience}


def _kind(schema: Schema, wanted: str) -> None:
    if schema.kind != wanted:
        raise ConfigError(
            f"The schema in the registry is {schema.kind}, not {wanted}.",
            hint="Write typed: with its kind, or name another subject.",
        )


def _unfit(error: Exception) -> ConfigError:
    return ConfigError(
        f"No columns can be made of the schema in the registry: {error}.",
        hint="Correct the schema, or write the table by your own shape.",
    )
