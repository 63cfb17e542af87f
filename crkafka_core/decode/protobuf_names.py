"""Names of the messages of a Protobuf file in a registry, by their indexes in the wire format."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import Any

from crkafka_core.decode.registry import Schema

Indexes = tuple[int, ...]
NONE: Indexes = ()
"""The indexes of no message."""


def of(schema: Schema) -> dict[Indexes, str]:
    """Full names of the messages; ValueError if the schema is not Protobuf."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    if schema.kind != "PROTOBUF":
        raise ValueError(f"the schema of its id is {schema.kind}, not Protobuf")
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    except (binascii.Error, ValueError, DecodeError) as error:
        raise ValueError(f"the schema of its id cannot be read as Protobuf: {error}") from None
    return dict(_messages(file.message_type, (), file.package))


def _messages(messages: Iterable[Any], above: Indexes, space: str) -> Iterator[tuple[Indexes, str]]:
    for at, message in enumerate(messages):
        name = f"{space}.{message.name}" if space else message.name
        yield (*above, at), name
        yield from _messages(message.nested_type, (*above, at), name)
