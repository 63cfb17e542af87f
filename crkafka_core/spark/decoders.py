"""Decoders of one value: bytes in, a mapping of columns out, or a reason why not. Run in executors; import nothing of Spark."""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa

from crkafka_core.spark.fitting import Misfit, has_decimal
from crkafka_core.spark.json_bulk import JsonBulk
from crkafka_core.spark.registry import PATIENCE, Registry, Schema, UnknownSchema

TIMESTAMP = "google.protobuf.Timestamp"

Opened = Callable[[bytes, str], Mapping[str, Any]]
"""Decodes one value of a topic; raises `Undecodable`, or whatever its library raises. An `OSError` or one of ours is an outage."""

Bulk = Callable[[pa.Array], pa.Array]
"""Decodes many values, none of them null, as structs; raises `pa.ArrowException` if it cannot tell each of them for sure."""


class Undecodable(Misfit):
    """This value is none of this kind; the text is the reason in the dead-letter table."""


class Decoder(ABC):
    """What to decode by; small and picklable, opened once in each task."""

    @abstractmethod
    def open(self, kind: pa.DataType) -> Opened:
        """Ready to decode into columns of this type."""

    def bulk(self, kind: pa.DataType) -> Bulk | None:
        """For what can be decoded without Python; what it refuses is decoded one by one."""
        return None


@dataclass(frozen=True)
class Json(Decoder):
    """A JSON object; keys that the schema lacks are left out, keys that the value lacks are null."""

    def open(self, kind: pa.DataType) -> Opened:
        number = Decimal if has_decimal(kind) else float

        def decode(value: bytes, _: str) -> Mapping[str, Any]:
            try:
                found = json.loads(value, parse_float=number)
            except json.JSONDecodeError as error:
                raise Undecodable(f"no JSON, from character {error.pos + 1} on") from None
            except UnicodeDecodeError as error:
                raise Undecodable(f"no text, from byte {error.start + 1} on") from None
            if not isinstance(found, dict):
                raise Undecodable(f"a JSON {type(found).__name__}, not an object")
            return found

        return decode

    def bulk(self, kind: pa.DataType) -> Bulk | None:
        return JsonBulk.of(kind)


@dataclass(frozen=True)
class Avro(Decoder):
    """Avro by a writer's schema that is known, or by the id in the registry's wire format (a zero byte, four bytes of id).

    `schema` is the writer's; `registry` the URL of a schema registry, `reader` what to resolve to.
    """

    schema: str | None = None
    registry: str | None = None
    reader: str | None = None
    user: str = ""
    """Of the registry, as `name:password`; `${env:NAME}` and `${file:path}` are resolved where it is asked, in executors."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent to the registry; may hold references as well."""
    patience: float = PATIENCE
    """Seconds for which a registry that does not answer is asked again, before the write fails."""

    def open(self, kind: pa.DataType) -> Opened:
        import fastavro

        known: dict[int, Any] = {}
        fixed = fastavro.parse_schema(json.loads(self.schema)) if self.schema else None
        reader = fastavro.parse_schema(json.loads(self.reader)) if self.reader else None
        registry = Registry(self.registry, self.user, self.headers, self.patience) if self.registry else None

        def writer_of(number: int) -> Any:
            if number not in known:
                assert registry is not None
                try:
                    known[number] = avro_schema(registry, registry.schema(number))
                except (UnknownSchema, Undecodable) as error:
                    known[number] = str(error)
            found = known[number]
            if isinstance(found, str):
                raise Undecodable(found)
            return found

        def decode(value: bytes, _: str) -> Mapping[str, Any]:
            body, writer = value, cast(Any, fixed)
            if registry is not None:
                body, number = framed(value)
                writer = writer_of(number)
            stream = io.BytesIO(body)
            found = fastavro.schemaless_reader(stream, writer, reader)
            if stream.read(1):
                raise Undecodable("bytes are left after the Avro record: another schema wrote it")
            if not isinstance(found, dict):
                raise Undecodable(f"an Avro {type(found).__name__}, not a record")
            return found

        return decode


def avro_schema(registry: Registry, schema: Schema) -> Any:
    """Parsed, with the schemas that it refers to."""
    import fastavro

    if schema.kind != "AVRO":
        raise Undecodable(f"the schema of its id is {schema.kind}, not Avro")
    named: dict[str, Any] = {}

    def parse(of: Schema) -> Any:
        for _, subject, version in of.references:
            parse(registry.version(subject, version))
        return fastavro.parse_schema(json.loads(of.text), named_schemas=named)

    try:
        return parse(schema)
    except (ValueError, KeyError, fastavro.schema.SchemaParseException) as error:
        raise Undecodable(f"the schema of its id cannot be read as Avro: {error}") from error


@dataclass(frozen=True)
class Protobuf(Decoder):
    """A message of a compiled descriptor set (`protoc --descriptor_set_out`), also in the registry's wire format."""

    descriptors: bytes
    message: str
    """Full name, such as `shop.Order`."""
    wire_format: bool = False
    """Values begin with the registry's id and message indexes."""
    indexes: tuple[int, ...] | None = None
    """With the wire format: values of another message of the file are refused."""
    times: bool = False
    """`google.protobuf.Timestamp` as a time, not as seconds and nanoseconds."""

    def open(self, kind: pa.DataType) -> Opened:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        pool = descriptor_pool.DescriptorPool()
        files = descriptor_pb2.FileDescriptorSet.FromString(self.descriptors)
        for each in files.file:
            pool.Add(each)
        message = message_factory.GetMessageClass(pool.FindMessageTypeByName(self.message))

        def decode(value: bytes, _: str) -> Mapping[str, Any]:
            body = value
            if self.wire_format:
                body, indexes = _after_indexes(framed(value)[0])
                if self.indexes not in (None, indexes):
                    raise Undecodable(f"message {list(indexes)} of its file, not {list(self.indexes or ())}")
            return plain(message.FromString(body), self.times)

        return decode


def plain(message: Any, times: bool = False) -> dict[str, Any]:
    """A message as columns: numbers and bytes as they are (JSON would make text of them), enums by name, unset ones null."""
    found: dict[str, Any] = {}
    for each in message.DESCRIPTOR.fields:
        value = getattr(message, each.name)
        repeated = each.is_repeated if hasattr(each, "is_repeated") else each.label == each.LABEL_REPEATED
        if repeated and each.message_type is not None and each.message_type.GetOptions().map_entry:
            kind = each.message_type.fields_by_name["value"]
            found[each.name] = [(key, _plain_value(kind, value[key], times)) for key in value]
        elif repeated:
            found[each.name] = [_plain_value(each, item, times) for item in value]
        elif each.has_presence and not message.HasField(each.name):
            found[each.name] = None
        else:
            found[each.name] = _plain_value(each, value, times)
    return found


def _plain_value(field: Any, value: Any, times: bool) -> Any:
    if field.message_type is not None:
        if times and field.message_type.full_name == TIMESTAMP:
            return value.ToDatetime(tzinfo=dt.UTC)
        return plain(value, times)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return named.name if named is not None else str(value)
    return value


def framed(value: bytes) -> tuple[bytes, int]:
    """Body and schema id of a schema registry's wire format."""
    if len(value) < 5 or value[0] != 0:
        raise Undecodable(
            "not in the schema registry's wire format: it begins with a zero byte and four bytes of schema id"
        )
    return value[5:], struct.unpack(">I", value[1:5])[0]


def _after_indexes(body: bytes) -> tuple[bytes, tuple[int, ...]]:
    """Protobuf in the wire format has the message's indexes first, as zig-zag numbers: how many, then each; none is the first."""
    at = 0

    def number() -> int:
        nonlocal at
        shift = result = 0
        while True:
            if at >= len(body):
                raise Undecodable("the message indexes of the wire format are cut off")
            byte = body[at]
            at += 1
            result |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return (result >> 1) ^ -(result & 1)

    indexes = tuple(number() for _ in range(number())) or (0,)
    return body[at:], indexes
