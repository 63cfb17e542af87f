"""Commits to declared tables: one write at a time, each numbered, void once overtaken or rewound (SPEC K6, X4)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crkafka_core.model.errors import LeaseHeld, LeaseLost, NoSuchCheckpoint, NotRunning, Refused, Stale
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, Initial, Table
from crkafka_core.plane import contents, life, permits, retire, tables
from crkafka_core.plane.permits import Permit
from crkafka_core.testing.landing import Landing
from crkafka_core.testing.memory import MemoryStore

if TYPE_CHECKING:
    from tests.plane.conftest import Clock


@pytest.fixture
def landing(tmp_path: Path, clock: Clock) -> Landing:
    made = Landing(MemoryStore(clock), tmp_path, partitions=2)
    made.region.plane.do(lambda tx: tables.declare(tx, "bronze", "parquet", "/t/bronze"))
    return made


def permit(landing: Landing, token: str = "a", **what: object) -> Permit | None:
    return landing.region.plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder=token, token=token, **what))  # type: ignore[arg-type]


def allowed(landing: Landing, token: str = "a", **what: object) -> Permit:
    made = permit(landing, token, **what)
    assert made is not None
    return made


def finish(landing: Landing, made: Permit) -> Table:
    return landing.region.plane.do(lambda tx: permits.finish_commit(tx, made, version="v", rows=made.plan.rows))


def fence(landing: Landing, token: str = "f") -> Table:
    def make() -> Permit | None:
        return landing.region.plane.do(lambda tx: permits.permit_fence(tx, "bronze", holder=token, token=token))

    made = make()
    assert made is not None
    return landing.region.plane.do(lambda tx: permits.finish_fence(tx, made, version="w"))


def table(landing: Landing) -> Table:
    return landing.region.plane.read(lambda reader, region: tables.of(reader, "bronze"))


def test_advancing_goes_on_from_what_is_acknowledged(landing: Landing) -> None:
    for _ in range(3):
        landing.land(10)
    first = allowed(landing, limit=2)
    assert first.plan.checkpoints == (1, 2)
    assert finish(landing, first).acknowledged == 2
    second = allowed(landing, "b")
    assert (second.plan.checkpoints, second.commit.number) == ((3,), 2)
    finish(landing, second)
    assert permit(landing, "c") is None


def test_an_acknowledged_checkpoint_is_what_retirement_may_pass(landing: Landing) -> None:
    for _ in range(3):
        landing.land(10)
    landing.region.plane.do(lambda tx: tx.set_region(limits_json='{"retain": 1}'))
    assert landing.region.plane.read(retire.plan).retire == ()
    finish(landing, allowed(landing, limit=1))
    assert landing.region.plane.read(retire.plan).retire == (1,)


def test_a_second_writer_is_refused_and_the_holder_named(landing: Landing) -> None:
    landing.land(10)
    allowed(landing, "first")
    with pytest.raises(LeaseHeld, match="held by first"):
        permit(landing, "second")


def test_the_same_token_finds_its_own_permit_again(landing: Landing) -> None:
    landing.land(10)
    assert allowed(landing).commit == allowed(landing).commit
    assert table(landing).commits == 1


def test_a_finish_repeated_after_an_unknown_outcome_changes_nothing(landing: Landing) -> None:
    landing.land(10)
    made = allowed(landing)
    assert finish(landing, made) == finish(landing, made)


def test_a_writer_that_was_overtaken_cannot_finish(landing: Landing, clock: Clock) -> None:
    landing.land(10)
    zombie = allowed(landing, "zombie")
    clock.now += 100
    later = allowed(landing, "later")
    assert [c.number for c in later.overtaken] == [1]
    with pytest.raises(LeaseLost):
        finish(landing, zombie)
    with pytest.raises(LeaseLost):
        landing.region.plane.do(lambda tx: permits.renew(tx, zombie))
    assert finish(landing, later).acknowledged == 1
    with pytest.raises(LeaseLost):
        finish(landing, zombie)
    assert table(landing).acknowledged == 1


def test_a_failed_commit_lets_the_next_writer_in_at_once(landing: Landing) -> None:
    landing.land(10)
    made = allowed(landing, "a")
    landing.region.plane.do(lambda tx: permits.fail_commit(tx, made, "boom"))
    assert allowed(landing, "b").commit.number == 2
    with pytest.raises(LeaseLost):
        finish(landing, made)


def test_after_a_rewind_only_a_fence_is_permitted_and_the_region_waits_for_it(landing: Landing) -> None:
    for _ in range(3):
        landing.land(10)
    finish(landing, allowed(landing))
    landing.rewind(1)
    assert landing.region.plane.read(lambda _, region: region.phase) is Phase.REWINDING
    assert [t.name for t in landing.region.plane.read(lambda r, region: tables.unfenced(r))] == ["bronze"]
    with pytest.raises(NotRunning, match="fence first"):
        permit(landing, "b")
    assert fence(landing).acknowledged == 1
    assert landing.region.plane.read(lambda _, region: region.phase) is Phase.RESETTING
    assert landing.region.plane.do(lambda tx: permits.permit_fence(tx, "bronze", holder="x", token="x")) is None


def test_a_fence_takes_the_right_away_from_a_writer_in_the_middle(landing: Landing) -> None:
    for _ in range(3):
        landing.land(10)
    writer = allowed(landing, "writer")
    landing.rewind(1)
    with pytest.raises(LeaseLost):
        landing.region.plane.do(lambda tx: permits.renew(tx, writer))
    with pytest.raises((LeaseLost, Stale)):
        finish(landing, writer)
    assert fence(landing).acknowledged == 0
    with pytest.raises(LeaseLost):
        finish(landing, writer)
    assert allowed(landing, "next").plan.checkpoints == (1,)


def test_two_fences_at_once_are_one(landing: Landing) -> None:
    landing.land(10), landing.land(10)
    landing.rewind(1)
    landing.region.plane.do(lambda tx: permits.permit_fence(tx, "bronze", holder="one", token="one"))
    with pytest.raises(LeaseHeld, match="held by one"):
        landing.region.plane.do(lambda tx: permits.permit_fence(tx, "bronze", holder="two", token="two"))


def test_a_rewind_during_a_fence_leaves_another_to_make(landing: Landing) -> None:
    for _ in range(3):
        landing.land(10)
    landing.rewind(2)
    made = landing.region.plane.do(lambda tx: permits.permit_fence(tx, "bronze", holder="f", token="f"))
    assert made is not None
    landing.rewind(1)
    landing.region.plane.do(lambda tx: permits.finish_fence(tx, made, version="w"))
    assert landing.region.plane.read(lambda _, region: region.phase) is Phase.REWINDING
    fence(landing, "g")
    assert landing.region.plane.read(lambda _, region: region.phase) is Phase.RESETTING


def test_acknowledged_follows_the_line_of_descent_and_not_the_numbers(landing: Landing) -> None:
    for _ in range(3):
        landing.land(10)
    finish(landing, allowed(landing))
    landing.rewind(1)
    fence(landing)
    landing.land(10)
    made = allowed(landing, "b")
    assert made.plan.checkpoints == (4,)
    finish(landing, made)
    assert landing.region.plane.read(lambda r, region: contents.live_in(r, region, tables.of(r, "bronze"))) == [
        1,
        4,
    ]
    assert landing.region.plane.read(lambda r, region: tables.superseded(r)) == [2, 3]


def test_a_rewrite_takes_live_checkpoints_only_and_acknowledges_nothing(landing: Landing) -> None:
    for _ in range(3):
        landing.land(10)
    finish(landing, allowed(landing, limit=2))
    made = allowed(landing, "b", ids=[1])
    assert finish(landing, made).acknowledged == 2
    counting = landing.region.plane.read(lambda r, region: contents.counting(r, region, tables.of(r, "bronze")))
    assert counting == {1: 2, 2: 1}
    landing.rewind(1)
    fence(landing)
    with pytest.raises(NoSuchCheckpoint, match="superseded"):
        permit(landing, "c", ids=[2])


def test_an_undeclared_table_holds_nothing_back_and_owes_no_fence(landing: Landing) -> None:
    landing.land(10), landing.land(10)
    finish(landing, allowed(landing))
    landing.rewind(1)
    landing.region.plane.do(lambda tx: tables.undeclare(tx, "bronze"))
    assert landing.region.plane.read(lambda _, region: region.phase) is Phase.RESETTING
    again = landing.region.plane.do(lambda tx: tables.declare(tx, "bronze", "parquet", "/t/other"))
    assert (again.commits, again.acknowledged) == (1, 0)
    assert allowed(landing, "b").commit.number == 2


def test_a_table_declared_otherwise_is_refused(landing: Landing) -> None:
    with pytest.raises(Refused, match="declared as parquet"):
        landing.region.plane.do(lambda tx: tables.declare(tx, "bronze", "delta", "/t/bronze"))


@pytest.mark.parametrize(
    ("format", "path", "shape", "adopts", "needs_spark"),
    [
        ("delta", "/t/b", "", True, False),
        ("delta", "hdfs://n/t/b", "", False, True),
        ("iceberg", "/t/b", "", True, True),
        ("iceberg", "s3://t/b", "", True, True),
        ("iceberg", "lake.raw.b", "", True, True),
        ("iceberg", "abfss://t/b", "", False, True),
        ("iceberg", "/t/b", "shop:typed", False, True),
        ("parquet", "/t/b", "", False, True),
    ],
)
def test_K6_raw_tables_with_a_log_of_files_adopt_and_all_but_delta_are_fed_by_spark(
    landing: Landing, format: str, path: str, shape: str, adopts: bool, needs_spark: bool
) -> None:
    made = landing.region.plane.do(lambda tx: tables.declare(tx, "other", format, path, shape=shape))
    fed = landing.region.plane.read(lambda reader, row: tables.fed_by_spark(reader, row, ()))
    assert (made.layout == tables.FILES, tables.needs_spark(made)) == (adopts, needs_spark)
    assert tables.fence_needs_spark(made) == (needs_spark and format != "parquet")
    assert (made.name in {t.name for family in fed for t in family}) == needs_spark


@pytest.mark.parametrize(("format", "path"), [("parquet", "/t/elsewhere"), ("delta", "/t/bronze")])
def test_K6_configuration_that_moves_a_table_is_refused_and_what_it_acknowledged_stands(
    landing: Landing, format: str, path: str
) -> None:
    landing.land(10)
    finish(landing, allowed(landing))
    store, before = landing.region.plane.store, landing.region.plane.read(lambda _, region: region)
    changed = replace(before, config_json='{"other": true}')
    with pytest.raises(Refused, match=r"declared as parquet at /t/bronze.*`crkafka undeclare bronze` first"):
        life.declare(store, changed, (Table("orders", "bronze", format, path),))
    assert (table(landing).path, table(landing).acknowledged) == ("/t/bronze", 1)
    assert landing.region.plane.read(lambda _, region: region) == before  # nothing of the new configuration is kept
    landing.region.plane.do(lambda tx: tables.undeclare(tx, "bronze"))
    life.declare(store, changed, (Table("orders", "bronze", format, path),))
    adopts = table(landing).layout == tables.FILES
    if adopts:  # it may hold what was superseded meanwhile
        fence(landing)
    made = allowed(landing, "b")
    assert (made.plan.checkpoints, made.commit.number) == (
        (1,),
        3 if adopts else 2,
    )  # from birth, by numbers that go on


def test_T2_rows_of_forgotten_checkpoints_belong_into_a_table_and_those_of_superseded_ones_do_not(
    landing: Landing,
) -> None:
    for _ in range(3):
        landing.land(10)
    finish(landing, allowed(landing))
    landing.rewind(2)
    fence(landing)
    for _ in range(3):
        landing.land(10)
    finish(landing, allowed(landing, "b"))
    landing.retire(1, 2, 3, 4, 5, history=1)

    def belongs(checkpoint: int) -> bool:
        return landing.region.plane.read(
            lambda r, region: contents.belonging(r, region, tables.of(r, "bronze"))(checkpoint)
        )

    assert landing.region.plane.read(lambda r, region: r.line(region.head)) == [5, 6]  # 1, 2, 4 are gone
    assert [i for i in range(1, 9) if belongs(i)] == [1, 2, 4, 5, 6]
    counting = landing.region.plane.read(lambda r, region: contents.counting(r, region, tables.of(r, "bronze")))
    assert counting == {1: 1, 2: 1, 4: 3, 5: 3, 6: 3}


def test_empty_checkpoints_are_acknowledged_too(landing: Landing) -> None:
    landing.land(0)
    made = allowed(landing)
    assert made.plan.filled == ()
    assert finish(landing, made).acknowledged == 1


def _landed(landing: Landing) -> dict[TP, int]:
    return landing.region.plane.read(lambda reader, row: contents.landed(reader, row, set(landing.tps)))


def test_s2_what_every_table_has_acknowledged_is_known_per_partition(landing: Landing) -> None:
    """For the commits in Kafka: should SQL be lost, a region that adopts starts there."""
    tp = landing.tps[0]
    assert _landed(landing) == {}, "nothing is merged"
    landing.land(10), landing.land(20), landing.land(30)
    assert _landed(landing)[tp] == 0
    finish(landing, allowed(landing, upto=2))
    assert _landed(landing)[tp] == 30
    finish(landing, allowed(landing))
    assert _landed(landing) == {}, "at the head"
    landing.region.plane.do(lambda tx: tables.declare(tx, "late", "parquet", "/t/late"))
    assert _landed(landing)[tp] == 0, "the slowest of them counts"
    landing.region.plane.do(lambda tx: tables.undeclare(tx, "late"))
    assert _landed(landing) == {}


def test_K6_a_table_with_rows_of_one_shape_takes_no_other(landing: Landing) -> None:
    def declare(shape: str, output: str = "") -> Table:
        return landing.region.plane.do(
            lambda tx: tables.declare(tx, "bronze", "parquet", "/t/bronze", shape=shape, output=output)
        )

    assert declare("shop.shapes:typed").shape == "shop.shapes:typed"  # nothing is in it yet
    assert declare("shop.shapes:typed").acknowledged == 0
    for shape, output in (("shop.shapes:other", ""), ("shop.shapes:typed", "dead"), ("", "")):
        with pytest.raises(Refused, match=r"declared with shape shop\.shapes:typed and holds such rows"):
            declare(shape, output)


def test_K6_a_table_of_records_as_they_are_takes_no_shape(landing: Landing) -> None:
    landing.land(4)
    permit = landing.region.plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="h", token="t"))
    assert permit is not None
    landing.region.plane.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=permit.plan.rows))
    with pytest.raises(Refused, match=r"declared without a shape.*undeclare"):
        landing.region.plane.do(
            lambda tx: tables.declare(tx, "bronze", "parquet", "/t/bronze", shape="shop.shapes:typed")
        )


def test_K6_tables_of_one_shape_are_siblings(landing: Landing) -> None:
    def declare(name: str, shape: str, output: str = "") -> Table:
        return landing.region.plane.do(
            lambda tx: tables.declare(tx, name, "delta", f"/t/{name}", shape=shape, output=output)
        )

    dead, good = declare("failed", "m:f", "dead"), declare("orders", "m:f")
    declare("others", "m:g")
    assert landing.region.plane.read(lambda reader, _: tables.siblings(reader, dead)) == [good, dead]
    raw = landing.region.plane.read(lambda reader, row: tables.of(reader, "bronze"))
    assert landing.region.plane.read(lambda reader, _: tables.siblings(reader, raw)) == [raw]


def test_two_tables_at_one_path_are_refused(landing: Landing) -> None:
    with pytest.raises(Refused, match="declared at one path: /t/bronze"):
        landing.region.plane.do(lambda tx: tables.declare(tx, "silver", "delta", "/t/bronze"))


def test_s2_of_a_partition_that_came_later_the_tables_have_nothing(landing: Landing) -> None:
    """Neither of one that SQL does not know: the commit in Kafka says nothing of it, and the others are not kept from it."""
    landing.land(10)
    plane, tp = landing.region.plane, landing.tps[0]
    later = TP(tp.topic, 7)
    asked = {tp, later, TP("unknown", 0)}
    assert plane.read(lambda reader, row: contents.landed(reader, row, asked)) == {tp: 0}
    plane.do(lambda tx: tx.add(replace(tx.select(Initial)[0], partition=later.partition, offset=40)))
    assert plane.read(lambda reader, row: contents.landed(reader, row, asked)) == {tp: 0, later: 40}


def test_x4_an_audit_counts_the_rows_that_are_live_and_not_those_left_behind(landing: Landing) -> None:
    for rows in (10, 20, 30):
        landing.land(rows)
    finish(landing, allowed(landing))
    landing.rewind(1)
    fence(landing)
    landing.land(40)
    finish(landing, allowed(landing, "b"))
    counted = landing.region.plane.read(lambda r, region: contents.counted_in(r, region, tables.of(r, "bronze")))
    assert counted == {1: 20, 4: 80}


def test_t2_what_lies_in_a_table_is_told_of_kept_and_of_archived_checkpoints(landing: Landing) -> None:
    """A kept one by its segments, an archived one as a whole; of those that nobody asked for, nothing."""
    for _ in range(5):
        landing.land(10)
    finish(landing, allowed(landing))
    landing.retire(1, 2, 3)

    def found(*ids: int) -> list[tuple[int, int, bool, list[int]]]:
        pieces = landing.region.plane.read(lambda reader, row: contents.pieces(reader, row, ids))
        return sorted((p.checkpoint, p.rows, p.segment is not None, [r.start for r in p.ranges]) for p in pieces)

    archived, kept = [(1, 20, False, [0, 0]), (3, 20, False, [20, 20])], [(5, 10, True, [40]), (5, 10, True, [40])]
    assert found(1, 3, 5) == archived + kept
    assert found(5) == kept
    assert found() == []


def test_t2_whether_the_beginning_of_the_line_is_forgotten(landing: Landing) -> None:
    plane = landing.region.plane
    assert plane.read(contents.forgotten) is False, "nothing is merged"
    landing.land(10), landing.land(10)
    assert plane.read(contents.forgotten) is False
    plane.do(lambda tx: tx.delete(Checkpoint, ("id", "=", 1)))
    assert plane.read(contents.forgotten) is True
