"""The views for people answer, on both databases, and the queries of the documentation run as they are printed."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from checkpoints_db import SqlStore, open_store
from checkpoints_db.views import VIEWS
from crkafka_core.control import Tx
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Member, Reset
from crkafka_core.plane import advance, alarms, cuts, lateness, life, resets, tables
from crkafka_core.plane.transact import ControlPlane
from tests.rigs.players import PARTITIONS, Player, new_region

NAME = "orders"
_FORMAT = Path(__file__).parents[2] / "docs" / "format.md"


@pytest.fixture
def store(new_url: str) -> Iterator[SqlStore]:
    """A region with two checkpoints and an open cut to which one of two members has contributed."""
    store = open_store(new_url)
    life.declare(store, new_region(NAME, members_wanted=2))
    plane = ControlPlane(store, NAME)
    plane.do(lambda tx: life.start(tx, by="me"))
    plane.do(lambda tx: tables.declare(tx, "bronze", "delta", "path"))
    players = [Player(plane, f"{NAME}/{n}", random=random.Random(n)) for n in range(2)]
    players[0].assign(1, PARTITIONS[:3])
    players[1].assign(1, PARTITIONS[3:])
    for token in ("a", "b", "c"):
        for _ in range(4):
            for player in players:
                player.step()
            plane.do(advance.advance)
        plane.do(lambda tx, token=token: cuts.open_cut(tx, token=token, cause="test"))  # type: ignore[misc]
        players[0].step()
        if token != "c":
            players[1].step()
            plane.do(advance.advance)
    report = '{"partitions": {"orders": {"0": [900, 1000]}}, "other": 1}'
    member = plane.read(lambda reader, row: reader.get(Member, f"{NAME}/0"))
    assert member is not None
    plane.do(lambda tx: tx.put(replace(member, metrics_json=report)))
    yield store
    store.close()


def _rows(store: SqlStore, sql: str) -> list[dict[str, Any]]:
    with store.engine.connect() as connection:
        return [dict(row._mapping) for row in connection.exec_driver_sql(sql)]


def test_every_view_answers(store: SqlStore) -> None:
    for view in VIEWS:
        assert _rows(store, f"SELECT * FROM {view}"), view


def test_what_the_views_say(store: SqlStore) -> None:
    row = _rows(store, "SELECT * FROM v_regions")[0]
    assert (row["phase"], row["last_checkpoint"], row["open_checkpoint"], row["members_live"]) == ("CUTTING", 2, 3, 2)
    done = _rows(store, "SELECT * FROM v_checkpoints ORDER BY checkpoint")
    assert [(c["status"], bool(c["is_head"]), c["merged"] is None) for c in done] == [
        ("MERGED", False, False),
        ("MERGED", True, False),
        ("OPEN", False, True),
    ]
    waits = _rows(store, "SELECT member FROM v_contributions WHERE status = 'OPEN' AND NOT contributed")
    assert waits == [{"member": f"{NAME}/1"}]
    assert len(_rows(store, "SELECT * FROM v_offsets WHERE is_head")) == len(PARTITIONS)
    assert _rows(store, "SELECT behind FROM v_tables") == [{"behind": 2}]


def test_x6_a_region_that_merges_nothing_for_three_periods_is_stalled(store: SqlStore) -> None:
    plane = ControlPlane(store, NAME)
    assert not _rows(store, "SELECT no_merge FROM v_regions")[0]["no_merge"]
    for last_cut, begun, stalled in ((1.0, 1.0, True), (1.0, None, False), (None, 1.0, False)):
        plane.do(lambda tx, at=last_cut: tx.set_region(period=60.0, last_cut_at=at or tx.now()))  # type: ignore[misc]
        plane.do(
            lambda tx, at=begun: tx.put(replace(tx.get(Reset, tx.region().started_epoch), at=at or tx.now()))  # type: ignore
        )
        assert bool(_rows(store, "SELECT no_merge FROM v_regions")[0]["no_merge"]) is stalled


def test_x6_a_rewind_that_a_person_asked_for_begins_the_wait_anew(store: SqlStore) -> None:
    plane = ControlPlane(store, NAME)
    plane.do(lambda tx: resets.request(tx, cause="back", by="me", target=1))
    long_ago: Any = {"period": 60.0, "last_cut_at": 1.0}
    plane.do(lambda tx: tx.put(replace(tx.get(Reset, tx.region().started_epoch), at=1.0)))  # type: ignore[type-var]
    for phase, reset_at, stalled in (
        (Phase.REWINDING, 1.0, False),
        (Phase.RUNNING, 1.0, True),
        (Phase.RUNNING, None, False),
    ):
        plane.do(lambda tx, p=phase, at=reset_at: tx.set_region(phase=p, reset_at=at or tx.now(), **long_ago))  # type: ignore[misc]
        assert bool(_rows(store, "SELECT no_merge FROM v_regions")[0]["no_merge"]) is stalled
        assert bool(plane.read(alarms.no_merge)) is stalled


LATENESS: list[tuple[str, float, list[float | None], bool, bool]] = [
    ("RUNNING", 9999, [], False, False),
    ("RUNNING", 0, [110, 9, 9], False, False),
    ("RUNNING", 0, [130], False, True),
    ("RUNNING", 0, [None, 110], False, False),
    ("RUNNING", 0, [None], False, False),
    ("IDLE", 9999, [9999], True, False),
    ("STOPPED", 0, [130], False, True),
    ("REWINDING", 130, [], True, True),
    ("REWINDING", 110, [], True, False),
    ("REWINDING", 130, [], False, False),
    ("RUNNING", 130, [], True, False),
]
"""Phase and its seconds; seconds since each checkpoint was merged (None: without rows); whether a fence is owed; whether that is late."""
LEFT: list[tuple[str, float, list[float | None], bool, bool]] = [
    ("RUNNING", 0, [9999], False, False),
    ("REWINDING", 130, [], True, True),
]
"""The same, of a table that is left to others."""


def test_x8_the_view_of_tables_says_late_where_the_alarm_does(new_url: str) -> None:
    store = open_store(new_url)
    for number, (*given, late) in enumerate([*LATENESS, *LEFT]):
        name = f"case{number}"
        declared = [{"name": "bronze", "kept_fresh": number < len(LATENESS)}, {"name": "silver", "kept_fresh": False}]
        config = json.dumps({"tables": declared})
        life.declare(store, replace(new_region(name, members_wanted=1), config_json=config))
        plane = ControlPlane(store, name)
        plane.do(partial(_prepare, *given))
        (told,) = _rows(store, f"SELECT late, behind, waiting_since FROM v_tables WHERE region = '{name}'")
        (lag,) = plane.read(lateness.lags)
        assert told["late"] is not None
        assert (bool(told["late"]), bool(lag.late)) == (late, late), (number, lag)
        assert (told["behind"], told["waiting_since"] is not None) == (lag.waiting, lag.waiting > 0)
    store.close()


def _prepare(phase: str, seconds: float, merged: list[float | None], owes: bool, tx: Tx) -> None:
    name, now = tx.region().name, tx.now()
    tx.set_region(phase=Phase(phase), phase_since=now - seconds)
    tx.put(replace(tables.declare(tx, "bronze", "delta", "path"), acknowledged=1, rewind_epoch=int(owes)))
    for i, ago in enumerate(merged, 2):
        status = CheckpointStatus.RETIRED if i == 2 else CheckpointStatus.MERGED
        made = Checkpoint(name, i, i - 1, 1, status, opened_at=1.0, rows=int(ago is not None))
        tx.put(replace(made, merged_at=now - (ago or 9999)))


def test_lag_is_what_the_members_reported(store: SqlStore) -> None:
    merged = {
        (r["topic"], r["partition"]): r["to_offset"] for r in _rows(store, "SELECT * FROM v_offsets WHERE is_head")
    }
    lag = {(r["topic"], r["partition"]): r for r in _rows(store, "SELECT * FROM v_lag")}
    assert len(lag) == len(PARTITIONS)
    told = lag["orders", 0]
    assert (told["position"], told["end_offset"], told["lag"]) == (900, 1000, 1000 - merged["orders", 0])
    assert lag["orders", 1]["lag"] is None


def test_the_queries_of_the_documentation_run(store: SqlStore) -> None:
    block = re.search(r"```sql\n(.*?)```", _FORMAT.read_text(), re.DOTALL)
    assert block is not None
    queries = [q.strip() for q in block.group(1).split(";") if q.strip()]
    assert len(queries) == 6
    for query in queries:
        _rows(store, query.replace("%", "%%"))


def test_the_documentation_names_every_table_and_view(store: SqlStore) -> None:
    from checkpoints_db.tables import METADATA

    text = _FORMAT.read_text()
    for name in (*VIEWS, *(table.name for table in METADATA.sorted_tables)):
        assert f"`{name}`" in text, name
