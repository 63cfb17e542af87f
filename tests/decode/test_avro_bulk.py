"""Avro in bulk: exactly what fastavro gives one by one, for any schema, any evolution of it, and any bytes."""

from __future__ import annotations

import datetime as dt
import json
import struct
import uuid
from decimal import Decimal
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crkafka_core.decode.batch import Columns
from crkafka_core.decode.decoders import Avro
from crkafka_core.decode.registry import RegistryAway
from tests.decode.avro_schemas import LOGICAL, UTC, Schemas, bare, encoded
from tests.decode.in_bulk import batch_of, damaged, left_to_python, same_both_ways
from tests.rigs.schema_registry import FakeRegistry


def of_another(random: Random) -> list[bytes | None]:
    schemas = Schemas(random)
    writer = schemas.record()
    try:
        parsed = fastavro.parse_schema(bare(writer))
    except (fastavro.schema.SchemaParseException, ValueError):
        return []
    return [encoded(parsed, schemas.value(writer)) for _ in range(10)]


COUNTS = {"in bulk": 0, "all": 0}


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**40))
def test_any_schema_and_any_bytes_give_the_same_both_ways(seed: int) -> None:
    random = Random(seed)
    schemas = Schemas(random)
    writer = schemas.record()
    latest = schemas.evolved(writer) if random.random() < 0.6 else None
    kind = schemas.kind(latest or writer)
    parsed = fastavro.parse_schema(bare(writer))
    try:
        fastavro.parse_schema(latest or writer)
    except (fastavro.schema.SchemaParseException, ValueError):
        return
    right = [encoded(parsed, schemas.value(writer)) for _ in range(30)]
    values = [damaged(random, each) for each in right if each is not None] + of_another(random)
    decoder = Avro(schema=json.dumps(writer), reader=json.dumps(latest) if latest else None)
    COUNTS["in bulk"] += same_both_ways(decoder, kind, values, begin=random.randrange(3))
    COUNTS["all"] += len(values)


def record(*fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": kind} for name, kind in fields],
        **more,
    }


def written(schema: dict[str, Any], *rows: dict[str, Any]) -> list[bytes]:
    encoded_rows = [encoded(fastavro.parse_schema(schema), row) for row in rows]
    return [each for each in encoded_rows if each is not None]


def in_bulk(schema: Any, kind: pa.DataType, values: list[bytes], reader: Any = None) -> int:
    decoder = Avro(schema=json.dumps(schema), reader=json.dumps(reader) if reader else None)
    return same_both_ways(decoder, kind, list(values))


ENUM = {"type": "enum", "name": "E", "symbols": ["B", "A"]}
INNER = {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "long"}]}


@pytest.mark.parametrize(
    ("schema", "kind", "value"),
    [
        ("null", pa.string(), None),
        ("boolean", pa.bool_(), True),
        ("int", pa.int32(), -(2**31)),
        ("long", pa.int64(), -(2**63)),
        ("long", pa.int64(), 2**63 - 1),
        ("long", UTC, 1_700_000_000_000),
        ("long", pa.float64(), 2**62 + 1),
        ("float", pa.float64(), float("nan")),
        ("float", pa.float32(), 1.5),
        ("double", pa.float64(), -0.0),
        ("string", pa.string(), "日本語"),
        ("string", pa.binary(), ""),
        ("bytes", pa.binary(), b"\xff"),
        ("bytes", pa.string(), b"abc"),
        (ENUM, pa.string(), "A"),
        ({"type": "fixed", "name": "F", "size": 3}, pa.binary(), b"\xffab"),
        (INNER, pa.struct([("n", pa.int64())]), {"n": 7}),
        (["null", INNER], pa.struct([("n", pa.int64())]), {"n": 7}),
        (["string", "null"], pa.string(), None),
        ({"type": "array", "items": ["null", "string"]}, pa.list_(pa.string()), ["a", None, ""]),
        ({"type": "array", "items": INNER}, pa.list_(pa.struct([("n", pa.int64())])), []),
        *[
            (each, kind, value)
            for (each, kind), value in zip(
                LOGICAL[:-1],
                [
                    0,
                    -1,
                    5,
                    7,
                    -719_162,
                    20_000,
                    20_000_001,
                    str(uuid.UUID(int=5)),
                    *map(Decimal, ("-12.34", "0.001", "9999")),
                ],
                strict=True,
            )
        ],
    ],
)
def test_what_is_plain_is_read_in_bulk(schema: Any, kind: pa.DataType, value: Any) -> None:
    writer_schema = record(("at", schema))
    values = [encoded(fastavro.parse_schema(bare(writer_schema)), {"at": value})] * 3
    assert same_both_ways(Avro(schema=json.dumps(writer_schema)), pa.struct([("at", kind)]), values) == 3


@pytest.mark.parametrize(
    ("writer", "latest"),
    [
        ("int", "double"),
        ("int", ["null", "long"]),
        (["null", "long"], ["double", "null"]),
        (["null", "long"], "long"),
        ("float", "double"),
        (ENUM, {**ENUM, "symbols": ["A", "B", "C"]}),
        ({"type": "array", "items": "int"}, {"type": "array", "items": ["null", "long"]}),
    ],
)
def test_what_a_schema_became_is_read_in_bulk(writer: Any, latest: Any) -> None:
    writer_schema = record(("gone", "string"), ("at", writer), ("same", INNER))
    now = record(("same", INNER), ("at", latest), ("note", ["null", "string"]), ("size", "long"))
    now["fields"][2]["default"], now["fields"][3]["default"] = None, 5
    types = {"array": pa.list_(pa.int64()), "double": pa.float64(), "long": pa.int64(), "enum": pa.string()}
    name = next(n for n in types if n in json.dumps(latest))
    columns = [
        ("at", types[name]),
        ("note", pa.string()),
        ("size", pa.int64()),
        ("same", pa.struct([("n", pa.int64())])),
    ]
    value = {"enum": "A", "array": [1, 2]}.get(name, 3)
    values = written(writer_schema, {"gone": "x", "at": value, "same": {"n": 1}})
    assert in_bulk(writer_schema, pa.struct(columns), values * 3, now) == 3


def test_only_what_cannot_be_told_is_decoded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = record(("id", "long"), ("who", "string"), ("note", ["null", "string"]))
    rows = [{"id": i, "who": f"w{i}", "note": "n" if i % 3 else None} for i in range(2000)]
    right = written(schema, *rows)
    values: list[bytes | None] = [*right]
    values[3], values[700], values[1999] = b"", b"\x02\x04\xff\xff\x00", right[1999] + b"x"
    values[5] = None
    alone = left_to_python(monkeypatch)
    kind = pa.struct([pa.field("id", pa.int64(), False), ("who", pa.string()), ("note", pa.string())])
    result, reasons = Columns("value", Avro(schema=json.dumps(schema)), kind).decode(batch_of(values, begin=2))
    assert alone == [values[3], values[700], values[1999]]
    assert [i for i, why in enumerate(reasons) if why is not None] == [3, 700, 1999]
    assert [row for i, row in enumerate(result.to_pylist()) if i not in (3, 5, 700, 1999)] == [
        row for i, row in enumerate(rows) if i not in (3, 5, 700, 1999)
    ]


def test_what_no_column_takes_has_the_reason_that_it_had() -> None:
    """Null where something has to be, a number without room, a time past all years, too many digits."""
    schema = record(("n", ["null", "long"]), ("at", LOGICAL[0][0]), ("sum", LOGICAL[9][0]))
    kind = pa.struct([pa.field("n", pa.int8(), False), ("at", UTC), ("sum", pa.decimal128(5, 3))])
    raw = fastavro.parse_schema(bare(schema))
    rows = [
        (1, 0, "1"),
        (None, 0, "1"),
        (300, 0, "1"),
        (1, 253_402_300_800_000, "1"),
        (1, -(2**63), "1"),
        (1, 0, "123"),
    ]
    values = [encoded(raw, {"n": n, "at": at, "sum": Decimal(text)}) for n, at, text in rows]
    assert same_both_ways(Avro(schema=json.dumps(schema)), kind, values) == 1


def test_what_fastavro_rounds_or_does_not_is_the_same_in_bulk() -> None:
    """It gives a decimal no more digits than its schema does, and an int as many bits as it has."""
    kind = pa.struct([("n", pa.int64()), ("sum", pa.decimal128(38, 0))])
    values = [
        encoded(record(("n", "long"), ("sum", "bytes")), {"n": 2**40, "sum": n.to_bytes(4, "big")})
        for n in (1, 98765432)
    ]
    schema = record(("n", "int"), ("sum", LOGICAL[10][0]))
    assert same_both_ways(Avro(schema=json.dumps(schema)), kind, values) == 1


def test_a_whole_number_that_became_a_fraction_is_none_for_a_column_of_whole_ones() -> None:
    writer_schema, now = record(("at", "long")), record(("at", "double"))
    assert in_bulk(writer_schema, pa.struct([("at", pa.int64())]), written(writer_schema, {"at": 5}), now) == 0


def test_a_list_of_many_items_and_blocks_with_their_size_are_left_to_python() -> None:
    schema, kind = record(("tags", {"type": "array", "items": "long"})), pa.struct([("tags", pa.list_(pa.int64()))])
    rows = [{"tags": list(range(size))} for size in (0, 1, 64, 65, 5000)]
    assert in_bulk(schema, kind, [*written(schema, *rows), b"\x02\x06\x02\x06\x00", b"\x03\x04\x02\x06\x00"]) == 4


def test_a_character_that_two_records_share_is_in_neither() -> None:
    schema, kind = record(("who", "string")), pa.struct([("who", pa.string())])
    assert in_bulk(schema, kind, [b"\x02\xc3", b"\x02\xa9", b"\x04\xc3\xa9"]) == 1


def wired(number: int, body: bytes) -> bytes:
    return b"\0" + struct.pack(">I", number) + body


def test_records_of_several_schemas_come_in_their_order_and_each_is_asked_for_once(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = record(("id", "int")), record(("note", ["null", "string"]), ("id", "long"))
    second["fields"][0]["default"] = None
    odd = record(("id", "long"), ("more", {"type": "map", "values": "long"}))
    for number, schema in ((7, first), (8, second), (9, odd)):
        registry.answers[f"/schemas/ids/{number}"] = [(200, {"schema": json.dumps(schema)})]
    values: list[bytes | None] = []
    for i in range(100):
        values += [wired(7, written(first, {"id": i})[0]), wired(8, written(second, {"note": f"n{i}", "id": i})[0])]
    values += [
        wired(9, written(odd, {"id": 5, "more": {}})[0]),
        wired(10, b"\2"),
        b"",
        b"\1\0\0\0\7\2",
        wired(2**31, b""),
    ]
    decoder = Avro(registry=registry.url, reader=json.dumps(second))
    kind = pa.struct([("id", pa.int64()), ("note", pa.string())])
    alone = left_to_python(monkeypatch)
    result, reasons = Columns("value", decoder, kind).decode(batch_of(values))
    assert result.to_pylist()[:200] == [{"id": i // 2, "note": f"n{i // 2}" if i % 2 else None} for i in range(200)]
    assert reasons[:201] == [None] * 201 and None not in reasons[201:]
    assert alone == values[200:]
    assert sorted(path for path, _ in registry.asked) == [f"/schemas/ids/{n}" for n in ("10", "7", "8", "9")]
    assert same_both_ways(decoder, kind, values) == 200


def test_a_registry_that_is_away_fails_the_write_also_in_bulk(registry: FakeRegistry) -> None:
    registry.answers["/schemas/ids/7"] = [(200, {"schema": json.dumps(record(("id", "int")))})]
    registry.answers["/schemas/ids/8"] = [(503, {})]
    columns = Columns("value", Avro(registry=registry.url, patience=0.1), pa.struct([("id", pa.int64())]))
    with pytest.raises(RegistryAway):
        columns.decode(batch_of([wired(7, b"\2")] * 100 + [wired(8, b"\2")]))
    registry.answers["/schemas/ids/8"] = [(200, {"schema": json.dumps(record(("id", "long")))})]
    result, reasons = columns.decode(batch_of([wired(7, b"\2"), wired(8, b"\4")]))
    assert (result.to_pylist(), reasons) == ([{"id": 1}, {"id": 2}], [None, None])
    assert [path for path, _ in registry.asked].count("/schemas/ids/7") == 1


class Doubled(Avro):
    """Decodes in its own way, and says nothing of many at once."""

    def open(self, kind: pa.DataType) -> Any:
        decode = super().open(kind)
        return lambda value, topic: {"id": 2 * decode(value, topic)["id"]}


def test_a_subclass_that_decodes_in_its_own_way_is_asked_for_each_record() -> None:
    columns = Columns("value", Doubled(schema=json.dumps(record(("id", "long")))), pa.struct([("id", pa.int64())]))
    assert columns.decode(batch_of([b"\2"]))[0].to_pylist() == [{"id": 2}]


@pytest.mark.parametrize(
    "latest",
    [
        record(("at", "long"), aliases=["Older"]),
        record(("at", ["long", "string"])),
        {**record(("at", "long")), "name": "Other"},
        record(("at", "string")),
        record(("at", "long"), ("new", "long")),
    ],
)
def test_what_is_not_told_for_sure_of_two_schemas_is_left_to_fastavro(latest: dict[str, Any]) -> None:
    writer_schema = record(("at", "long"))
    assert in_bulk(writer_schema, pa.struct([("at", pa.int64())]), written(writer_schema, {"at": 5}), latest) == 0


def _list_of(items: Any) -> dict[str, Any]:
    return record(("id", "long"), ("more", {"type": "array", "items": items}))


_TRILLION = struct.pack("B", 2) + b"\x80\x80\x94\xa6\xf8\x3d\0"
"""The id 1, a list of 1,064,235,663,360 items, and none of them."""
_ID = pa.struct([("id", pa.int64())])


@pytest.mark.timeout(20)
@pytest.mark.parametrize("items", ["long", "string", {"type": "map", "values": "long"}, "boolean"])
def test_a_damaged_list_that_nobody_wants_ends_with_its_record(items: Any) -> None:
    latest = record(("id", "long"))
    columns = Columns("value", Avro(schema=json.dumps(_list_of(items)), reader=json.dumps(latest)), _ID)
    result, reasons = columns.decode(batch_of([b"\x02\x00", _TRILLION]))
    assert result.to_pylist() == [{"id": 1}, None]
    assert reasons[0] is None and "within the Avro record" in str(reasons[1])


@pytest.mark.parametrize(
    "items", ["null", {"type": "fixed", "name": "None", "size": 0}, {"type": "record", "name": "No", "fields": []}]
)
def test_a_list_of_nothing_is_refused(items: Any) -> None:
    """A damaged record could have more of them than anybody can count."""
    with pytest.raises(ValueError, match="items have no bytes"):
        Columns("value", Avro(schema=json.dumps(_list_of(items))), _ID)


def test_a_list_of_what_holds_itself_is_none_of_nothing() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    Columns("value", Avro(schema=json.dumps(_list_of(node))), _ID)


@pytest.mark.parametrize("length", [10, 1_000, 100_000])
def test_a_record_that_goes_deeper_than_any_stack_ends_no_process(length: int) -> None:
    """fastavro's C code has no end of depth: this was a segmentation fault of the Spark worker, again with each new try."""
    node = record(("id", "long"), ("next", ["null", {"type": "array", "items": "Order"}]))
    columns = Columns("value", Avro(schema=json.dumps(node)), _ID)
    deep = b"\x02\x02\x02" * length
    result, reasons = columns.decode(batch_of([b"\x02\x00", deep, b"\x04\x02\x02\x06\x00\x00"]))
    assert result.to_pylist() == [{"id": 1}, None, {"id": 2}]
    assert reasons[0] is None and reasons[1] is not None and reasons[2] is None


@pytest.mark.parametrize("depth", [400, 100_000])
def test_a_schema_too_deep_to_be_read_is_the_reason_of_its_records_alone(registry: FakeRegistry, depth: int) -> None:
    fine = record(("id", "long"))
    deep = '{"type": "array", "items": ' * depth + '"long"' + "}" * depth
    odd = f'{{"type": "record", "name": "Order", "fields": [{{"name": "id", "type": {deep}}}]}}'
    registry.answers["/schemas/ids/7"] = [(200, {"schema": json.dumps(fine)})]
    registry.answers["/schemas/ids/8"] = [(200, {"schema": odd})]
    values: list[bytes | None] = [wired(7, b"\2"), wired(8, b"\0"), wired(7, b"\4")]
    result, reasons = Columns("value", Avro(registry=registry.url), _ID).decode(batch_of(values))
    assert result.to_pylist() == [{"id": 1}, None, {"id": 2}]
    assert "cannot be read as Avro" in str(reasons[1])


@pytest.mark.timeout(20)
def test_a_type_that_is_used_in_many_places_makes_no_endless_plan() -> None:
    last: Any = record(("x", "int"), name="R0")
    for i in range(1, 30):
        last = record(("a", ["null", last]), ("b", ["null", f"R{i - 1}"]), name=f"R{i}")
    top = record(("id", "long"), ("d", ["null", last]), name="Top")
    result, reasons = Columns("value", Avro(schema=json.dumps(top)), _ID).decode(batch_of([b"\2\0"]))
    assert (result.to_pylist(), reasons) == ([{"id": 1}], [None])


_DATE, _MICROS = {"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-micros"}
_CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
_INNER = {**record(("at", _DATE), ("b", "bytes")), "name": "Inner"}
_INNER["fields"][0]["default"] = 1


@pytest.mark.parametrize(
    ("type_", "default", "kind", "expected"),
    [
        ("bytes", "\u00ff", pa.binary(), b"\xff"),
        (["bytes", "null"], "\u00ff", pa.binary(), b"\xff"),
        (["null", "bytes"], None, pa.binary(), None),
        ({"type": "fixed", "name": "F", "size": 1}, "\u00ff", pa.binary(), b"\xff"),
        ("string", "\u00ff", pa.string(), "\u00ff"),
        (_MICROS, 1_600_000_000_000_000, pa.timestamp("us"), dt.datetime(2020, 9, 13, 12, 26, 40)),
        (_DATE, 0, pa.date32(), dt.date(1970, 1, 1)),
        ({"type": "int", "logicalType": "time-millis"}, 1000, pa.string(), "00:00:01"),
        (_CENTS, "\u0005", pa.decimal128(5, 2), Decimal("0.05")),
        ({"type": "array", "items": _DATE}, [0, 1], pa.list_(pa.date32()), [dt.date(1970, 1, 1), dt.date(1970, 1, 2)]),
        (
            _INNER,
            {"b": "\u0080"},
            pa.struct([("at", pa.date32()), ("b", pa.binary())]),
            {"at": dt.date(1970, 1, 2), "b": b"\x80"},
        ),
    ],
)
def test_a_default_is_what_would_have_been_decoded(type_: Any, default: Any, kind: pa.DataType, expected: Any) -> None:
    """fastavro gives it as JSON has it: bytes were other bytes, microseconds were taken for milliseconds, dates were refused."""
    writer, latest = record(("id", "long")), record(("id", "long"), ("new", type_))
    latest["fields"][1]["default"] = default
    columns = Columns(
        "value", Avro(json.dumps(writer), reader=json.dumps(latest)), pa.struct([("id", pa.int64()), ("new", kind)])
    )
    assert columns._bulk is not None
    result, reasons = columns.decode(batch_of([b"\2"]))
    assert (result.to_pylist(), reasons) == ([{"id": 1, "new": expected}], [None])
    assert same_both_ways(columns.decoder, columns.kind, [b"\2"]) == 1
