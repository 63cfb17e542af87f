"""Tables of many topics are written few at once, and take what is small by one pass (SPEC K6)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from crkafka_core.lake import audit, erasing, road, together, writing
from crkafka_core.lake.delta.snapshot import DeltaSnapshot
from crkafka_core.lake.port import Stamp
from crkafka_core.lake.write import Write
from crkafka_core.model.errors import Refused, Stale
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Lease, TableCommit
from crkafka_core.plane import permits
from crkafka_core.plane import tables as plane
from crkafka_core.region.feeder import Feeder
from tests.lake.rig import Crash
from tests.lake.test_templates import MEANS, _dead, declare, declared, feed, made, there, verified
from tests.rigs.landing import Landing


def test_K6_many_tables_are_all_fed_and_few_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = {"json": str(tmp_path / "any.json")}
    (tmp_path / "any.json").write_text(json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}}))
    landing = made(tmp_path, topics=tuple(f"t{i:02}" for i in range(20)), typed=typed, on_bad_record="skip")
    landing.land(2)
    most = _counting(monkeypatch, road)
    feed(landing)
    assert 1 < most() <= 16
    assert _commits(landing) == [(f"t{i:02}", 1, 4) for i in range(20)]


def until(keeper: Feeder, landing: Landing, wanted: dict[str, int], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while declared(landing) != wanted:
        assert keeper.turn(0.05) and time.monotonic() < end, declared(landing)


def _of_checkpoint(landing: Landing, checkpoint: int) -> list[TableCommit]:
    return landing.region.plane.read(lambda reader, _: reader.select(TableCommit, ("upto", "=", checkpoint)))


def _commits(landing: Landing) -> list[tuple[str, int, int]]:
    commits = landing.region.plane.read(lambda reader, _: reader.select(TableCommit, ("status", "=", plane.DONE)))
    return sorted((commit.table, commit.upto, commit.rows) for commit in commits)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_K6_tables_of_many_topics_take_their_checkpoints_by_one_pass(tmp_path: Path, format: str) -> None:
    landing = made(tmp_path, topics=tuple(f"t{i:02}" for i in range(20)), format=format)
    landing.land(2)
    landing.land(3, quiet=["t03"])
    feed(landing)
    tokens = landing.region.plane.read(lambda reader, _: {c.token for c in reader.select(TableCommit)})
    assert len(tokens) == 1
    assert _commits(landing) == [(f"t{i:02}", 2, 4 if i == 3 else 10) for i in range(20)]
    assert there(landing, "t07", format) == {("t07", 1): 4, ("t07", 2): 6}
    assert there(landing, "t03", format) == {("t03", 1): 4}
    assert verified(landing) == []


def test_K6_a_table_that_fails_leaves_the_pass_and_comes_by_itself(tmp_path: Path) -> None:
    landing = made(tmp_path, topics=tuple(f"t{i}" for i in range(5)))
    landing.land(1)
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "t2").write_text("in the way")
    keeper = Feeder(landing.region, means=MEANS)
    others = {"t0": 1, "t1": 1, "t2": 0, "t3": 1, "t4": 1}
    until(keeper, landing, others)
    landing.land(1)
    until(keeper, landing, {**dict.fromkeys(others, 2), "t2": 0})
    assert len({commit.token for commit in _of_checkpoint(landing, 2) if commit.table != "t2"}) == 1
    (tmp_path / "lake" / "t2").unlink()
    keeper.abandon()
    feed(landing)
    assert there(landing, "t2") == {("t2", 1): 2, ("t2", 2): 2}
    assert verified(landing) == []


def test_K6_a_table_whose_storage_hangs_leaves_the_pass_and_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = made(tmp_path, topics=("a", "b", "c"))
    landing.land(1)
    declare(landing)
    answers, ended, run = threading.Event(), threading.Event(), Write.run

    def hangs(write: Write, decide: Any) -> str:
        if write.permit.table.name == "b":
            answers.wait(30.0)
        version = run(write, decide)
        if write.permit.table.name == "b":
            ended.set()
        return version

    monkeypatch.setattr(Write, "run", hangs)
    monkeypatch.setattr(together, "PATIENCE", 3.0)
    came = together.advance(landing.region, ["a", "b", "c"], means=MEANS)
    assert (set(came.done), set(came.left)) == ({"a", "c"}, {"b"})
    assert declared(landing) == {"a": 1, "b": 0, "c": 1}
    answers.set()
    assert ended.wait(30.0), "it comes all the same, late"
    feed(landing)
    assert there(landing, "b") == {("b", 1): 2}
    assert verified(landing) == []


def test_K6_who_dies_in_a_pass_leaves_what_is_committed_to_be_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = made(tmp_path, topics=tuple(f"t{i}" for i in range(4)))
    landing.land(1)
    declare(landing)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("crkafka_core.plane.permits.finish_commit", _dead)
        together.advance(landing.region, [f"t{i}" for i in range(4)], means=MEANS)
    assert set(declared(landing).values()) == {0}
    feed(landing)
    assert [there(landing, f"t{i}") for i in range(4)] == [{(f"t{i}", 1): 2} for i in range(4)]
    assert verified(landing) == []


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("typed", [False, True])
def test_K6_all_that_a_checkpoint_has_for_a_table_is_erased_before_its_commit_is_acknowledged(
    tmp_path: Path, typed: bool, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was left to write, and the table was acknowledged without a look at it. `late`: the commit came only after that."""
    (tmp_path / "a.json").write_text(json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}}))
    landing = made(tmp_path, topics=("a",), **({"typed": {"json": str(tmp_path / "{topic}.json")}} if typed else {}))
    landing.land(1)
    feed(landing)
    landing.land(1)

    def erased() -> None:
        landing.do(lambda tx: tx.put(*(replace(lease, until=0.0) for lease in tx.select(Lease))))
        done = erasing.erase(landing.region, {TP("a", 0): {1}, TP("a", 1): {1}}, means=MEANS)
        assert done == erasing.Erased({2: 2}, {})
        feed(landing)
        assert declared(landing)["a"] == 2

    commit = DeltaSnapshot.commit

    def struck(snapshot: Any, stamp: Stamp, *change: Any) -> Any:
        if stamp.table != "a":
            return commit(snapshot, stamp, *change)
        patch.setattr(DeltaSnapshot, "commit", commit)
        if late:
            erased()
            return commit(snapshot, stamp, *change)
        commit(snapshot, stamp, *change)
        raise Crash

    with monkeypatch.context() as patch, suppress(Crash, Refused, Stale):
        if not late:
            patch.setattr(writing, "give_up", lambda *_: None)
        patch.setattr(DeltaSnapshot, "commit", struck)
        road.advance(landing.region, "a", means=MEANS)
    if not late:
        erased()
        assert _numbers(landing, "a") == [1, 1]
    landing.land(1)
    feed(landing)
    assert _numbers(landing, "a") == [1, 1, 3, 3]
    assert verified(landing) == []


def test_K6_rows_are_counted_of_a_table_out_of_which_a_process_that_died_took_erased_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit was acknowledged with none, and the table as it should be was said to have too many."""
    landing = made(tmp_path, topics=("a",))
    landing.land(2)
    feed(landing)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(permits, "finish_commit", _dead)
        patch.setattr(writing, "give_up", lambda *_: None)
        erasing.erase(landing.region, {TP("a", 0): {1}}, means=MEANS)
    landing.do(lambda tx: tx.put(*(replace(lease, until=0.0) for lease in tx.select(Lease))))
    landing.land(1)
    feed(landing)
    assert _numbers(landing, "a") == [1, 1, 1, 2, 2]
    assert (verified(landing), audit.look(landing.region, "a").clean) == ([], True)


def _numbers(landing: Landing, name: str) -> list[int]:
    path = landing.region.plane.read(lambda reader, _: plane.of(reader, name).path)
    return sorted(DeltaTable(path).to_pyarrow_table(columns=["crkafka_checkpoint"]).column(0).to_pylist())


def _counting(monkeypatch: pytest.MonkeyPatch, module: Any) -> Callable[[], int]:
    """Commits under way at once."""
    now, most, lock, advance = [0], [0], threading.Lock(), module.advance

    def counted(*rest: Any, **keys: Any) -> Any:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        try:
            return advance(*rest, **keys)
        finally:
            with lock:
                now[0] -= 1

    monkeypatch.setattr(module, "advance", counted)
    return lambda: most[0]
