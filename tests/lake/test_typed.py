"""Typed tables without a line of code and without Spark: columns by a schema that goes on, bad records as declared (SPEC K6)."""

from __future__ import annotations

import base64
import io
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from google.protobuf import descriptor_pb2 as pb
from pyiceberg.table import StaticTable

from crkafka_core.config import json_columns
from crkafka_core.decode.batch import BadRecord
from crkafka_core.lake import audit, compact, road
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.offsets import TP
from crkafka_core.plane import lateness
from crkafka_core.verify import in_tables
from crkafka_core.verify.verdict import Findings
from tests.lake.rig import pool
from tests.rigs.landing import Landing, records
from tests.rigs.memory import MemoryStore
from tests.rigs.schema_registry import FakeRegistry


def advance(region: Any, name: str) -> Any:
    return road.advance(region, name, means=road.Means(pool=pool()))


def rows_of(landing: Landing, name: str) -> list[dict[str, Any]]:
    """As readers see them that know nothing of us."""
    table = landing.config.table(name)
    assert table is not None
    if table.format == "delta":
        query = QueryBuilder().register("t", DeltaTable(table.path))
        rows = pa.table(query.execute("SELECT * FROM t").read_all())
    else:
        versions = [int(p.name[1:].split(".")[0]) for p in Path(table.path, "metadata").glob("v*.metadata.json")]
        rows = StaticTable.from_metadata(f"{table.path}/metadata/v{max(versions)}.metadata.json").scan().to_arrow()
    found: list[dict[str, Any]] = rows.to_pylist()
    return sorted(found, key=lambda r: r.get("kafka_offset", r.get("offset")))  # type: ignore[return-value, arg-type]


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    fake = FakeRegistry()
    yield fake
    fake.close()


def schema(**properties: str) -> dict[str, Any]:
    return {"type": "object", "required": ["id"], "properties": {n: {"type": t} for n, t in properties.items()}}


def made(
    folder: Path,
    values: Mapping[tuple[str, int], bytes | None],
    *declared: dict[str, Any],
    keys: Callable[[int], bytes | None] | None = None,
    **more: Any,
) -> Landing:
    """`values` by topic and offset, `keys` by offset."""

    def batch_of(tp: TP, start: int, stop: int) -> Any:
        batch = records(tp, start, stop)
        given = pa.array([values[tp.topic, o] for o in range(start, stop)], pa.binary())
        rows = batch.records.set_column(1, "value", given)
        if keys is not None:
            rows = rows.set_column(0, "key", pa.array([keys(o) for o in range(start, stop)], pa.binary()))
        return type(batch)(rows, batch.runs)

    named = [{**t, "path": str(folder / t["name"])} for t in declared]
    return Landing(MemoryStore(), folder, partitions=1, members=1, tables=named, batch_of=batch_of, **more)


def test_a_table_typed_by_a_json_schema_keeps_bad_records_beside_it_and_follows_the_schema(tmp_path: Path) -> None:
    file = tmp_path / "order.json"
    file.write_text(json.dumps(schema(id="integer", who="string")))
    values = {
        ("orders", 0): b'{"id": 1, "who": "a", "vip": true}',
        ("orders", 1): b"no JSON",
        ("orders", 2): b'{"who": "no id"}',
        ("orders", 3): b'{"id": 2, "vip": true}',
        ("orders", 4): b'{"id": "2"}',
        ("orders", 5): None,
    }
    landing = made(tmp_path, values, {"name": "typed", "format": "delta", "typed": {"json": str(file)}})
    landing.land(3)
    done = advance(landing.region, "typed")
    assert done is not None and (done.rows, done.bad) == (1, 2)
    file.write_text(json.dumps(schema(vip="boolean", id="integer", who="string")))
    landing.land(3)
    advance(landing.region, "typed_dead")
    found = rows_of(landing, "typed")
    assert [(r["id"], r["who"], r["vip"], r["kafka_offset"], r["kafka_tombstone"]) for r in found] == [
        (1, "a", None, 0, False),
        (2, None, True, 3, False),
        (None, None, None, 5, True),
    ]
    assert found[0]["kafka_topic"] == "orders" and found[0]["kafka_timestamp"] is not None
    plain = DeltaTable(str(tmp_path / "typed_dead")).to_pyarrow_table()
    assert sorted(zip(plain["offset"].to_pylist(), plain["value"].to_pylist(), strict=True)) == [
        (1, b"no JSON"),
        (2, b'{"who": "no id"}'),
        (4, b'{"id": "2"}'),
    ]
    assert any("column id: there is no value" in reason for reason in plain["reason"].to_pylist())
    lags = {lag.table.name: lag.bad for lag in landing.region.plane.read(lateness.lags)}
    assert lags == {"typed": 3, "typed_dead": 0}
    file.write_text(json.dumps(schema(id="string")))
    values["orders", 6] = b'{"id": "7"}'
    landing.land(1)
    with pytest.raises(
        ConfigError, match="Table typed cannot follow its schema: column id is int64 and would become string"
    ):
        advance(landing.region, "typed")


@pytest.mark.parametrize("mode", [{}, {"mode": "upsert"}], ids=["each record", "each key"])
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_fields_may_have_names_that_are_syntax_to_sql(tmp_path: Path, format: str, mode: dict[str, str]) -> None:
    file, names = tmp_path / "order.json", ["k8s.io/name", "@timestamp", "it`s", "value", "Topic", "select"]
    file.write_text(json.dumps(schema(id="integer")))
    values = {("orders", o): json.dumps(dict.fromkeys([*names, "late.too"], o)).encode() for o in range(4)}
    table = {"name": "typed", "typed": {"json": str(file)}, "format": format, **mode}
    landing = made(tmp_path, values, table, keys=lambda o: b"%d" % o)
    for there in (names, [*names, "late.too"]):
        file.write_text(json.dumps(schema(**dict.fromkeys(there, "integer")) | {"required": []}))
        landing.land(2)
        advance(landing.region, "typed")
    found = rows_of(landing, "typed")
    assert [[r[n] for n in names] for r in found] == [[o] * len(names) for o in range(4)]
    assert [r["late.too"] for r in found] == [None, None, 2, 3]


def avro_schema(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    more = {"note": {"default": "none"}}
    return {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": n, "type": t, **more.get(n, {})} for n, t in fields],
    }


def avro(number: int, written: dict[str, Any], value: dict[str, Any]) -> bytes:
    out = io.BytesIO(b"\0" + struct.pack(">I", number))
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(written), value)
    return out.getvalue()


def test_a_table_typed_by_a_registry_follows_added_reordered_and_widened_fields(
    tmp_path: Path, registry: FakeRegistry
) -> None:
    line = {"type": "record", "name": "Line", "fields": [{"name": "cents", "type": "int"}]}
    sku = {"name": "sku", "type": ["null", "string"], "default": None}
    wider = {"type": "record", "name": "Line", "fields": [sku, {"name": "cents", "type": "long"}]}
    first = avro_schema([("id", "int"), ("line", line)])
    second = avro_schema([("note", "string"), ("line", wider), ("id", "long")])
    values = {
        ("orders", 0): avro(1, first, {"id": 1, "line": {"cents": 5}}),
        ("orders", 1): b"x",
        ("orders", 2): avro(1, first, {"id": 2, "line": {"cents": 6}}),
        ("orders", 3): avro(2, second, {"id": 2**40, "note": "n", "line": {"cents": 7, "sku": "s"}}),
    }
    registry.answers = {
        "/schemas/ids/1": [(200, {"schema": json.dumps(first)})],
        "/schemas/ids/2": [(200, {"schema": json.dumps(second)})],
        "/subjects/orders-value/versions/latest": [(200, {"schema": json.dumps(first)})],
    }
    table = {"name": "typed", "format": "iceberg", "typed": {"avro": "registry"}, "dead_letters": "failed"}
    landing = made(tmp_path, values, table, registry={"url": registry.url})
    landing.land(2)
    advance(landing.region, "typed")
    registry.answers["/subjects/orders-value/versions/latest"] = [(200, {"schema": json.dumps(second)})]
    landing.land(2)
    advance(landing.region, "typed")
    found = rows_of(landing, "typed")
    assert [(r["id"], r["note"], r["line"]) for r in found] == [
        (1, None, {"cents": 5, "sku": None}),
        (2, "none", {"cents": 6, "sku": None}),
        (2**40, "n", {"cents": 7, "sku": "s"}),
    ]
    assert [r["offset"] for r in rows_of(landing, "failed")] == [1]


def of_two_topics(folder: Path, *tables: dict[str, Any]) -> Landing:
    """Tables of the orders alone, one of two of which is bad."""
    file = folder / "order.json"
    file.write_text(json.dumps(schema(id="integer")))
    values = {
        ("orders", 0): b'{"id": 1}',
        ("orders", 1): b"bad",
        ("refunds", 0): b"of",
        ("refunds", 1): b"another kind",
    }
    typed = {"format": "delta", "typed": {"json": str(file)}, "topics": ["orders"]}
    return made(folder, values, *({**typed, **each} for each in tables), topics=["orders", "refunds"])


def test_bad_records_are_skipped_and_counted_or_stop_the_table_and_other_topics_are_left_out(tmp_path: Path) -> None:
    landing = of_two_topics(
        tmp_path, {"name": "lenient", "on_bad_record": "skip"}, {"name": "strict", "on_bad_record": "stop"}
    )
    landing.land(2)
    done = advance(landing.region, "lenient")
    assert done is not None and (done.rows, done.bad) == (1, 1)
    assert DeltaTable(str(tmp_path / "lenient")).to_pyarrow_table(columns=["id"]).to_pylist() == [{"id": 1}]
    assert {lag.table.name: lag.bad for lag in landing.region.plane.read(lateness.lags)} == {"lenient": 1, "strict": 0}
    with pytest.raises(
        BadRecord, match=r"Table strict: Record orders\[0\]@1 cannot be decoded: no JSON, from character"
    ):
        advance(landing.region, "strict")
    assert not (tmp_path / "strict").exists()


def test_a_table_of_some_topics_beside_its_dead_letters_has_all_its_rows(tmp_path: Path) -> None:
    """Those of other topics were said to be missing, by every look at it."""
    landing = of_two_topics(tmp_path, {"name": "typed"})
    landing.land(2)
    advance(landing.region, "typed")
    assert audit.look(landing.region, "typed").clean
    foreign = DeltaTable(str(tmp_path / "typed_dead"))
    write_deltalake(foreign, foreign.to_pyarrow_table(), mode="append")
    assert audit.look(landing.region, "typed_dead").miscounted == (1,)
    road.mend(landing.region, "typed_dead", audit.look(landing.region, "typed_dead"), means=road.Means(pool=pool()))
    assert audit.look(landing.region, "typed").clean
    assert [r["kafka_offset"] for r in rows_of(landing, "typed")] == [0]
    assert [r["offset"] for r in rows_of(landing, "typed_dead")] == [1]


@pytest.mark.parametrize(
    ("then", "now", "mode"),
    [
        (["orders", "refunds"], ["orders"], {}),
        (["orders"], None, {}),
        (["refunds"], ["orders", "refunds"], {}),
        (["orders", "refunds"], ["orders"], {"mode": "upsert"}),
    ],
)
def test_what_was_written_of_other_topics_than_are_named_today_stays_and_is_no_damage(
    tmp_path: Path, then: list[str], now: list[str] | None, mode: dict[str, str]
) -> None:
    landing = of_two_topics(tmp_path, {"name": "typed", "topics": then, **mode})
    landing.land(2)
    advance(landing.region, "typed")
    found = {name: sorted(map(str, rows_of(landing, name))) for name in ("typed", "typed_dead")}
    assert sum(map(len, found.values())) == 2 * len(then)
    changed = tuple(t.model_copy(update={"topics": now and tuple(now)}) for t in landing.config.tables)
    region = replace(landing.region, config=landing.config.model_copy(update={"tables": changed}))
    assert audit.look(region, "typed").clean and audit.look(region, "typed_dead").clean
    findings = Findings()
    assert in_tables.look(region, findings) == ("typed", "typed_dead")
    assert list(map(str, findings.kept)) == []


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_partitioned_table_keeps_its_partitions_through_a_rewind_and_a_compaction(
    tmp_path: Path, format: str
) -> None:
    (tmp_path / "order.json").write_text(json.dumps(schema(id="integer", who="string", paid="boolean")))
    values = {("orders", o): json.dumps({"id": o, "who": "ab"[o % 2], "paid": o > 5}).encode() for o in range(40)}
    table = {"name": "typed", "format": format, "typed": {"json": str(tmp_path / "order.json")}}
    partition_by = ["who", "paid"] if format == "delta" else ["truncate(1, who)", "day(kafka_timestamp)"]
    landing = made(tmp_path, values, {**table, "partition_by": partition_by})
    for _ in range(4):
        landing.land(4)
        advance(landing.region, "typed")
    landing.retire(1, 2, history=10)
    compact.maintain(landing.region, "typed")
    landing.rewind(3)
    for name in ("typed", "typed_dead"):
        road.fence(landing.region, name)
    found = rows_of(landing, "typed")
    assert [(r["kafka_offset"], r["who"], r["paid"]) for r in found] == [(o, "ab"[o % 2], o > 5) for o in range(12)]
    assert audit.look(landing.region, "typed").clean
    if format == "delta":
        assert DeltaTable(str(tmp_path / "typed")).metadata().partition_columns == ["who", "paid"]


def proto(*fields: tuple[str, int, int, str], name: str = "x.proto") -> pb.FileDescriptorProto:
    """(name, number, type, name of its type)."""
    file = pb.FileDescriptorProto(
        name=name, package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    message = file.message_type.add(name="Order")
    for field, number, kind, of in fields:
        message.field.add(name=field, number=number, type=kind, type_name=of or None, label=1)
    file.message_type.add(name="Other")
    return file


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_table_typed_by_protobuf_of_a_registry_follows_an_added_field(
    tmp_path: Path, registry: FakeRegistry, format: str
) -> None:
    """What was written before has no such field; what does not decode is a dead letter."""
    first = proto(("id", 1, 5, ""), ("at", 2, 11, ".google.protobuf.Timestamp"))
    second = proto(("id", 1, 5, ""), ("at", 2, 11, ".google.protobuf.Timestamp"), ("note", 3, 9, ""))

    def says(number: int, order: pb.FileDescriptorProto) -> None:
        text = base64.b64encode(order.SerializeToString()).decode()
        answer = {"schema": text, "schemaType": "PROTOBUF", "id": number, "version": number}
        registry.answers["/subjects/orders-value/versions/latest?format=serialized"] = [(200, answer)]
        registry.answers[f"/schemas/ids/{number}?format=serialized"] = [(200, answer)]

    head = b"\0\0\0\0"
    values = {
        ("orders", 0): head + b"\x01\0\x08\x07\x12\x02\x08\x05",
        ("orders", 1): head + b"\x01\0\x08",
        ("orders", 2): head + b"\x02\0\x08\x09\x1a\x01n",
        ("orders", 3): None,
    }
    says(1, first)
    table = {"name": "typed", "format": format, "typed": {"protobuf": "registry"}}
    landing = made(tmp_path, values, table, registry={"url": registry.url})
    landing.land(2)
    advance(landing.region, "typed")
    says(2, second)
    landing.land(2)
    advance(landing.region, "typed")
    found = rows_of(landing, "typed")
    at = [r["at"] and r["at"].timestamp() for r in found]
    assert [(r["kafka_offset"], r["id"], r["note"]) for r in found] == [(0, 7, None), (2, 9, "n"), (3, None, None)]
    assert at == [5.0, None, None]
    assert [r["offset"] for r in rows_of(landing, "typed_dead")] == [1]


def test_as_many_levels_as_are_allowed_are_written_and_read(tmp_path: Path) -> None:
    described: dict[str, Any] = {"type": "integer"}
    value: Any = 7
    for _ in range(json_columns.DEEPEST):
        described, value = {"type": "object", "properties": {"x": described}}, {"x": value}
    (tmp_path / "deep.json").write_text(json.dumps(described))
    table = {"name": "typed", "format": "delta", "typed": {"json": str(tmp_path / "deep.json")}}
    landing = made(tmp_path, dict.fromkeys([("orders", 0), ("orders", 1)], json.dumps(value).encode()), table)
    landing.land(1)
    advance(landing.region, "typed")
    (file,) = (tmp_path / "typed").rglob("*.parquet")  # by PyArrow: deltalake reads no table of so many
    assert pq.read_table(file, columns=["x"])["x"].to_pylist() == [value["x"]]
    landing.land(1)
    advance(landing.region, "typed")
    assert audit.look(landing.region, "typed").clean


WHOLE: dict[str, Any] = {
    "id": 7,
    "price": 1.5,
    "paid": True,
    "who": "Zoë",
    "at": "2026-01-31T08:00:00.123456Z",
    "day": "2026-02-01",
    "tags": ["a", None],
    "lines": [{"sku": "x", "n": 1}, {"sku": None, "n": 2}, None],
    "to": {"city": "Ulm", "tags": [1, 2]},
}
_ITEM = {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}}}
_TO = {"city": {"type": "string"}, "tags": {"type": "array", "items": {"type": "integer"}}}
KINDS: dict[str, Any] = {
    "id": {"type": "integer"},
    "price": {"type": "number"},
    "paid": {"type": "boolean"},
    "who": {"type": "string"},
    "at": {"type": "string", "format": "date-time"},
    "day": {"type": "string", "format": "date"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "lines": {"type": "array", "items": _ITEM},
    "to": {"type": "object", "properties": _TO},
}


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_columns_of_every_kind_are_read_by_others_and_become_more_inside_of_each_other(
    tmp_path: Path, format: str
) -> None:
    """Of Kafka a time may be any number, and the end of the year 9999 is what many write for "never"."""
    file, more = tmp_path / "order.json", json.loads(json.dumps(KINDS))
    more["to"]["properties"]["zip"] = more["lines"]["items"]["properties"]["gift"] = {"type": "boolean"}
    last = {**WHOLE, "at": "9999-12-31T23:59:59.999999Z", "to": {"city": None, "tags": None, "zip": True}}
    values = {("orders", o): json.dumps(WHOLE if o < 2 else last).encode() for o in range(4)}
    file.write_text(json.dumps({"type": "object", "properties": KINDS}))
    landing = made(tmp_path, values, {"name": "typed", "format": format, "typed": {"json": str(file)}})
    for properties in (KINDS, more, KINDS):
        file.write_text(json.dumps({"type": "object", "properties": properties}))
        landing.land(1)
        advance(landing.region, "typed")
    first, second, third = ({name: row[name] for name in KINDS} for row in rows_of(landing, "typed"))
    lines = [{"sku": "x", "n": 1, "gift": None}, {"sku": None, "n": 2, "gift": None}, None]
    assert (
        first
        == second
        == {
            **WHOLE,
            "at": datetime(2026, 1, 31, 8, 0, 0, 123456, UTC),
            "day": date(2026, 2, 1),
            "lines": lines,
            "to": {"city": "Ulm", "tags": [1, 2], "zip": None},
        }
    )
    assert (third["at"].year, third["to"]) == (9999, {"city": None, "tags": None, "zip": None})


def test_a_host_keeps_typed_tables_fresh_without_java(tmp_path: Path) -> None:
    """In a process of its own, with no program on its path but Python: neither Java nor PySpark is there or asked for."""
    program = """
import shutil, sys
from pathlib import Path
from crkafka_core.region.feeder import feeding
from crkafka_core.region.region import Region
from tests.lake.test_typed import of_formats

assert shutil.which("java") is None
landing, told = of_formats(Path(sys.argv[1])), []
with feeding(Region(landing.config, landing.region.plane), tell=told.append, news=lambda _: None):
    landing.land(4)
print(told, [name for name in sys.modules if name.split(".")[0] in ("pyspark", "py4j")])
"""
    empty = tmp_path / "bin"
    empty.mkdir()
    env = {"PATH": str(empty), "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], env=env, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.strip(), done.returncode) == ("[] []", 0), done.stderr
    landing = of_formats(tmp_path)
    for name in ("in_delta", "in_iceberg"):
        assert [r["id"] for r in rows_of(landing, name)] == [0, 2]
        assert [r["offset"] for r in rows_of(landing, f"{name}_dead")] == [1, 3]


def of_formats(folder: Path) -> Landing:
    """A typed table of each; every second record is bad."""
    (folder / "order.json").write_text(json.dumps(schema(id="integer")))
    values = {("orders", o): b"bad" if o % 2 else b'{"id": %d}' % o for o in range(4)}
    typed = {"typed": {"json": str(folder / "order.json")}}
    tables = [{"name": f"in_{format}", "format": format, **typed} for format in ("delta", "iceberg")]
    return made(folder, values, *tables)
