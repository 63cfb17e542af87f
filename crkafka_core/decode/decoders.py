"""Decoders of one value: bytes in, a mapping of columns out, or an error with the reason."""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as of

from crkafka_core.decode import avro_bulk, avro_schemas, protobuf_bulk
from crkafka_core.decode.cursor import Cursor, blobs, placed
from crkafka_core.decode.fitting import Misfit, has
from crkafka_core.decode.json_bulk import JsonBulk
from crkafka_core.decode.protobuf_bulk import NONE, TIMESTAMP, Indexes, is_repeated
from crkafka_core.decode.registry import PATIENCE, Registry, Schema, UnknownSchema
from crkafka_core.model.errors import ConfigError

_LAST_ID = 2**31 - 1
"""Largest id, Java's `int`; for a larger one a registry answers 404 without the code of a missing schema."""

_INVALID = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""Errors of Python and fastavro for a schema that is none."""

Opened = Callable[[bytes, str], Mapping[str, Any]]
"""Decodes one value of a topic; raises `Undecodable` or its library's errors. An `OSError` or `CrkafkaError` is an outage."""

Bulk = Callable[[pa.Array], pa.Array]
"""Decodes many values, none of them null, to structs; values that it is not sure of are null, and are decoded one by one.

If it does not know which these are, it raises `pa.ArrowException`.
"""


class Undecodable(Misfit):
    """A value that is not of the decoder's format; the text is the reason in the dead-letter table."""


class Decoder(ABC):
    """Parameters of decoding; small and picklable, opened once in each task."""

    @abstractmethod
    def open(self, kind: pa.DataType) -> Opened:
        """The decoding of one value to columns of this type. Its attribute `bulk`, if it has one, is a `Bulk` or None."""


@dataclass(frozen=True, kw_only=True)
class OfRegistry(Decoder):
    """A decoder that may ask a schema registry."""

    registry: str | None = None
    """URL of the schema registry."""
    user: str = ""
    """Login of the registry, `name:password`; `${env:NAME}` and `${file:path}` are resolved in executors."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of requests to the registry; may have references."""
    patience: float = PATIENCE
    """Seconds of retries without an answer of the registry before the write fails."""

    def asked(self) -> Registry | None:
        return Registry(self.registry, self.user, self.headers, self.patience) if self.registry else None


@dataclass(frozen=True)
class Json(Decoder):
    """A JSON object; keys beyond the schema are ignored, missing keys are null."""

    wire_format: bool = False
    """Whether values begin with the registry's id."""

    def open(self, kind: pa.DataType) -> Opened:
        return _JsonOpened(self, kind)


class _JsonOpened:
    def __init__(self, asked: Json, kind: pa.DataType) -> None:
        self._framed, self._number = asked.wire_format, Decimal if has(kind, of.is_decimal) else float
        many = JsonBulk.of(kind)
        self.bulk: Bulk | None = _past_frames(many) if many and self._framed else many

    def __call__(self, value: bytes, _: str) -> Mapping[str, Any]:
        if self._framed:
            value = framed(value)[0]
        try:
            whole = _whole if b"-0" in value else None
            decoded = json.loads(value, parse_float=self._number, parse_int=whole)
        except json.JSONDecodeError as error:
            raise Undecodable(f"no JSON, from character {error.pos + 1} on") from None
        except UnicodeDecodeError as error:
            raise Undecodable(f"no text, from byte {error.start + 1} on") from None
        if not isinstance(decoded, dict):
            raise Undecodable(f"a JSON {type(decoded).__name__}, not an object")
        return decoded


def _past_frames(many: JsonBulk) -> Bulk:
    def decode(values: pa.Array) -> pa.Array:
        cursor = Cursor.over(values)
        cursor.schema_id()
        rows = np.flatnonzero(~cursor.failed)
        bodies = blobs(cursor.data, cursor.at[rows], cursor.end[rows])
        return placed([many(bodies)], [rows], len(values), many.kind)

    return decode


class _MinusZero(int):
    """JSON's `-0`: 0 as a whole number, −0.0 as a float."""

    def __float__(self) -> float:
        return -0.0


def _whole(text: str) -> int:
    return _MinusZero() if text == "-0" else int(text)


@dataclass(frozen=True)
class Avro(OfRegistry):
    """Avro by a given writer's schema, or by the id in the registry's wire format (a zero byte, four bytes of id)."""

    schema: str | None = None
    """The writer's schema, without a registry."""
    reader: str | None = None
    """The schema to resolve to."""

    def open(self, kind: pa.DataType) -> Opened:
        return _AvroOpened(self, kind)


class _Record(io.BytesIO):
    """The bytes of one record. Refuses reads past the end: fastavro would read a list with any count of a damaged record."""

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if size is None or size < 0 or len(data) < size:
            raise Undecodable(
                "the bytes end, or go wrong, within the Avro record: it is damaged, or another schema wrote it"
            )
        return data


class _AvroOpened:
    """Decodes single records, with the schemas known in this task."""

    def __init__(self, asked: Avro, kind: pa.DataType) -> None:
        import fastavro

        self._latest: Any = json.loads(asked.reader) if asked.reader else None
        self._reader: Any = fastavro.parse_schema(json.loads(asked.reader)) if asked.reader else None
        avro_schemas.decode_defaults(self._reader)
        self._fixed: Any = _parsed(json.loads(asked.schema), self._latest) if asked.schema else None
        self._registry = asked.asked()
        self._known: dict[int, Any] = {}
        self._refused: dict[int, str] = {}
        self._reads: dict[int, Callable[..., Any]] = {}
        """By Python's `id` of a writer's schema, which is kept alive."""
        self.bulk: Bulk | None = None
        if self._registry is not None:
            self.bulk = avro_bulk.AvroByIds(kind, self._reader, self._writer)
        elif read := avro_bulk.plan(self._fixed, self._reader, kind):
            self.bulk = lambda values: read(Cursor.over(values))

    def _writer(self, number: int) -> Any:
        """The writer's schema of an id; None if it has no valid one."""
        if number not in self._known and number not in self._refused:
            assert self._registry is not None
            try:
                self._known[number] = avro_schema(self._registry, self._registry.schema(number), self._latest)
            except (UnknownSchema, Undecodable) as error:
                self._refused[number] = str(error)
        return self._known.get(number)

    def __call__(self, value: bytes, _: str) -> Mapping[str, Any]:
        body, writer = value, self._fixed
        if self._registry is not None:
            body, number = framed(value)
            writer = self._writer(number)
            if number in self._refused:
                raise Undecodable(self._refused[number])
        stream = _Record(body)
        if id(writer) not in self._reads:
            self._reads[id(writer)] = _read_of(writer)
        decoded = self._reads[id(writer)](stream, writer, self._reader)
        if stream.tell() < len(body):
            raise Undecodable("bytes are left after the Avro record: another schema wrote it")
        if not isinstance(decoded, dict):
            raise Undecodable(f"an Avro {type(decoded).__name__}, not a record")
        return decoded


def _read_of(writer: Any) -> Callable[..., Any]:
    """fastavro's reader. Its C reader has no limit of depth: in a recursive type some kilobytes end the process; in Python they raise."""
    import fastavro
    from fastavro import _read_py

    slow = avro_schemas.holds_itself(writer)
    return _read_py.schemaless_reader if slow else fastavro.schemaless_reader


def avro_schema(registry: Registry, schema: Schema, latest: Any = None) -> Any:
    """The writer's schema, parsed, with the logical types of the latest schema."""
    import fastavro

    if schema.kind != "AVRO":
        raise Undecodable(f"the schema of its id is {schema.kind}, not Avro")
    try:
        whole, _ = avro_schemas.whole(registry, schema)
        return _parsed(whole, latest)
    except ConfigError as error:
        raise Undecodable(f"what the schema of its id refers to is gone: {error.message}") from error
    except (*_INVALID, fastavro.schema.SchemaParseException) as error:
        raise Undecodable(f"the schema of its id cannot be read as Avro: {error}") from error


def _parsed(writer: Any, latest: Any) -> Any:
    import fastavro

    parsed = fastavro.parse_schema(writer if latest is None else avro_schemas.read_as(writer, latest))
    avro_schemas.check_sizes(parsed)
    return parsed


@dataclass(frozen=True)
class Protobuf(OfRegistry):
    """A message of a compiled descriptor set (`protoc --descriptor_set_out`), also in the registry's wire format; with a registry,
    values of other messages are refused by the schemas of their ids."""

    descriptors: bytes
    message: str
    """Full name, such as `shop.Order`."""
    wire_format: bool = False
    """Whether values begin with the registry's id and message indexes."""
    indexes: tuple[int, ...] | None = None
    """For the wire format without a registry: indexes of the message in its file; others are refused."""
    times: bool = False
    """Whether `google.protobuf.Timestamp` is a time, not seconds and nanoseconds."""

    def open(self, kind: pa.DataType) -> Opened:
        return _ProtobufOpened(self, kind)


class _ProtobufOpened:
    """Decodes single values, with the message's class and the schemas known in this process."""

    def __init__(self, asked: Protobuf, kind: pa.DataType) -> None:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        self._asked, pool = asked, descriptor_pool.DescriptorPool()
        files = descriptor_pb2.FileDescriptorSet.FromString(asked.descriptors)
        for each in files.file:
            pool.Add(each)
        self._message = message_factory.GetMessageClass(pool.FindMessageTypeByName(asked.message))
        self._registry = asked.asked()
        self._known: dict[int, Mapping[Indexes, str] | str] = {}
        """By id: the names of its file's messages, or the reason why it has none."""
        frame = (lambda cursor: protobuf_bulk.past_frame(cursor, self._wanted)) if asked.wire_format else None
        self.bulk = protobuf_bulk.bulk(self._message.DESCRIPTOR, kind, asked.times, frame)

    def _wanted(self, number: int) -> Indexes | None:
        """Indexes of this message in the schema of an id, `NONE` if it has no such message; None without a registry: any."""
        if self._registry is None:
            return self._asked.indexes
        names = self._names(number)
        if isinstance(names, str):
            return NONE
        return next((at for at, name in names.items() if name == self._asked.message), NONE)

    def _names(self, number: int) -> Mapping[Indexes, str] | str:
        if number not in self._known:
            assert self._registry is not None
            try:
                self._known[number] = protobuf_bulk.message_names(self._registry.schema(number, serialized=True))
            except (UnknownSchema, ValueError) as error:
                self._known[number] = str(error)
        return self._known[number]

    def __call__(self, value: bytes, _: str) -> Mapping[str, Any]:
        body = value
        if self._asked.wire_format:
            framed_body, number = framed(value)
            body, indexes = _after_indexes(framed_body)
            self._check(number, indexes)
        return plain(self._message.FromString(body), self._asked.times)

    def _check(self, number: int, indexes: Indexes) -> None:
        """Refuse a value of another message."""
        wanted = self._wanted(number)
        if wanted in (None, indexes):
            return
        if self._registry is None:
            raise Undecodable(f"message {list(indexes)} of its file, not {list(wanted or ())}")
        names = self._names(number)
        if isinstance(names, str):
            raise Undecodable(names)
        raise Undecodable(
            f"a message {names.get(indexes, list(indexes))} by schema {number}, not {self._asked.message}"
        )


def plain(message: Any, times: bool = False) -> dict[str, Any]:
    """A message as columns: numbers and bytes unchanged (JSON would make them texts), enums by name, unset fields null."""
    columns: dict[str, Any] = {}
    for each in message.DESCRIPTOR.fields:
        value = getattr(message, each.name)
        repeated = is_repeated(each)
        if repeated and each.message_type is not None and each.message_type.GetOptions().map_entry:
            kind = each.message_type.fields_by_name["value"]
            columns[each.name] = [(key, _plain_value(kind, value[key], times)) for key in value]
        elif repeated:
            columns[each.name] = [_plain_value(each, item, times) for item in value]
        elif each.has_presence and not message.HasField(each.name):
            columns[each.name] = None
        else:
            columns[each.name] = _plain_value(each, value, times)
    return columns


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
    number = struct.unpack(">I", value[1:5])[0]
    if number > _LAST_ID:
        raise Undecodable(f"no registry has a schema of the id {number}")
    return value[5:], number


def _after_indexes(body: bytes) -> tuple[bytes, tuple[int, ...]]:
    """Body and message indexes of Protobuf's wire format: zig-zag numbers, their count, then each; none is the first message."""
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
            if shift > 70:
                raise Undecodable("the message indexes of the wire format are damaged")
            if not byte & 0x80:
                return (result >> 1) ^ -(result & 1)

    indexes = tuple(number() for _ in range(number())) or (0,)
    return body[at:], indexes
