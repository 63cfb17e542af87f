"""Typed tables without a line of code: columns by a schema that goes on, bad records as declared, none lost or doubled (SPEC K6)."""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from google.protobuf import descriptor_pb2 as pb
from pyspark.sql import SparkSession

from crkafka_core.config import json_columns
from crkafka_core.decode.batch import BadRecord
from crkafka_core.model.errors import ConfigError, Refused
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Checkpoint
from crkafka_core.plane import lateness
from crkafka_core.plane import tables as plane
from crkafka_core.spark import tables
from crkafka_core.verify import in_tables
from crkafka_core.verify.verdict import Findings
from tests.rigs.landing import Landing, records
from tests.rigs.memory import MemoryStore
from tests.rigs.schema_registry import FakeRegistry


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


def rows_of(spark: SparkSession, landing: Landing, name: str) -> list[dict[str, Any]]:
    found = [r.asDict(recursive=True) for r in tables.read_table(spark, landing.region, name).collect()]
    return sorted(found, key=lambda r: r.get("kafka_offset", r.get("offset")))  # type: ignore[return-value, arg-type]


@pytest.mark.spark
def test_K6_a_table_typed_by_a_json_schema_keeps_bad_records_beside_it_and_follows_the_schema(
    spark: SparkSession, tmp_path: Path
) -> None:
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
    done = tables.advance(spark, landing.region, "typed")
    assert done is not None and (done.rows, done.bad) == (1, 2)
    file.write_text(json.dumps(schema(vip="boolean", id="integer", who="string")))
    landing.land(3)
    tables.advance(spark, landing.region, "typed_dead")
    found = rows_of(spark, landing, "typed")
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
    with pytest.raises(ConfigError, match="Column id of table typed is bigint and would become string"):
        tables.advance(spark, landing.region, "typed")


@pytest.mark.spark
def test_K6_a_record_without_a_key_is_a_bad_one_of_a_table_with_one_row_for_each(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It kept the table where it was for ever: nobody can take it out of Kafka, and a typed table has no shape to leave it out."""
    file = tmp_path / "order.json"
    file.write_text(json.dumps(schema(id="integer")))
    values = {("orders", o): b'{"id": %d}' % o for o in range(6)} | {("orders", 2): None, ("orders", 3): b"bad"}
    table = {"name": "now", "format": "delta", "mode": "upsert", "typed": {"json": str(file)}}
    landing = made(tmp_path, values, table, keys=lambda o: None if o in (1, 2, 3) else b"%d" % (o % 2))
    landing.land(6)
    done = tables.advance(spark, landing.region, "now")
    assert done is not None and (done.rows, done.bad) == (3, 3)
    assert [r["id"] for r in rows_of(spark, landing, "now")] == [4, 5]
    reasons = [(r["offset"], r["reason"].partition(",")[0]) for r in rows_of(spark, landing, "now_dead")]
    assert reasons == [(1, "the record has no key"), (2, "the record has no key"), (3, "no JSON")]
    found = Findings()
    assert in_tables.look(landing.region, found) and not found.kept


@pytest.mark.spark
@pytest.mark.parametrize("keyed", [False, True])
def test_K6_what_others_did_to_rows_of_older_checkpoints_is_undone_though_their_number_is_right(
    spark: SparkSession, tmp_path: Path, keyed: bool
) -> None:
    """Of a table by key, in the dead letters beside it, which are never written again."""
    file = tmp_path / "order.json"
    file.write_text(json.dumps(schema(id="integer")))
    values = {("orders", o): b'{"id": %d}' % o if o % 2 else b"bad" for o in range(12)}
    more = {"mode": "upsert"} if keyed else {}
    table = {"name": "typed", "format": "delta", "typed": {"json": str(file)}, **more}
    landing = made(tmp_path, values, table, keys=lambda o: b"%d" % o)
    for _ in range(2):
        landing.land(4)
        tables.advance(spark, landing.region, "typed")
    for name, column in (("typed", '"kafka_offset"'), ("typed_dead", '"offset"')):
        before, there = rows_of(spark, landing, name), DeltaTable(str(tmp_path / name))
        there.update(updates={column: f"{column} + 100"}, predicate=f"{column} < 4")
        assert tables.look(spark, landing.region, name).foreign == 1
        tables.mend(spark, landing.region, name)
        assert rows_of(spark, landing, name) == before
        there.update_incremental()
        there.delete(f"{column} < 4")
        tables.mend(spark, landing.region, name)
        assert rows_of(spark, landing, name) == before
        assert tables.look(spark, landing.region, name).clean
    DeltaTable(str(tmp_path / "typed_dead")).delete('"offset" < 4')
    DeltaTable(str(tmp_path / "typed_dead")).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    if keyed:
        said = "What others did to table typed_dead cannot be undone.*`crkafka tables undeclare typed`"
        with pytest.raises(Refused, match=said):
            tables.mend(spark, landing.region, "typed_dead")
        return
    tables.mend(spark, landing.region, "typed_dead")
    assert rows_of(spark, landing, "typed_dead") == before
    landing.land(4)
    tables.advance(spark, landing.region, "typed")
    found = Findings()
    assert in_tables.look(landing.region, found) and not found.kept and not found.notes


@pytest.mark.spark
@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("mode", [pytest.param("append", marks=pytest.mark.soak), "upsert"])
def test_K6_fields_may_have_names_that_are_syntax_to_spark(
    spark: SparkSession, tmp_path: Path, format: str, mode: str
) -> None:
    file, names = tmp_path / "order.json", ["k8s.io/name", "@timestamp", "it`s", "value", "Topic", "select"]
    file.write_text(json.dumps(schema(id="integer")))
    values = {("orders", o): json.dumps(dict.fromkeys([*names, "late.too"], o)).encode() for o in range(4)}
    table = {"name": "typed", "typed": {"json": str(file)}, "format": format, "mode": mode}
    landing = made(tmp_path, values, table, keys=lambda o: b"%d" % o)
    for there in (names, [*names, "late.too"]):
        file.write_text(json.dumps(schema(**dict.fromkeys(there, "integer")) | {"required": []}))
        landing.land(2)
        tables.advance(spark, landing.region, "typed")
    found = rows_of(spark, landing, "typed")
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


@pytest.mark.spark
def test_K6_a_table_typed_by_a_registry_follows_added_reordered_and_widened_fields(
    spark: SparkSession, tmp_path: Path, registry: FakeRegistry
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
    tables.advance(spark, landing.region, "typed")
    registry.answers["/subjects/orders-value/versions/latest"] = [(200, {"schema": json.dumps(second)})]
    landing.land(2)
    tables.advance(spark, landing.region, "typed")
    found = rows_of(spark, landing, "typed")
    assert [(r["id"], r["note"], r["line"]) for r in found] == [
        (1, None, {"cents": 5, "sku": None}),
        (2, "none", {"cents": 6, "sku": None}),
        (2**40, "n", {"cents": 7, "sku": "s"}),
    ]
    assert [r["offset"] for r in rows_of(spark, landing, "failed")] == [1]


def of_two_topics(folder: Path, *tables: dict[str, str]) -> Landing:
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


@pytest.mark.spark
def test_K6_bad_records_are_skipped_and_counted_or_stop_the_table_and_other_topics_are_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    landing = of_two_topics(
        tmp_path, {"name": "lenient", "on_bad_record": "skip"}, {"name": "strict", "on_bad_record": "stop"}
    )
    landing.land(2)
    done = tables.advance(spark, landing.region, "lenient")
    assert done is not None and (done.rows, done.bad) == (1, 1)
    assert DeltaTable(str(tmp_path / "lenient")).to_pyarrow_table(columns=["id"]).to_pylist() == [{"id": 1}]
    assert {lag.table.name: lag.bad for lag in landing.region.plane.read(lateness.lags)} == {"lenient": 1, "strict": 0}
    with pytest.raises(
        BadRecord, match=r"Table strict: Record orders\[0\]@1 cannot be decoded: no JSON, from character"
    ):
        tables.advance(spark, landing.region, "strict")
    assert not (tmp_path / "strict").exists()


@pytest.mark.spark
def test_K6_a_table_of_some_topics_beside_its_dead_letters_has_all_its_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Those of other topics were said to be missing, by every look at it."""
    landing = of_two_topics(tmp_path, {"name": "typed"})
    landing.land(2)
    tables.advance(spark, landing.region, "typed")
    assert tables.look(spark, landing.region, "typed").clean
    foreign = DeltaTable(str(tmp_path / "typed_dead"))
    write_deltalake(foreign, foreign.to_pyarrow_table(), mode="append")
    assert tables.look(spark, landing.region, "typed_dead").miscounted == (1,)
    tables.mend(spark, landing.region, "typed_dead")
    assert tables.look(spark, landing.region, "typed").clean
    assert [r["kafka_offset"] for r in rows_of(spark, landing, "typed")] == [0]
    assert [r["offset"] for r in rows_of(spark, landing, "typed_dead")] == [1]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("then", "now", "mode"),
    [
        (["orders", "refunds"], ["orders"], "append"),
        pytest.param(["orders"], None, "append", marks=pytest.mark.soak),
        pytest.param(["refunds"], ["orders", "refunds"], "append", marks=pytest.mark.soak),
        (["orders", "refunds"], ["orders"], "upsert"),
    ],
)
def test_K6_what_was_written_of_other_topics_than_are_named_today_stays_and_is_no_damage(
    spark: SparkSession, tmp_path: Path, then: list[str], now: list[str] | None, mode: str
) -> None:
    """`mend` took the rows of a topic out that the region does not read any more, and `verify` told of them."""
    landing = of_two_topics(tmp_path, {"name": "typed", "topics": then, "mode": mode})
    landing.land(2)
    tables.advance(spark, landing.region, "typed")
    found = {name: sorted(map(str, rows_of(spark, landing, name))) for name in ("typed", "typed_dead")}
    assert sum(map(len, found.values())) == 2 * len(then)
    changed = tuple(t.model_copy(update={"topics": now and tuple(now)}) for t in landing.config.tables)
    region = replace(landing.region, config=landing.config.model_copy(update={"tables": changed}))
    assert tables.look(spark, region, "typed").clean and tables.look(spark, region, "typed_dead").clean
    assert tables.mend(spark, region, "typed") is None
    findings = Findings()
    assert in_tables.look(region, findings) == ("typed", "typed_dead")
    assert list(map(str, findings.kept)) == []
    assert {name: sorted(map(str, rows_of(spark, landing, name))) for name in found} == found


@pytest.mark.spark
def test_K6_dead_letters_that_join_a_table_by_key_too_late_are_named_and_let_go(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Only the table itself was named, which was to be made anew; and the old configuration alone did not bring it back."""
    landing = of_two_topics(tmp_path, {"name": "typed", "mode": "upsert", "on_bad_record": "skip"})
    landing.land(1)
    tables.advance(spark, landing.region, "typed")
    (tmp_path / "later").mkdir()
    later = of_two_topics(tmp_path / "later", {"name": "typed", "mode": "upsert"}).config.tables
    for table in (dead := landing.config.tables[0].model_copy(update={"on_bad_record": None}), later[1]):
        landing.declare(table.model_copy(update={"path": dead.path.replace("typed", table.name)}))
    region = replace(landing.region, config=landing.config.model_copy(update={"tables": (dead, later[1])}))
    landing.land(1)
    with pytest.raises(
        Refused, match="`crkafka tables undeclare typed_dead`, which joins it too late, and what the configuration was"
    ):
        tables.advance(spark, region, "typed")
    region.plane.do(lambda tx: plane.undeclare(tx, "typed_dead"))
    done = tables.advance(spark, landing.region, "typed")
    assert done is not None and done.acknowledged == 2


@pytest.mark.spark
def test_T2_a_table_by_key_does_not_begin_behind_what_is_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    """Put back after it was undeclared, it would lose the rows of keys that nobody has written since."""
    landing = of_two_topics(
        tmp_path, {"name": "typed", "mode": "upsert", "on_bad_record": "skip", "topics": ["refunds"]}
    )
    landing.land(1)
    tables.advance(spark, landing.region, "typed")
    version = DeltaTable(str(tmp_path / "typed")).version()
    landing.region.plane.do(lambda tx: plane.undeclare(tx, "typed"))
    landing.land(1)
    landing.region.plane.do(lambda tx: tx.delete(Checkpoint, ("id", "=", 1)))
    landing.declare(landing.config.tables[0])
    for _ in range(2):
        with pytest.raises(
            Refused, match="what led to checkpoint 1 is not archived any more: rows of keys that came before"
        ):
            tables.advance(spark, landing.region, "typed")
    assert DeltaTable(str(tmp_path / "typed")).version() == version


def proto(*fields: tuple[str, int, int, str], name: str = "x.proto") -> pb.FileDescriptorProto:
    """(name, number, type, name of its type)."""
    file = pb.FileDescriptorProto(
        name=name, package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    message = file.message_type.add(name="Order")
    for field, number, kind, of in fields:
        message.field.add(name=field, number=number, type=kind, type_name=of or None, label=1)  # type: ignore[arg-type]
    file.message_type.add(name="Other")
    return file


@pytest.mark.spark
@pytest.mark.parametrize("format", ["delta", pytest.param("iceberg", marks=pytest.mark.soak)])  # of Avro it is Iceberg
def test_K6_a_table_typed_by_protobuf_of_a_registry_follows_an_added_field(
    spark: SparkSession, tmp_path: Path, registry: FakeRegistry, format: str
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
    tables.advance(spark, landing.region, "typed")
    says(2, second)
    landing.land(2)
    tables.advance(spark, landing.region, "typed")
    found = rows_of(spark, landing, "typed")
    at = [r["at"] and r["at"].timestamp() for r in found]
    assert [(r["kafka_offset"], r["id"], r["note"]) for r in found] == [(0, 7, None), (2, 9, "n"), (3, None, None)]
    assert at == [5.0, None, None]
    assert [r["offset"] for r in rows_of(spark, landing, "typed_dead")] == [1]


@pytest.mark.spark
def test_K6_as_many_levels_as_are_allowed_are_written_and_read(spark: SparkSession, tmp_path: Path) -> None:
    described: dict[str, Any] = {"type": "integer"}
    value: Any = 7
    for _ in range(json_columns.DEEPEST):
        described, value = {"type": "object", "properties": {"x": described}}, {"x": value}
    (tmp_path / "deep.json").write_text(json.dumps(described))
    table = {"name": "typed", "format": "delta", "typed": {"json": str(tmp_path / "deep.json")}}
    landing = made(tmp_path, {("orders", 0): json.dumps(value).encode()}, table)
    landing.land(1)
    tables.advance(spark, landing.region, "typed")
    assert [r["x"] for r in rows_of(spark, landing, "typed")] == [value["x"]]
