"""Decoding without Spark: in bulk and one by one the same, never rounded or guessed; an outage is no bad record (faults 46, 80)."""

from __future__ import annotations

import datetime as dt
import json
import time
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crkafka_core.decode.batch import DECODED_KEY, REASON, BadRecord, Columns, decode_batch
from crkafka_core.decode.decoders import Decoder, Json
from crkafka_core.decode.fitting import nullable
from crkafka_core.decode.json_bulk import JsonBulk
from tests.decode.in_bulk import a_text, a_whole, damaged, left_to_python, same_both_ways, some

UTC = dt.UTC
KIND = pa.struct(
    [
        pa.field("id", pa.int64()),
        pa.field("who", pa.string()),
        pa.field("price", pa.float64()),
        pa.field("paid", pa.bool_()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("day", pa.date32()),
        pa.field("sum", pa.decimal128(12, 2)),
        pa.field("few", pa.int8()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("raw", pa.binary()),
        pa.field("inner", pa.struct([pa.field("n", pa.int32()), pa.field("at", pa.timestamp("us", tz="UTC"))])),
    ]
)

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
    b'{"sum": 1.500000}',
    b'{"sum": 1.5' + b"0" * 200 + b"}",
    b'{"sum": 120e-1}',
    b'{"sum": 0e-999999999}',
    b'{"price": -0, "id": -0, "sum": -0, "inner": {"n": -0}}',
    b'{"day": "0001-01-01"}',
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
    b'{"sum": 1e-999}',
    b'{"sum": 1e-999999999}',
    b'{"sum": "1e-999999999"}',
    b'{"sum": "\\u0031e-999999999"}',
    b'{"sum": "1e999999999"}',
    b'{"sum": 0.' + b"0" * 200 + b"1}",
    b'{"day": "0000-01-01"}',
    b'{"sum": "x"}',
    b'{"sum": "NaN"}',
    b'{"tags": "x"}',
    b'{"tags": [1]}',
    b'{"inner": 1}',
    b'{"inner": {"n": "x"}}',
    b'{"a": ' + b"[" * 100_000,
]


class OneByOne(Json):
    def open(self, kind: pa.DataType) -> Any:
        opened = super().open(kind)
        return lambda value, topic: opened(value, topic)


def batch_of(values: list[bytes | None], keys: list[bytes | None] | None = None) -> pa.RecordBatch:
    rows = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array(keys or [None] * rows, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": ["orders"] * rows,
            "partition": pa.array([3] * rows, pa.int32()),
            "offset": range(rows),
        }
    )


def decoded(
    values: list[bytes | None], decoder: Decoder, kind: pa.DataType = KIND
) -> tuple[list[Any], list[str | None]]:
    result, reasons = Columns("value", decoder, kind).decode(batch_of(values))
    assert result.type == nullable(kind) and len(result) == len(reasons) == len(values)
    assert all((f is None) == (r is not None) for f, r, v in zip(result.to_pylist(), reasons, values, strict=True) if v)
    return result.to_pylist(), reasons


def test_what_is_right_comes_as_a_person_expects() -> None:
    result, reasons = decoded(RIGHT, Json())  # type: ignore[arg-type]
    assert reasons == [None] * len(RIGHT)
    eight = dt.datetime(2026, 1, 31, 8, tzinfo=UTC)
    assert result[0] == {
        "id": 1,
        "who": "a",
        "price": 2.5,
        "paid": True,
        "at": None,
        "day": None,
        "sum": Decimal("12.30"),
        "few": None,
        "tags": ["x", None],
        "raw": None,
        "inner": {"n": 1, "at": None},
    }
    assert (result[1]["at"], result[1]["day"], result[2]["at"]) == (eight, dt.date(2026, 1, 31), eight)
    assert result[3]["at"] == eight + dt.timedelta(milliseconds=500)
    millis = dt.datetime.fromtimestamp(1_700_000_000, UTC) + dt.timedelta(milliseconds=123)
    assert result[4]["at"] == result[5]["at"] == millis
    assert [row["sum"] for row in result[10:14]] == [Decimal(t) for t in ("12.34", "5.00", "-0.50", "100.00")]
    assert result[20]["id"] == 2 and result[23]["who"] == "ü"


def test_what_is_wrong_is_no_row_and_says_why() -> None:
    result, reasons = decoded(WRONG, Json())  # type: ignore[arg-type]
    assert result == [None] * len(WRONG)
    assert reasons[WRONG.index(b'{"id": "1"}')] == "column id: '1' is no int64"
    assert reasons[WRONG.index(b'{"id": 99999999999999999999}')] == "column id: 99999999999999999999 is no int64"
    assert reasons[WRONG.index(b'{"few": 300}')] == "column few: 300 is no int8"
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
        return  # it leaves that to the other, as what is null
    assert many is None or (reason is None and str(many) == str(alone))


def test_a_few_bad_ones_do_not_spoil_the_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b'{"id": %d}' % i for i in range(10_000)]
    values[17], values[7_000] = b"x", b'{"id": "x"}'
    alone = left_to_python(monkeypatch)
    result, reasons = Columns("value", Json(), KIND).decode(batch_of(values))
    assert [i for i, r in enumerate(reasons) if r is not None] == [17, 7_000]
    assert [f["id"] for f in result.to_pylist() if f] == [i for i in range(10_000) if i not in (17, 7_000)]
    assert len(alone) < 200


JSON_KINDS = [f.type for f in KIND] + [
    pa.decimal128(38, 0),
    pa.timestamp("us"),
    pa.list_(pa.struct([("n", pa.float64())])),
]


def a_kind(random: Random, levels: int = 2) -> pa.StructType:
    kinds = [*JSON_KINDS, *([a_kind(random, levels - 1)] * 3 if levels else [])]
    return pa.struct([pa.field(n, random.choice(kinds), random.random() < 0.8) for n in random.sample("abcdef", 4)])


def a_json(random: Random, kind: pa.DataType) -> str:
    """Mostly of that kind: of another one at times, or of what is hard to read the same twice."""
    if random.random() < 0.01:
        return some(
            random,
            *["null", "-0", "1e999", "1e-999", "1E5", "[]", "{}", '""', "true", '"\\u0031"', "0.10", "NaN"],
            "9" * 60,
        )
    if random.random() < 0.01:
        kind = random.choice(JSON_KINDS)
    if pa.types.is_struct(kind):
        left = [f for f in kind if not f.nullable or random.random() < 0.8]
        return "{" + ", ".join(f'"{f.name}": {a_json(random, f.type)}' for f in left) + "}"
    if pa.types.is_list(kind):
        return "[" + ", ".join(a_json(random, kind.value_type) for _ in range(random.randrange(3))) + "]"
    if pa.types.is_timestamp(kind):
        return some(
            random, "1700000000123", '"2026-01-31T08:00:00Z"', '"2026-01-31 08:00:00.5+02:00"', '"0000-01-01T00:00:00"'
        )
    if pa.types.is_date(kind):
        return some(random, '"2026-01-31"', '"0000-01-01"', '"0001-01-01"', '"20260131"', '"9999-12-31"', "5")
    if pa.types.is_decimal(kind):
        return some(random, "1.5", '"2.25"', "12e1", '"-0"', "-0", "1e-2", "99999999999.5", "7" * 30)
    if pa.types.is_boolean(kind):
        return some(random, "true", "false")
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return json.dumps(a_text(random), ensure_ascii=random.random() < 0.5)
    if pa.types.is_floating(kind):
        return some(random, "1", "1.5", "-0.0", "-0", "1e300", "5e-324", "9007199254740993")
    return str(a_whole(random, kind.bit_width + (random.random() < 0.02)))


BY_ITSELF = {"in bulk": 0, "all": 0}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**40))
def test_any_json_and_any_bytes_give_the_same_both_ways(seed: int) -> None:
    random = Random(seed)
    kind = a_kind(random)
    values = [damaged(random, a_json(random, kind).encode()) for _ in range(60)]
    values += [a_json(random, a_kind(random)).encode() for _ in range(10)]
    same_both_ways(Json(), kind, values, begin=random.randrange(3))
    BY_ITSELF["in bulk"] += sum(same_both_ways(Json(), kind, [value]) for value in values)
    BY_ITSELF["all"] += len(values)


def test_odd_decimals_are_decoded_one_by_one_and_the_others_in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b'{"sum": %d.25, "who": "3e12-77"}' % i for i in range(200)] + [
        b'{"sum": 1e-999999999}',
        b'{"sum": 12e00}',
    ]
    alone = left_to_python(monkeypatch)
    rows, reasons = Columns("value", Json(), KIND).decode(batch_of(values))
    assert alone == values[-2:]
    assert [row and row["sum"] for row in rows.to_pylist()] == [Decimal(f"{i}.25") for i in range(200)] + [
        None,
        Decimal(12),
    ]
    assert reasons[:200] + reasons[201:] == [None] * 201
    assert reasons[200] == "column sum: Decimal('1E-999999999') is no decimal128(12, 2)"


@pytest.mark.parametrize(
    "ignored",
    [b"[" * 2000 + b"]" * 2000, b'{"a":' * 2000 + b"1" + b"}" * 2000, b"1" * 5000],
    ids=["lists", "objects", "digits"],
)
def test_a_field_that_no_column_wants_is_judged_the_same_beside_any_record(ignored: bytes) -> None:
    odd = b'{"id": 1, "x": ' + ignored + b"}"
    (alone,), (reason,) = decoded([odd], OneByOne())
    rows, reasons = decoded([b'{"id": 0}', odd, b'{"id": 2}'], Json())
    assert (rows[1], reasons) == (alone, [None, reason, None])
    assert reason is not None


def test_a_decimal_with_very_many_zeros_is_read_in_time() -> None:
    zeros = b"0" * 500_000
    began = time.process_time()
    rows, reasons = decoded([b'{"sum": 1.%b}' % zeros, b'{"sum": "1.%b1"}' % zeros], Json())
    assert (rows[0] and rows[0]["sum"], reasons[0]) == (Decimal("1.00"), None) and reasons[1] is not None
    assert time.process_time() - began < 20


def test_lines_that_are_json_only_together_are_bad_records() -> None:
    values = [b'{"id": 1, "x":', b"2}", b'{"id": 3}', b'{"who": "a', b'b"}', b'{"id": 1}}\n{"id": {"id": 2}']
    result, _ = decoded(values, Json())  # type: ignore[arg-type]
    assert [f and f["id"] for f in result] == [None, None, 3, None, None, None]


def test_what_must_be_there_is() -> None:
    kind = pa.struct([pa.field("id", pa.int64(), nullable=False)])
    result, reasons = decoded([b'{"id": 1}', b"{}"], Json(), kind)
    assert (result, reasons) == ([{"id": 1}, None], [None, "column id: there is no value, and there has to be one"])


def run(
    batch: pa.RecordBatch, *, key: Columns | None = None, tombstones: bool = True, stop: bool = False
) -> list[dict[str, Any]]:
    value = Columns("value", Json(), pa.struct([("id", pa.int64())]))
    made = decode_batch(batch, value, key, tombstones=tombstones, stop=stop)
    return made.to_pylist()  # type: ignore[no-any-return]


def test_keys_are_decoded_too_and_tombstones_are_none_of_the_bad() -> None:
    key = Columns("key", Json(), pa.struct([("k", pa.string())]))
    rows = run(
        batch_of([b'{"id": 1}', None, b'{"id": 2}', b"x"], [b'{"k": "a"}', b'{"k": "b"}', b"bad", None]), key=key
    )
    assert [(r["crkafka_decoded"], r[DECODED_KEY], r[REASON] and r[REASON][:4]) for r in rows] == [
        ({"id": 1}, {"k": "a"}, None),
        (None, {"k": "b"}, None),
        ({"id": 2}, None, "key:"),
        (None, None, "no J"),
    ]
    assert [r[REASON] for r in run(batch_of([None, b"{}"]), tombstones=False)] == ["the value is null", None]


def test_a_bad_record_can_stop_the_write_and_is_named() -> None:
    with pytest.raises(BadRecord, match=r"Record orders\[3\]@1 cannot be decoded: no JSON, from character"):
        run(batch_of([b"{}", b"x"]), stop=True)
