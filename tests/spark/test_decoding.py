"""Decoding without Spark: in bulk and one by one the same, never rounded or guessed; an outage is no bad record (faults 46, 80)."""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from crkafka_core.spark.decoders import Avro, Decoder, Json, Undecodable
from crkafka_core.spark.decoding import BadRecord, Columns, Names, decode_batch
from crkafka_core.spark.fitting import nullable
from crkafka_core.spark.json_bulk import JsonBulk
from crkafka_core.spark.registry import Registry, RegistryAway
from crkafka_core.testing.schema_registry import FakeRegistry

UTC = dt.UTC
KIND = pa.struct(
    [
        pa.field("id", pa.int64()), pa.field("who", pa.string()), pa.field("price", pa.float64()), pa.field("paid", pa.bool_()),
        pa.field("at", pa.timestamp("us", tz="UTC")), pa.field("day", pa.date32()), pa.field("sum", pa.decimal128(12, 2)),
        pa.field("few", pa.int8()), pa.field("tags", pa.list_(pa.string())), pa.field("raw", pa.binary()),
        pa.field("inner", pa.struct([pa.field("n", pa.int32()), pa.field("at", pa.timestamp("us", tz="UTC"))])),
    ]
)  # fmt: skip

RIGHT = [
    b'{"id": 1, "who": "a", "price": 2.5, "paid": true, "sum": "12.3", "tags": ["x", null], "inner": {"n": 1}}',
    b'{"at": "2026-01-31T08:00:00Z", "day": "2026-01-31"}',
    b'{"at": "2026-01-31T08:00:00"}',
    b'{"at": "2026-01-31 10:00:00.5+02:00"}',
    b'{"at": 1700000000123}',
    b'{"at": "1700000000123"}',
    b'{"at": "2026-01-31T08:00:00.123456789Z"}',
    b'{"at": "2026-01-31"}',
    b'{"inner": {"at": 5}}',
    b'{"inner": {"at": "2026-01-31T08:00:00Z"}, "at": 7}',
    b'{"sum": 12.34}',
    b'{"sum": 5}',
    b'{"sum": "-0.5"}',
    b'{"sum": 1e2}',
    b'{"price": 1}',
    b'{"price": 9007199254740993}',
    b'{"price": NaN}',
    b"{}",
    b' {"unknown": [1, "x", {}], "id": -0} ',
    b'\n{\n"id": 2\n}\n',
    b'{"id": 1, "id": 2}',
    b'{"who": "\\u0000\\u00e9"}',
    b'{"who": ""}',
    '{"who": "ü"}'.encode("utf-16"),
    b'{"raw": "x"}',
    b'{"id": null, "who": null}',
]

WRONG = [
    b"",
    b" ",
    b"{",
    b'{"id": 1',
    b'{"id": 1} x',
    b'{"id": 1}{"id": 2}',
    b'{"id": 1,}',
    b"[1]",
    b"5",
    b"null",
    b'"x"',
    b"\xff",
    b'{"who": "\xff"}',
    b'{"who": "\\ud800"}',
    b'{"id": "1"}',
    b'{"id": 1.0}',
    b'{"id": 1.5}',
    b'{"id": true}',
    b'{"id": 99999999999999999999}',
    b'{"few": 300}',
    b'{"who": 5}',
    b'{"who": {"x": 1}}',
    b'{"paid": 1}',
    b'{"paid": "true"}',
    b'{"price": "1"}',
    b'{"price": true}',
    b'{"at": true}',
    b'{"at": "noon"}',
    b'{"at": 99999999999999999}',
    b'{"at": 253402300800000}',
    b'{"inner": {"at": -62135596800001}}',
    b'{"at": "0000-01-01T00:00:00Z"}',
    b'{"at": "9999-12-31T23:59:59-05:00"}',
    b'{"day": 20000}',
    b'{"day": "2026-13-01"}',
    b'{"sum": "12.345"}',
    b'{"sum": "12345678901.5"}',
    b'{"sum": "x"}',
    b'{"sum": "NaN"}',
    b'{"tags": "x"}',
    b'{"tags": [1]}',
    b'{"inner": 1}',
    b'{"inner": {"n": "x"}}',
    b'{"a": ' + b"[" * 100_000,
]


class OneByOne(Json):
    def bulk(self, kind: pa.DataType) -> None:
        return None


def batch_of(values: list[bytes | None], keys: list[bytes | None] | None = None) -> pa.RecordBatch:
    rows = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array(keys or [None] * rows, pa.binary()), "value": pa.array(values, pa.binary()),
            "topic": ["orders"] * rows, "partition": pa.array([3] * rows, pa.int32()), "offset": range(rows),
        }
    )  # fmt: skip


def decoded(
    values: list[bytes | None], decoder: Decoder, kind: pa.DataType = KIND
) -> tuple[list[Any], list[str | None]]:
    found, reasons = Columns("value", decoder, kind).decode(batch_of(values))
    assert found.type == nullable(kind) and len(found) == len(reasons) == len(values)
    assert all((f is None) == (r is not None) for f, r, v in zip(found.to_pylist(), reasons, values, strict=True) if v)
    return found.to_pylist(), reasons


def test_what_is_right_comes_as_a_person_expects() -> None:
    found, reasons = decoded(RIGHT, Json())  # type: ignore[arg-type]
    assert reasons == [None] * len(RIGHT)
    eight = dt.datetime(2026, 1, 31, 8, tzinfo=UTC)
    assert found[0] == {
        "id": 1, "who": "a", "price": 2.5, "paid": True, "at": None, "day": None, "sum": Decimal("12.30"), "few": None, "tags": ["x", None],
        "raw": None, "inner": {"n": 1, "at": None},
    }  # fmt: skip
    assert (found[1]["at"], found[1]["day"], found[2]["at"]) == (eight, dt.date(2026, 1, 31), eight)
    assert found[3]["at"] == eight + dt.timedelta(milliseconds=500)
    millis = dt.datetime.fromtimestamp(1_700_000_000, UTC) + dt.timedelta(milliseconds=123)
    assert found[4]["at"] == found[5]["at"] == millis
    assert [row["sum"] for row in found[10:14]] == [Decimal(t) for t in ("12.34", "5.00", "-0.50", "100.00")]
    assert found[20]["id"] == 2 and found[23]["who"] == "ü"


def test_what_is_wrong_is_no_row_and_says_why() -> None:
    found, reasons = decoded(WRONG, Json())  # type: ignore[arg-type]
    assert found == [None] * len(WRONG)
    assert reasons[WRONG.index(b'{"id": "1"}')] == "column id: '1' is no int64"
    assert decoded([b'{"id": 1, "who": "a'], Json())[1] == ["no JSON, from character 18 on"], "no parser's words"  # type: ignore[arg-type]
    assert reasons[WRONG.index(b"[1]")] == "a JSON list, not an object"
    assert reasons[WRONG.index(b'{"inner": {"n": "x"}}')] == "column inner.n: 'x' is no int32"


@pytest.mark.parametrize("value", [*RIGHT, *WRONG])
def test_in_bulk_and_one_by_one_is_the_same(value: bytes) -> None:
    bulk = JsonBulk.of(KIND)
    assert bulk is not None
    (alone,), (reason,) = decoded([value], OneByOne())
    try:
        (many,) = bulk(pa.array([value], pa.binary())).to_pylist()
    except pa.ArrowException:
        return  # it leaves that to the other
    assert reason is None and str(many) == str(alone)


def test_a_few_bad_ones_do_not_spoil_the_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b'{"id": %d}' % i for i in range(10_000)]
    values[17], values[7_000] = b"x", b'{"id": "x"}'
    columns = Columns("value", Json(), KIND)
    alone: list[bytes] = []
    one_by_one = columns._one_by_one
    monkeypatch.setattr(
        columns, "_one_by_one", lambda values, topics: (alone.extend(values), one_by_one(values, topics))[1]
    )
    found, reasons = columns.decode(batch_of(values))
    assert [i for i, r in enumerate(reasons) if r is not None] == [17, 7_000]
    assert [f["id"] for f in found.to_pylist() if f] == [i for i in range(10_000) if i not in (17, 7_000)]
    assert len(alone) < 200


def test_lines_that_are_json_only_together_are_bad_records() -> None:
    values = [b'{"id": 1, "x":', b"2}", b'{"id": 3}', b'{"who": "a', b'b"}', b'{"id": 1}}\n{"id": {"id": 2}']
    found, _ = decoded(values, Json())  # type: ignore[arg-type]
    assert [f and f["id"] for f in found] == [None, None, 3, None, None, None]


def test_what_must_be_there_is() -> None:
    kind = pa.struct([pa.field("id", pa.int64(), nullable=False)])
    found, reasons = decoded([b'{"id": 1}', b"{}"], Json(), kind)
    assert (found, reasons) == ([{"id": 1}, None], [None, "column id: there is no value, and there has to be one"])


def run(
    batch: pa.RecordBatch, *, key: Columns | None = None, tombstones: bool = True, stop: bool = False
) -> list[dict[str, Any]]:
    value = Columns("value", Json(), pa.struct([("id", pa.int64())]))
    made = decode_batch(batch, value, key, Names("v", "k", "why"), tombstones=tombstones, stop=stop)
    return made.to_pylist()  # type: ignore[no-any-return]


def test_keys_are_decoded_too_and_tombstones_are_none_of_the_bad() -> None:
    key = Columns("key", Json(), pa.struct([("k", pa.string())]))
    rows = run(
        batch_of([b'{"id": 1}', None, b'{"id": 2}', b"x"], [b'{"k": "a"}', b'{"k": "b"}', b"bad", None]), key=key
    )
    assert [(r["v"], r["k"], r["why"] and r["why"][:4]) for r in rows] == [
        ({"id": 1}, {"k": "a"}, None), (None, {"k": "b"}, None), ({"id": 2}, None, "key:"), (None, None, "no J"),
    ]  # fmt: skip
    assert [r["why"] for r in run(batch_of([None, b"{}"]), tombstones=False)] == ["the value is null", None]


def test_a_bad_record_can_stop_the_write_and_is_named() -> None:
    with pytest.raises(BadRecord, match=r"Record orders\[3\]@1 cannot be decoded: no JSON, from character"):
        run(batch_of([b"{}", b"x"]), stop=True)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    fake = FakeRegistry()
    yield fake
    fake.close()


SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
VALUE = b"\0" + struct.pack(">I", 7) + b"\x02"
ID = pa.struct([("id", pa.int64())])


@pytest.mark.parametrize(
    "outage",
    [
        (500, {}),
        (503, b"<html>"),
        (401, {}),
        (403, {}),
        (429, {}),
        (404, b"<html>not here"),
        (200, b"<html>login"),
        (200, {"x": 1}),
        (200, []),
    ],
)
def test_a_registry_that_does_not_serve_is_an_outage_and_no_bad_record(
    registry: FakeRegistry, outage: tuple[int, Any]
) -> None:
    registry.answers["/schemas/ids/7"] = [outage]
    columns = Columns("value", Avro(registry=registry.url, patience=0.3), ID)
    with pytest.raises(RegistryAway, match="does not serve schemas"):
        columns.decode(batch_of([VALUE]))
    assert len(registry.asked) >= 2
    registry.answers["/schemas/ids/7"] = [outage, (200, {"schema": json.dumps(SCHEMA)})]
    found, reasons = Columns("value", Avro(registry=registry.url), ID).decode(batch_of([VALUE, VALUE]))
    assert (found.to_pylist(), reasons) == ([{"id": 1}, {"id": 1}], [None, None])


def test_a_registry_that_is_away_is_an_outage(registry: FakeRegistry) -> None:
    registry.close()
    with pytest.raises(RegistryAway):
        Columns("value", Avro(registry=registry.url, patience=0.1), ID).decode(batch_of([VALUE]))


def test_an_id_that_the_registry_does_not_know_is_a_bad_record_and_asked_once(registry: FakeRegistry) -> None:
    found, reasons = Columns("value", Avro(registry=registry.url), ID).decode(batch_of([VALUE, VALUE, b"x"]))
    assert found.null_count == 3
    assert reasons[:2] == ["the schema registry knows no schema 7"] * 2 and "wire format" in str(reasons[2])
    assert len(registry.asked) == 1


def test_credentials_are_resolved_where_the_registry_is_asked(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.answers["/schemas/ids/7"] = [(200, {"schema": json.dumps(SCHEMA)})]
    decoder = Avro(registry="${env:REG_URL}", user="me:${env:REG_PASSWORD}")
    monkeypatch.setenv("REG_URL", registry.url)
    monkeypatch.setenv("REG_PASSWORD", "s3cret-word")
    assert "s3cret" not in repr(decoder)
    decoded([VALUE], decoder, ID)
    assert registry.asked == [("/schemas/ids/7", "Basic " + base64.b64encode(b"me:s3cret-word").decode())]
    registry.asked.clear()
    decoded([VALUE], replace(decoder, user="", headers={"Authorization": "Bearer ${env:REG_PASSWORD}"}), ID)
    assert registry.asked == [("/schemas/ids/7", "Bearer s3cret-word")]


def test_schemas_that_others_are_made_of_are_asked_for(registry: FakeRegistry) -> None:
    line = {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}
    order = {"type": "record", "name": "Order", "fields": [{"name": "line", "type": "Line"}]}
    registry.answers["/schemas/ids/7"] = [
        (200, {"schema": json.dumps(order), "references": [{"name": "Line", "subject": "lines", "version": 2}]})
    ]
    registry.answers["/subjects/lines/versions/2"] = [(200, {"schema": json.dumps(line)})]
    found, _ = decoded([VALUE], Avro(registry=registry.url), pa.struct([("line", pa.struct([("n", pa.int32())]))]))
    assert found == [{"line": {"n": 1}}]


def test_a_schema_of_another_kind_is_a_bad_record(registry: FakeRegistry) -> None:
    registry.answers["/schemas/ids/7"] = [(200, {"schema": "syntax = ...", "schemaType": "PROTOBUF"})]
    _, reasons = decoded([VALUE], Avro(registry=registry.url), ID)
    assert reasons == ["the schema of its id is PROTOBUF, not Avro"]


def test_an_outage_inside_a_decoder_of_ones_own_fails_the_write() -> None:
    class Away(Decoder):
        def open(self, kind: pa.DataType) -> Any:
            def decode(value: bytes, _: str) -> dict[str, Any]:
                raise ConnectionResetError("gone") if value == b"x" else Undecodable("bad")

            return decode

    assert decoded([b"y"], Away(), ID)[1] == ["bad"]
    with pytest.raises(ConnectionResetError):
        decoded([b"x"], Away(), ID)


def test_a_login_in_the_url_of_a_registry_is_a_header_and_no_name_of_a_host(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """urllib takes it for a part of the host, and asks the name service for the password."""
    monkeypatch.setenv("CRK_LOGIN", "geheim@wort")
    registry.answers["/schemas/ids/7"] = [(200, {"schema": "x"})]
    url = registry.url.replace("://", "://me:${env:CRK_LOGIN}@")
    assert Registry(url).schema(7).text == "x"
    assert registry.asked[-1][1] == "Basic " + base64.b64encode(b"me:geheim@wort").decode()


def test_a_registry_answers_by_subject(registry: FakeRegistry) -> None:
    registry.answers["/subjects/orders-value/versions/latest"] = [(200, {"schema": "x", "id": 3})]
    assert Registry(registry.url).version("orders-value", "latest").text == "x"
