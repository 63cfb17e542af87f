"""Protobuf in bulk: exactly what its own parser gives one by one, for any message, any version of it, and any bytes."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from crkafka_core.decode.batch import Columns
from crkafka_core.decode.decoders import Protobuf
from tests.decode.in_bulk import a_fraction, a_text, a_whole, batch_of, damaged, left_to_python, same_both_ways, some

UTC = pa.timestamp("us", tz="UTC")
KINDS: dict[int, pa.DataType] = {
    1: pa.float64(),
    2: pa.float64(),
    3: pa.int64(),
    4: pa.decimal128(20, 0),
    5: pa.int64(),
    6: pa.decimal128(20, 0),
    7: pa.int64(),
    8: pa.bool_(),
    9: pa.string(),
    12: pa.binary(),
    13: pa.int64(),
    14: pa.string(),
    15: pa.int64(),
    16: pa.int64(),
    17: pa.int64(),
    18: pa.int64(),
}
ODD = [pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), UTC, pa.decimal128(3, 0)]
MOMENT, ENUM, INNER = 100, 14, 11
NAMES = {MOMENT: ".google.protobuf.Timestamp", ENUM: ".shop.Size", INNER: ".shop.Inner"}
NUMBERS = [1, 2, 3, 7, 15, 16, 17, 2047, 2**29 - 1]


class Messages:
    """Makes a file with messages, what writes them, and the columns and values that go with them."""

    def __init__(self, random: Random) -> None:
        self.random, self.odd = random, random.random() < 0.3
        self.syntax = some(random, "proto3", "proto3", "proto2")
        self.file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax=self.syntax)
        self.file.dependency.append("google/protobuf/timestamp.proto")
        enum = self.file.enum_type.add(name="Size")
        for name, number in (("NONE", 0), ("SMALL", 1), ("LARGE", 100_000), ("NEGATIVE", -5)):
            enum.value.add(name=name, number=number)
        self.kinds: dict[str, pa.DataType] = {}
        for name in ("Inner", "Order"):
            self._message(name)

    def _message(self, name: str) -> None:
        random, message = self.random, self.file.message_type.add(name=name)
        columns = []
        for number in random.sample(NUMBERS, random.randint(1, 6)):
            type_ = random.choice([*KINDS, *KINDS, 9, 9, MOMENT, *([INNER, INNER] if name == "Order" else [])])
            field = message.field.add(name=f"f{number}", number=number, type=11 if type_ == MOMENT else type_, label=1)
            if type_ in NAMES:
                field.type_name = NAMES[type_]
            kind = UTC if type_ == MOMENT else self.kinds["Inner"] if type_ == INNER else KINDS[type_]
            if self.odd and random.random() < 0.1:
                kind = random.choice(ODD)
            if random.random() < 0.25:
                field.label, kind = 3, pa.list_(kind)
                if type_ in KINDS and type_ not in (9, 12):
                    field.options.packed = random.random() < 0.5
            elif random.random() < 0.3:
                self._optional(message, field)
            if random.random() < 0.9:
                columns.append(pa.field(field.name, kind, nullable=random.random() < 0.8))
        for field in message.field:
            if field.proto3_optional:  # a choice of its own, behind all that are written
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
        self.kinds[name] = pa.struct(columns or [pa.field("gone", pa.int64())])

    def _optional(self, message: Any, field: Any) -> None:
        """With presence, or one of several."""
        if self.random.random() < 0.5:
            if not message.oneof_decl:
                message.oneof_decl.add(name="choice")
            field.oneof_index = 0
        elif self.syntax == "proto3":
            field.proto3_optional = True

    def files(self) -> descriptor_pb2.FileDescriptorSet:
        moment = descriptor_pb2.FileDescriptorProto()
        timestamp_pb2.DESCRIPTOR.CopyToProto(moment)
        return descriptor_pb2.FileDescriptorSet(file=[moment, self.file])

    def value(self, message: Any) -> Any:
        made, random = message(), self.random
        for field in message.DESCRIPTOR.fields:
            if random.random() < 0.25:
                continue
            repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == 3
            if repeated:
                for _ in range(some(random, 1, 2, 7)):
                    if field.message_type is not None:
                        getattr(made, field.name).add().CopyFrom(self._one(field))
                    else:
                        getattr(made, field.name).append(self._one(field))
            elif field.message_type is not None:
                getattr(made, field.name).CopyFrom(self._one(field))
            else:
                setattr(made, field.name, self._one(field))
        return made

    def _one(self, field: Any) -> Any:
        random = self.random
        if field.message_type is not None:
            if field.message_type.name != "Timestamp":
                return self.value(field.message_type._concrete_class)
            return field.message_type._concrete_class(
                seconds=some(random, 0, 1_700_000_000, -62_135_596_800, 253_402_300_799, 253_402_300_800, -1),
                nanos=some(random, 0, 999_999_999, 1_500, 1_000_000_000, -1),
            )
        if field.type in (1, 2):
            return some(random, 1.5, -0.0, float("nan"), a_fraction(random) if field.type == 1 else float("inf"))
        if field.type in (3, 16, 18):
            return a_whole(random, 64)
        if field.type in (5, 15, 17):
            return a_whole(random, 32)
        if field.type in (4, 6):
            return a_whole(random, 64) % 2**64
        if field.type in (7, 13):
            return a_whole(random, 32) % 2**32
        if field.type == 8:
            return random.random() < 0.5
        if field.type == 14:
            return some(random, 0, 1, 100_000, -5, *([7] if self.syntax == "proto3" else []))
        return a_text(random) if field.type == 9 else some(random, b"", b"\xff", a_text(random).encode())


def changed(random: Random, body: bytes) -> bytes:
    """Also what another version writes, or another writer: unknown fields, fields twice, another order, longer numbers."""
    unknown = some(
        random, b"\x20\x05", b"\x22\x03abc", b"\x25abcd", b"\x21abcdefgh", b"\x23\x24", b"\x20\x85\x80\x80\x00"
    )
    way = random.randrange(12)
    if way == 0:
        return unknown + body
    if way == 1:
        return body + unknown
    if way == 2:
        return body + body
    if way == 3:
        return body + some(
            random, b"\x08\x85\x80\x00", b"\x88\x80\x00\x05", b"\x0a\x82\x80\x00ab", b"\x08" + b"\xff" * 9 + b"\x01"
        )
    return body


def order_of(messages: Messages) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in messages.files().file:
        pool.Add(file)
    message_factory.GetMessageClass(pool.FindMessageTypeByName("google.protobuf.Timestamp"))
    message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Inner"))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


COUNTS = {"in bulk": 0, "all": 0}


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**40))
def test_any_message_and_any_bytes_give_the_same_both_ways(seed: int) -> None:
    random = Random(seed)
    messages, another = Messages(random), Messages(random)
    files, order = messages.files(), order_of(messages)
    wire, indexes = random.random() < 0.3, some(random, None, (0,), (1,))
    front = [b"\0\0\0\0\7" + each for each in (b"\0", b"\2\0", b"\2\2", b"\2\2", b"\4\0\2")] if wire else [b""]
    bodies = [changed(random, messages.value(order).SerializeToString()) for _ in range(30)]
    bodies += [another.value(order_of(another)).SerializeToString() for _ in range(10)]
    values = [damaged(random, random.choice(front) + body) for body in bodies]
    decoder = Protobuf(files.SerializeToString(), "shop.Order", wire, indexes, times=random.random() < 0.8)
    COUNTS["in bulk"] += same_both_ways(decoder, messages.kinds["Order"], values, begin=random.randrange(3))
    COUNTS["all"] += len(values)


def order(*fields: tuple[str, int, int], syntax: str = "proto3") -> tuple[bytes, Any]:
    """The descriptors of a message with these fields (name, number, type), and the class that writes it."""
    moment = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(moment)
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax=syntax, dependency=[moment.name])
    message = file.message_type.add(name="Order")
    for name, number, type_ in fields:
        field = message.field.add(name=name, number=number, type=11 if type_ == MOMENT else type_, label=1)
        if type_ == MOMENT:
            field.type_name = NAMES[MOMENT]
    files, pool = descriptor_pb2.FileDescriptorSet(file=[moment, file]), descriptor_pool.DescriptorPool()
    for each in files.file:
        pool.Add(each)
    return files.SerializeToString(), message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


SHOP = (("id", 1, 3), ("who", 2, 9), ("price", 3, 1), ("at", 4, MOMENT))
SHOP_KIND = pa.struct([("id", pa.int64()), ("who", pa.string()), ("price", pa.float64()), ("at", UTC)])


def shop(i: int, made: Any) -> bytes:
    one = made(id=i - 50, who=f"w{i}" if i % 3 else "", price=i / 2)
    if i % 5:
        one.at.seconds, one.at.nanos = 1_700_000_000 + i, 1_500
    return bytes(one.SerializeToString())


def test_only_what_cannot_be_told_is_decoded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    descriptors, made = order(*SHOP)
    values: list[bytes | None] = [shop(i, made) for i in range(2000)]
    values[3], values[700], values[5] = b"\xff", b"\x12\x02\xff\xff", None
    assert same_both_ways(Protobuf(descriptors, "shop.Order", times=True), SHOP_KIND, values) == 1997
    alone = left_to_python(monkeypatch)
    columns = Columns("value", Protobuf(descriptors, "shop.Order", times=True), SHOP_KIND)
    _, reasons = columns.decode(batch_of(values, begin=2))
    assert alone == [values[3], values[700]]
    assert [i for i, why in enumerate(reasons) if why is not None] == [3, 700]


@pytest.mark.parametrize(
    ("indexes", "front", "expected"),
    [
        ((0,), b"\0", 3),
        ((0,), b"\2\0", 3),
        ((1,), b"\2\2", 3),
        ((1, 0), b"\4\2\0", 3),
        (None, b"\4\2\0", 3),
        ((1,), b"\0", 0),
        ((0,), b"\2\2", 0),
        ((1,), b"\4\2\0", 0),
        ((0,), b"\x80", 0),
    ],
)
def test_the_indexes_of_the_wire_format_say_whose_message_it_is(
    indexes: tuple[int, ...] | None, front: bytes, expected: int
) -> None:
    descriptors, made = order(*SHOP)
    decoder = Protobuf(descriptors, "shop.Order", wire_format=True, indexes=indexes, times=True)
    values: list[bytes | None] = [b"\0" + struct.pack(">I", 7) + front + shop(i, made) for i in range(3)]
    assert same_both_ways(decoder, SHOP_KIND, [*values, b"\0\0\0", b"\1\0\0\0\7\0"]) == expected


def test_what_newer_and_older_writers_wrote_is_read_in_bulk() -> None:
    """Fields that are not known yet, fields that are not there yet, and fields in another order."""
    newer, made = order(*SHOP, ("more", 5, 9), ("size", 16, 7))
    older, _ = order(*SHOP[:2])
    body = made(id=-1, who="a", price=2.5, more="x", size=5).SerializeToString()
    few = pa.struct([("id", pa.int64()), ("who", pa.string())])
    assert same_both_ways(Protobuf(older, "shop.Order"), few, [body]) == 1
    assert (
        same_both_ways(Protobuf(newer, "shop.Order", times=True), SHOP_KIND, [b"", b"\x08\x05", b"\x12\x01a\x08\x05"])
        == 3
    )


@pytest.mark.parametrize(
    "body",
    [
        b"\x08\x01\x08\x02",  # twice
        b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02",  # more than 64 bits
        b"\x0d\x01\x02\x03\x04",  # four bytes, not a varint
        b"\x2b\x2c",  # a group
        b"\x22\x02\x08\x01\x22\x02\x10\x01",  # two messages, which are one
        b"\x22\x0b\x08\x80\x92\xb8\xc3\x98\xfe\xff\xff\xff\x01\x08",  # cut off inside
        b"\x22\x02\x10\x80",
        b"\x00\x00",
    ],
)
def test_what_cannot_be_told_for_sure_is_left_to_the_parser(body: bytes) -> None:
    descriptors, _ = order(*SHOP)
    assert same_both_ways(Protobuf(descriptors, "shop.Order", times=True), SHOP_KIND, [body]) == 0


def test_many_fields_that_are_not_known_do_not_hold_up_the_others() -> None:
    descriptors, made = order(*SHOP)
    values: list[bytes | None] = [b"\x28\x01" * 5000, shop(1, made)]
    assert same_both_ways(Protobuf(descriptors, "shop.Order", times=True), SHOP_KIND, values) == 1


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
def test_numbers_that_need_all_their_bits(syntax: str) -> None:
    types = [t for t in KINDS if t not in (8, 9, 12, 14)]
    descriptors, made = order(*((f"f{t}", t, t) for t in types), syntax=syntax)
    signed = {3: 64, 5: 32, 15: 32, 16: 64, 17: 32, 18: 64}
    rows = []
    for least in (True, False):
        one = made()
        for t in types:
            bits = signed.get(t)
            if bits is not None:
                value: Any = -(1 << (bits - 1)) if least else (1 << (bits - 1)) - 1
            else:
                value = -0.0 if t in (1, 2) else 0 if least else 2 ** (64 if t in (4, 6) else 32) - 1
            setattr(one, f"f{t}", value)
        rows.append(one.SerializeToString())
    kind = pa.struct([(f"f{t}", KINDS[t]) for t in types])
    assert same_both_ways(Protobuf(descriptors, "shop.Order"), kind, rows) == 2


@pytest.mark.timeout(20)
def test_a_damaged_index_ends_after_ten_bytes() -> None:
    """It was read as a number of millions of bits, in time by the square of its length."""
    descriptors, _ = order(*SHOP)
    columns = Columns("value", Protobuf(descriptors, "shop.Order", wire_format=True), SHOP_KIND)
    _, reasons = columns.decode(batch_of([b"\0\0\0\0\7" + b"\xff" * 3_000_000]))
    assert reasons == ["the message indexes of the wire format are damaged"]


@pytest.mark.timeout(20)
def test_a_message_that_is_used_in_many_places_makes_no_endless_plan() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3")
    for i in range(30):
        message = file.message_type.add(name=f"M{i}")
        message.field.add(name="id", number=1, type=3, label=1)
        for name, number in (("a", 2), ("b", 3)) if i else ():
            message.field.add(name=name, number=number, type=11, label=1, type_name=f".shop.M{i - 1}")
    decoder = Protobuf(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), "shop.M29")
    assert same_both_ways(decoder, pa.struct([("id", pa.int64())]), [b"\x08\x01"]) == 0


@pytest.mark.parametrize(("depth", "in_bulk"), [(80, 1), (120, 0), (300, 0)])
def test_messages_deeper_than_a_parser_goes_are_left_to_it(depth: int, in_bulk: int) -> None:
    file, body = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3"), b""
    for i in range(depth):
        message = file.message_type.add(name=f"M{i}")
        message.field.add(name="id", number=1, type=3, label=1)
        if i:
            message.field.add(name="a", number=2, type=11, label=1, type_name=f".shop.M{i - 1}")
            body = b"\x12" + struct.pack("BB", len(body) & 0x7F | 0x80, len(body) >> 7) + body
    decoder = Protobuf(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), f"shop.M{depth - 1}")
    assert same_both_ways(decoder, pa.struct([("id", pa.int64())]), [body]) == in_bulk
