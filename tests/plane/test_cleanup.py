"""Everything that a region writes has an end: many cuts, and the sizes do not grow any more (SPEC T2)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from checkpoints_db import initialise, open_store
from crkafka_core.control import Store
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import (
    ROWS,
    Checkpoint,
    CheckpointStatus,
    DeadNumbers,
    Event,
    Lease,
    MergedOffset,
    Table,
    TableCommit,
)
from crkafka_core.plane import advance, cuts, life, reading, resets, retire
from crkafka_core.plane import tables as plane_tables
from crkafka_core.plane.transact import ControlPlane
from tests.plane.conftest import Kit
from tests.rigs.memory import MemoryStore
from tests.rigs.players import PARTITIONS, Player, new_region

NAME = "orders"
EVERY = 10
"""Cuts between two retirements."""


class Worker:
    """A region that cuts, resets now and then, is read, and has a table that is written; members are played."""

    def __init__(self, store: Store, history: int) -> None:
        life.declare(store, new_region(NAME, members_wanted=1, retain=5, history=history))
        self.plane = ControlPlane(store, NAME)
        self.plane.do(lambda tx: life.start(tx, by="me"))
        self.plane.do(lambda tx: plane_tables.declare(tx, "bronze", "delta", "/t/bronze"))
        self.player = Player(self.plane, f"{NAME}/0", random=random.Random(0))
        self.player.assign(1, PARTITIONS)
        self.run_to(Phase.RUNNING)
        self.cuts = 0

    def run_to(self, phase: Phase) -> None:
        while self.plane.read(lambda _, row: row.phase) is not phase:
            self.player.step()
            self.plane.do(advance.advance)

    def cut(self) -> None:
        self.cuts += 1
        while self.player.step() != "submitted":
            """Until records have flowed."""
        token = f"cut {self.cuts}"
        self.plane.do(lambda tx: cuts.open_cut(tx, token=token, cause="test"))
        if self.cuts % 15 == 0:  # a cut that is aborted, by a reset
            self.plane.do(lambda tx: resets.request(tx, cause="now and then", by="me", token=token))
        self.run_to(Phase.RUNNING)
        if self.cuts % 40 == 0:  # its process is gone, and another one starts
            self.player.crash()
            self.player.step()
            self.run_to(Phase.RUNNING)
        if self.cuts % 50 == 0:
            self.rewind()
        if self.cuts % EVERY == 0:
            self.rest()

    def rewind(self) -> None:
        """Leave two checkpoints behind; the table follows."""
        self.plane.do(
            lambda tx: resets.request(
                tx, cause="back", by="me", target=tx.line(tx.region().head)[-3], token=f"back {self.cuts}"
            )
        )

        def fenced(tx):  # type: ignore[no-untyped-def]
            table = plane_tables.of(tx, "bronze")
            tx.put(
                replace(table, fenced_epoch=table.rewind_epoch, acknowledged=min(table.acknowledged, tx.region().head))
            )

        self.plane.do(fenced)
        self.run_to(Phase.RUNNING)

    def rest(self) -> None:
        """What a table's writer, a reader and the driver do beside."""
        head = self.plane.read(lambda _, row: row.head)

        def written(tx):  # type: ignore[no-untyped-def]
            table = plane_tables.of(tx, "bronze")
            number = table.commits + 1
            tx.put(TableCommit(NAME, "bronze", number, "advance", table.acknowledged, head, "[]", f"t{number}", "DONE"))
            tx.put(replace(table, commits=number, acknowledged=head))

        self.plane.do(written)
        taken = self.plane.do(
            lambda tx: reading.take(tx, holder="me", token=f"read {self.cuts}", length=60, after=head, upto=head)
        )
        # It died, long ago.
        self.plane.do(lambda tx: tx.put(replace(taken.lease, until=tx.now() - 2 * retire.READER_OVER)))
        plan = self.plane.read(retire.plan)
        self.plane.do(lambda tx: retire.retire(tx, plan.retire))
        self.plane.do(retire.clean_up)

    def sizes(self) -> Counter[str]:
        found: Counter[str] = Counter()
        with self.plane.store.read(NAME) as reader:
            for row in ROWS:
                found[row.__name__] = reader.count(row)
        return found


def _grown(before: Counter[str], after: Counter[str]) -> dict[str, tuple[int, int]]:
    """What has more rows than before, but for what comes and goes between two retirements.

    Numbers that a rewind left behind are dead for ever (SPEC C8): a row of two numbers each.
    """
    return {
        name: (before[name], after[name])
        for name in after
        if after[name] > before[name] + 2 * EVERY and name != DeadNumbers.__name__
    }


def test_five_times_as_many_cuts_leave_as_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retire, "EVENTS", 100)
    monkeypatch.setattr(retire, "RESETS", 3)
    monkeypatch.setattr(retire, "ABORTED", 20)
    monkeypatch.setattr(retire, "COMMITS", 2)
    worker = Worker(MemoryStore(), history=20)
    for _ in range(60):
        worker.cut()
    before = worker.sizes()
    assert before["Event"] >= 100 and before["Checkpoint"] >= 20 and before["Segment"]
    for _ in range(240):
        worker.cut()
    assert _grown(before, worker.sizes()) == {}
    with worker.plane.store.read(NAME) as reader:
        assert reader.count(Lease, ("kind", "=", "reader")) == 0


def test_what_is_still_looked_at_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start that budgets count from, commits that are open, readers that live, and what a rewind left behind (SPEC T2, X6)."""
    for name in ("EVENTS", "RESETS", "ABORTED", "COMMITS"):
        monkeypatch.setattr(retire, name, 1)
    worker = Worker(MemoryStore(), history=5)
    plane = worker.plane
    started = plane.read(lambda _, row: row.started_epoch)
    for _ in range(30):
        worker.cut()
    head = plane.read(lambda _, row: row.head)
    plane.do(lambda tx: tx.put(TableCommit(NAME, "bronze", 1, "advance", 0, 1, "[]", "open", "OPEN")))
    plane.do(lambda tx: tx.put(replace(plane_tables.of(tx, "bronze"), commits=9)))
    plane.do(lambda tx: reading.take(tx, holder="me", token="lives", length=60, after=head - 1))
    left = plane.read(lambda reader, _: reader.get(Checkpoint, head - 1))
    assert left is not None
    for number in (1, 2):
        plane.do(lambda tx, n=number: tx.put(replace(left, id=n, status=CheckpointStatus.SUPERSEDED)))  # type: ignore[misc]
    plane.do(lambda tx: tx.put(MergedOffset(NAME, 1, "orders", 0, "id", 0, 1, 1, "")))
    plane.do(retire.clean_up)
    with plane.store.read(NAME) as reader:
        from crkafka_core.model.rows import Reset

        assert reader.get(Reset, started) is not None
        assert [c.status for c in reader.select(TableCommit)] == ["OPEN"]
        assert [lease.token for lease in reader.select(Lease)] == ["lives"]
        assert reader.get(Checkpoint, 1) is not None, "what is left of it is not deleted yet"
        assert reader.get(Checkpoint, 2) is None
        assert reader.count(Event) == 1


def _twice(worker: Worker, cuts: int, size: Callable[[], int]) -> None:
    """As many cuts again leave as many rows, and as many bytes."""
    for _ in range(cuts):
        worker.cut()
    rows, size_of_half = worker.sizes(), size()
    for _ in range(cuts):
        worker.cut()
    print(2 * cuts, "cuts:", dict(worker.sizes()), size(), "bytes; half as many:", dict(rows), size_of_half)
    assert _grown(rows, worker.sizes()) == {}
    assert size() <= 1.1 * size_of_half


@pytest.mark.soak
@pytest.mark.timeout(3_000)
def test_a_hundred_thousand_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the real rules over rows in memory; what is kept is a tenth of what ships, so that it is full long before the half."""
    keep_a_tenth(monkeypatch)
    _twice(Worker(MemoryStore(), history=100), 50_000, lambda: 0)


def keep_a_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EVENTS", "RESETS", "ABORTED", "COMMITS"):
        monkeypatch.setattr(retire, name, getattr(retire, name) // 10)


@pytest.mark.soak
@pytest.mark.timeout(3_000)
def test_the_file_of_four_thousand_cuts_is_that_of_two_thousand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite gives its pages to what comes next."""
    keep_a_tenth(monkeypatch)
    monkeypatch.setattr(retire, "RESETS", 100)
    url = f"sqlite:///{tmp_path}/control.db"
    initialise(url)
    _twice(Worker(open_store(url), history=100), 2_000, lambda: (tmp_path / "control.db").stat().st_size)


def _numbers(kit: Kit, kind: type[Checkpoint | TableCommit], name: str) -> list[int]:
    found: list[int] = kit.read(lambda reader, _: reader.column(kind, name, order=(name,)))
    return found


def test_the_row_of_an_aborted_cut_goes_after_so_many_numbers(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retire, "ABORTED", 2)
    kit.running()
    kit.open()
    kit.do(lambda tx: resets.request(tx, cause="aborts it", by="me"))
    kit.settle()
    kit.cut()
    kit.do(retire.clean_up)
    assert _numbers(kit, Checkpoint, "id") == [1, 2], "its note may be looked at"
    kit.cut()
    kit.do(retire.clean_up)
    assert _numbers(kit, Checkpoint, "id") == [2, 3]


@pytest.mark.parametrize(("shape", "left"), [("shop:latest", [2, 3, 4, 5]), ("", [5])])
def test_a_table_with_one_row_for_each_key_keeps_the_version_that_the_longest_rewind_goes_back_to(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, shape: str, left: list[int]
) -> None:
    """Checkpoint 1 is retired and 2 was left behind: a rewind to 3 goes back to what the table was at 1, and goes on from there."""
    monkeypatch.setattr(retire, "COMMITS", 1)
    kit.running()
    kit.cut(), kit.cut()
    kit.do(lambda tx: resets.request(tx, cause="back", by="me", target=1))
    kit.settle()
    kit.cut(), kit.cut()
    kit.do(lambda tx: tx.put(replace(kit.checkpoint(1), status=CheckpointStatus.RETIRED)))
    kit.do(lambda tx: tx.add(Table("orders", "latest", "delta", "/t/latest", commits=5, shape=shape)))
    for number, upto in enumerate((0, 1, 2, 5, 5), start=1):
        kit.do(
            lambda tx, n=number, to=upto: tx.add(  # type: ignore[misc]
                TableCommit("orders", "latest", n, "advance", 0, to, "[]", f"t{n}", "DONE", version=f"v{n}")
            )
        )
    kit.do(retire.clean_up)
    assert _numbers(kit, TableCommit, "number") == left
