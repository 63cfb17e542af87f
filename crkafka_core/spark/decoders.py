"""Decoders of one value: bytes in, a mapping of columns out, or a reason why not. Run in executors; import nothing of Spark."""

from __future__ import annotations

import io
import json
import struct
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

Opened = Callable[[bytes, str], Mapping[str, Any]]
"""Decodes one value of a topic; raises `Undecodable`, or whatever its library raises."""


class Undecodable(ValueError):
    """This value is none of this kind; the text is the reason in the dead-letter table."""


class Decoder(ABC):
    """What to decode by; small and picklable, opened once in each task."""

    @abstractmethod
    def open(self) -> Opened: ...


@dataclass(frozen=True)
class Json(Decoder):
    """A JSON object; keys that the schema lacks are left out, keys that the value lacks are null."""

    def open(self) -> Opened:
        def decode(value: bytes, _: str) -> Mapping[str, Any]:
            found = json.loads(value)
            if not isinstance(found, dict):
                raise Undecodable(f"a JSON {type(found).__name__}, not an object")
            return found

        return decode


@dataclass(frozen=True)
class Avro(Decoder):
    """Avro by a writer's schema that is known, or by the id in the registry's wire format (a zero byte, four bytes of id).

    `schema` is the writer's; `registry` the URL of a schema registry, `reader` what to resolve to.
    """

    schema: str | None = None
    registry: str | None = None
    reader: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent to the registry; a secret belongs into the environment of the workers, not here."""

    def open(self) -> Opened:
        import fastavro

        known: dict[int, Any] = {}
        fixed = fastavro.parse_schema(json.loads(self.schema)) if self.schema else None
        reader = fastavro.parse_schema(json.loads(self.reader)) if self.reader else None

        def decode(value: bytes, _: str) -> Mapping[str, Any]:
            body = value
            writer: Any = fixed
            if self.registry is not None:
                body, number = framed(value)
                if number not in known:
                    known[number] = fastavro.parse_schema(json.loads(self._fetch(number)))
                writer = known[number]
            stream = io.BytesIO(body)
            found = fastavro.schemaless_reader(stream, writer, reader)
            if stream.read(1):
                raise Undecodable("bytes are left after the Avro record: another schema wrote it")
            if not isinstance(found, dict):
                raise Undecodable(f"an Avro {type(found).__name__}, not a record")
            return found

        return decode

    def _fetch(self, number: int) -> str:
        request = urllib.request.Request(
            f"{(self.registry or '').rstrip('/')}/schemas/ids/{number}", headers=dict(self.headers)
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return str(json.load(answer)["schema"])
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise Undecodable(f"the schema registry knows no schema {number}") from error
            raise


@dataclass(frozen=True)
class Protobuf(Decoder):
    """A message of a compiled descriptor set (`protoc --descriptor_set_out`), also in the registry's wire format."""

    descriptors: bytes
    message: str
    """Full name, such as `shop.Order`."""
    wire_format: bool = False
    """Values begin with the registry's id and message indexes."""

    def open(self) -> Opened:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        pool = descriptor_pool.DescriptorPool()
        files = descriptor_pb2.FileDescriptorSet.FromString(self.descriptors)
        for each in files.file:
            pool.Add(each)
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(self.message))

        def decode(value: bytes, _: str) -> Mapping[str, Any]:
            body = _after_indexes(framed(value)[0]) if self.wire_format else value
            return plain(kind.FromString(body))

        return decode


def plain(message: Any) -> dict[str, Any]:
    """A message as columns: numbers and bytes as they are (JSON would make text of them), enums by name, unset ones null."""
    found: dict[str, Any] = {}
    for each in message.DESCRIPTOR.fields:
        value = getattr(message, each.name)
        repeated = each.is_repeated if hasattr(each, "is_repeated") else each.label == each.LABEL_REPEATED
        if repeated and each.message_type is not None and each.message_type.GetOptions().map_entry:
            kind = each.message_type.fields_by_name["value"]
            found[each.name] = [(key, _plain_value(kind, value[key])) for key in value]
        elif repeated:
            found[each.name] = [_plain_value(each, item) for item in value]
        elif each.has_presence and not message.HasField(each.name):
            found[each.name] = None
        else:
            found[each.name] = _plain_value(each, value)
    return found


def _plain_value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return plain(value)
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


def _after_indexes(body: bytes) -> bytes:
    """Protobuf in the wire format has the message's indexes first, as zig-zag numbers: how many, then each."""
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

    for _ in range(number()):
        number()
    return body[at:]


def decode_batch(batch: pa.RecordBatch, decode: Opened, kind: pa.DataType, name: str, reason: str) -> pa.RecordBatch:
    """The batch with a column of decoded structs and one of reasons; exactly one of them is null in each row."""
    values, topics = batch.column("value").to_pylist(), batch.column("topic").to_pylist()
    found: list[Any] = []
    reasons: list[str | None] = []
    for value, topic in zip(values, topics, strict=True):
        row, why = _one(value, topic, decode, kind)
        found.append(row)
        reasons.append(why)
    columns = [*batch.columns, pa.array(found, kind), pa.array(reasons, pa.string())]
    return pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, name, reason])


def _one(value: bytes | None, topic: str, decode: Opened, kind: pa.DataType) -> tuple[Any, str | None]:
    if value is None:
        return None, "the value is null"
    try:
        row = dict(decode(value, topic))
        wanted = {f.name: row.get(f.name) for f in kind}
        pa.array([wanted], kind)  # one that does not fit must not take the whole batch with it
    except Undecodable as error:
        return None, str(error)
    except (ConnectionError, TimeoutError):
        raise
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"[:500]
    return wanted, None
