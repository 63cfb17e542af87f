"""Typed tables without a line of code: columns by a schema that goes on, bad records as declared, none lost or doubled (SPEC K6)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from crkafka_core.model.errors import Refused
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Checkpoint
from crkafka_core.plane import tables as plane
from crkafka_core.spark import tables
from crkafka_core.verify import in_tables
from crkafka_core.verify.verdict import Findings
from tests.rigs.landing import Landing, records
from tests.rigs.memory import MemoryStore


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
def test_K6_what_others_did_to_rows_of_older_checkpoints_is_undone_though_their_number_is_right(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of a table by key, in the dead letters beside it, which are never written again."""
    file = tmp_path / "order.json"
    file.write_text(json.dumps(schema(id="integer")))
    values = {("orders", o): b'{"id": %d}' % o if o % 2 else b"bad" for o in range(12)}
    table = {"name": "typed", "format": "delta", "typed": {"json": str(file)}, "mode": "upsert"}
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
    said = "What others did to table typed_dead cannot be undone.*`crkafka tables undeclare typed`"
    with pytest.raises(Refused, match=said):
        tables.mend(spark, landing.region, "typed_dead")


@pytest.mark.spark
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_K6_fields_may_have_names_that_are_syntax_to_spark(spark: SparkSession, tmp_path: Path, format: str) -> None:
    file, names = tmp_path / "order.json", ["k8s.io/name", "@timestamp", "it`s", "value", "Topic", "select"]
    file.write_text(json.dumps(schema(id="integer")))
    values = {("orders", o): json.dumps(dict.fromkeys([*names, "late.too"], o)).encode() for o in range(4)}
    table = {"name": "typed", "typed": {"json": str(file)}, "format": format, "mode": "upsert"}
    landing = made(tmp_path, values, table, keys=lambda o: b"%d" % o)
    for there in (names, [*names, "late.too"]):
        file.write_text(json.dumps(schema(**dict.fromkeys(there, "integer")) | {"required": []}))
        landing.land(2)
        tables.advance(spark, landing.region, "typed")
    found = rows_of(spark, landing, "typed")
    assert [[r[n] for n in names] for r in found] == [[o] * len(names) for o in range(4)]
    assert [r["late.too"] for r in found] == [None, None, 2, 3]


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
def test_K6_what_was_written_of_other_topics_than_are_named_today_stays_and_is_no_damage(
    spark: SparkSession, tmp_path: Path
) -> None:
    """`mend` took the rows of a topic out that the region does not read any more, and `verify` told of them."""
    landing = of_two_topics(tmp_path, {"name": "typed", "topics": ["orders", "refunds"], "mode": "upsert"})
    landing.land(2)
    tables.advance(spark, landing.region, "typed")
    found = {name: sorted(map(str, rows_of(spark, landing, name))) for name in ("typed", "typed_dead")}
    assert sum(map(len, found.values())) == 4
    changed = tuple(t.model_copy(update={"topics": ("orders",)}) for t in landing.config.tables)
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
