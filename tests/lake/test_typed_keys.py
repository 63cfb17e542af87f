"""Typed tables with one row for each of Kafka's keys, and their dead letters: by the one road, without Spark (SPEC K6)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from crkafka_core.lake import audit, erasing, road
from crkafka_core.model.errors import Refused
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Checkpoint
from crkafka_core.plane import tables as plane
from crkafka_core.verify import in_tables
from crkafka_core.verify.verdict import Findings
from tests.lake.test_typed import advance, made, of_two_topics, rows_of, schema
from tests.rigs.landing import Landing


def mend(region: Any, name: str) -> None:
    if not (found := audit.look(region, name)).clean:
        road.mend(region, name, found)


def test_K6_a_record_without_a_key_is_a_bad_one_of_a_table_with_one_row_for_each(tmp_path: Path) -> None:
    """It kept the table where it was for ever: nobody can take it out of Kafka, and a typed table has no shape to leave it out."""
    file = tmp_path / "order.json"
    file.write_text(json.dumps(schema(id="integer")))
    values = {("orders", o): b'{"id": %d}' % o for o in range(6)} | {("orders", 2): None, ("orders", 3): b"bad"}
    table = {"name": "now", "format": "delta", "mode": "upsert", "typed": {"json": str(file)}}
    landing = made(tmp_path, values, table, keys=lambda o: None if o in (1, 2, 3) else b"%d" % (o % 2))
    landing.land(6)
    done = advance(landing.region, "now")
    assert done is not None and (done.rows, done.bad) == (3, 3)
    assert [r["id"] for r in rows_of(landing, "now")] == [4, 5]
    reasons = [(r["offset"], r["reason"].partition(",")[0]) for r in rows_of(landing, "now_dead")]
    assert reasons == [(1, "the record has no key"), (2, "the record has no key"), (3, "no JSON")]
    found = Findings()
    assert in_tables.look(landing.region, found) and not found.kept


def test_K6_what_others_did_to_rows_of_older_checkpoints_is_undone_though_their_number_is_right(tmp_path: Path) -> None:
    """Of a table by key, in the dead letters beside it, which are never written again."""
    file = tmp_path / "order.json"
    file.write_text(json.dumps(schema(id="integer")))
    values = {("orders", o): b'{"id": %d}' % o if o % 2 else b"bad" for o in range(12)}
    table = {"name": "typed", "format": "delta", "typed": {"json": str(file)}, "mode": "upsert"}
    landing = made(tmp_path, values, table, keys=lambda o: b"%d" % o)
    for _ in range(2):
        landing.land(4)
        advance(landing.region, "typed")
    for name, column in (("typed", '"kafka_offset"'), ("typed_dead", '"offset"')):
        before, there = rows_of(landing, name), DeltaTable(str(tmp_path / name))
        there.update(updates={column: f"{column} + 100"}, predicate=f"{column} < 4")
        assert audit.look(landing.region, name).foreign == 1
        mend(landing.region, name)
        assert rows_of(landing, name) == before
        there.update_incremental()
        there.delete(f"{column} < 4")
        mend(landing.region, name)
        assert rows_of(landing, name) == before
        assert audit.look(landing.region, name).clean
    DeltaTable(str(tmp_path / "typed_dead")).delete('"offset" < 4')
    DeltaTable(str(tmp_path / "typed_dead")).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    mend(landing.region, "typed_dead")
    assert rows_of(landing, "typed_dead") == before


def test_K6_dead_letters_that_join_a_table_by_key_too_late_are_named_and_let_go(tmp_path: Path) -> None:
    """Only the table itself was named, which was to be made anew; and the old configuration alone did not bring it back."""
    landing = of_two_topics(tmp_path, {"name": "typed", "mode": "upsert", "on_bad_record": "skip"})
    landing.land(1)
    advance(landing.region, "typed")
    (tmp_path / "later").mkdir()
    later = of_two_topics(tmp_path / "later", {"name": "typed", "mode": "upsert"}).config.tables
    for table in (dead := landing.config.tables[0].model_copy(update={"on_bad_record": None}), later[1]):
        landing.declare(table.model_copy(update={"path": dead.path.replace("typed", table.name)}))
    region = replace(landing.region, config=landing.config.model_copy(update={"tables": (dead, later[1])}))
    landing.land(1)
    with pytest.raises(
        Refused, match="`crkafka tables undeclare typed_dead`, which joins it too late, and what the configuration was"
    ):
        advance(region, "typed")
    region.plane.do(lambda tx: plane.undeclare(tx, "typed_dead"))
    done = advance(landing.region, "typed")
    assert done is not None and done.acknowledged == 2


def test_T2_a_table_by_key_does_not_begin_behind_what_is_forgotten(tmp_path: Path) -> None:
    """At a new path it would lose the rows of keys that no record has had since; where it lies it has them."""
    landing = of_two_topics(
        tmp_path, {"name": "typed", "mode": "upsert", "on_bad_record": "skip", "topics": ["orders"]}
    )
    landing.land(1)
    advance(landing.region, "typed")
    landing.land(1)
    landing.region.plane.do(lambda tx: tx.delete(Checkpoint, ("id", "=", 1)))
    declared = landing.config.tables[0]
    for path in (f"{declared.path}-new", declared.path):
        landing.region.plane.do(lambda tx: plane.undeclare(tx, "typed"))
        landing.declare(declared.model_copy(update={"path": path}))
        if path != declared.path:
            with pytest.raises(
                Refused, match="what led to checkpoint 1 is not archived any more: rows of keys that came before"
            ):
                advance(landing.region, "typed")
    done = advance(landing.region, "typed")
    assert done is not None and done.acknowledged == 2


def places(landing: Landing) -> dict[str, list[int]]:
    names = {"now": "kafka_offset", "now_dead": "offset"}
    return {name: [row[column] for row in rows_of(landing, name)] for name, column in names.items()}


def test_dead_letters_leave_beside_a_table_by_key_and_verify_knows_what_was_erased(tmp_path: Path) -> None:
    """The table by key has not got the second checkpoint yet, and takes it without them."""
    (tmp_path / "order.json").write_text(json.dumps(schema(id="integer")))
    values: dict[Any, bytes] = {("orders", o): b'{"id": %d}' % o if o % 5 else b"no JSON" for o in range(20)}
    declared = {"name": "now", "format": "delta", "mode": "upsert", "typed": {"json": str(tmp_path / "order.json")}}
    landing = made(tmp_path, values, declared, keys=lambda o: b"%d" % (o % 3))
    region = landing.region
    landing.land(6)
    advance(region, "now")
    landing.land(5)
    done = erasing.erase(region, {TP("orders", 0): {5, 9, 10}})
    assert (done.checkpoints, dict(done.left)) == ({1: 1, 2: 2}, {"now": erasing.BY_KEY})
    assert places(landing)["now_dead"] == [0]
    advance(region, "now")
    assert places(landing) == {"now": [6, 7, 8], "now_dead": [0]}
    found = Findings()
    assert in_tables.look(region, found) and not found.kept and not found.notes
    assert all(audit.look(region, name).clean for name in ("now", "now_dead"))
    landing.land(9)
    advance(region, "now")
    assert places(landing) == {"now": [17, 18, 19], "now_dead": [0, 15]}
