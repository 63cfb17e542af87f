"""Commits to declared tables: one write at a time, each numbered, void once overtaken or rewound (SPEC K6, X4)."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crkafka_core.control import Tx
from crkafka_core.model.errors import LeaseHeld, LeaseLost, NoSuchCheckpoint, NotRunning, Refused, Stale, WentBack
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, Initial, Table, TableCommit
from crkafka_core.plane import contents, epochs, events, halting, life, permits, restored, retire, states, tables
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
    assert [t.name for t in landing.region.plane.read(lambda r, region: epochs.unfenced(r))] == ["bronze"]
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
    (told,) = landing.region.plane.read(lambda reader, _: events.last(reader, 1))
    assert (told.kind, told.text) == ("table declared", "bronze: parquet at /t/other")
    assert allowed(landing, "b").commit.number == 2


def test_nobody_waits_for_who_wrote_a_table_that_is_undeclared(landing: Landing) -> None:
    landing.land(10)
    before = allowed(landing)
    landing.region.plane.do(lambda tx: tables.undeclare(tx, "bronze"))
    landing.region.plane.do(lambda tx: tables.declare(tx, "bronze", "parquet", "/t/other"))
    after = allowed(landing, "b")
    with pytest.raises(LeaseLost):
        finish(landing, before)
    assert finish(landing, after).acknowledged == 1


def test_a_table_is_behind_until_it_has_the_head_unless_it_is_left_to_others(landing: Landing) -> None:
    def late(*left: str) -> dict[str, int]:
        return landing.region.plane.read(lambda reader, region: tables.late(reader, region, left))

    assert late() == {}
    landing.land(10), landing.land(10)
    finish(landing, allowed(landing, limit=1))
    assert late() == {"bronze": 1} and late("bronze") == {}
    finish(landing, allowed(landing, "b"))
    assert late() == {}


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
    for shape, output, would in (
        ("shop.shapes:other", "", "with shape shop.shapes:other"),
        ("shop.shapes:typed", "dead", "with shape shop.shapes:typed, output dead"),
        ("", "", "without one"),
    ):
        refused = f"declared with shape shop.shapes:typed and holds such rows; {would} its rows would be others"
        with pytest.raises(Refused, match=re.escape(refused)):
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


def test_who_makes_a_fence_is_not_whoever_writes(landing: Landing) -> None:
    landing.land(10), landing.land(10)
    allowed(landing, "writer")

    def fencer() -> str:
        return landing.region.plane.read(lambda reader, _: tables.fencer(reader, tables.of(reader, "bronze")))

    landing.rewind(1)
    assert fencer() == ""
    landing.region.plane.do(lambda tx: permits.permit_fence(tx, "bronze", holder="host", token="f"))
    assert fencer() == "host"


@pytest.mark.parametrize("token", ["another", None])
def test_g10_a_number_that_was_given_again_is_not_taken_for_ones_own(landing: Landing, token: str | None) -> None:
    """A restored control plane knows nothing of a permit, or has given its number to somebody else, who is done."""
    landing.land(10)
    made = allowed(landing)

    def restore(tx: Tx) -> None:
        if token is None:
            tx.delete(TableCommit)
        else:
            tx.put(replace(made.commit, token=token, status=tables.DONE))

    landing.region.plane.do(restore)
    with pytest.raises(LeaseLost, match="Commit 1 to table bronze is unknown here"):
        finish(landing, made)


def test_a_permit_that_was_overtaken_is_not_given_again_to_who_had_it(landing: Landing, clock: Clock) -> None:
    """A rewrite would go on under an old number: what came between has been acknowledged above it."""
    landing.land(10)
    finish(landing, allowed(landing))
    assert allowed(landing, "slow", ids=[1]).commit.number == 2
    clock.now += 100
    finish(landing, allowed(landing, "quick", ids=[1]))
    assert allowed(landing, "slow", ids=[1]).commit.number == 4


def test_a_permit_is_given_up_once_and_only_by_who_has_it_and_before_it_is_done(landing: Landing) -> None:
    """A finish of unknown outcome may have been heard: what is acknowledged stays so."""

    def give_up(made: Permit) -> str:
        landing.region.plane.do(lambda tx: permits.fail_commit(tx, made, "why"))
        found = landing.region.plane.read(lambda reader, _: reader.get(TableCommit, "bronze", made.commit.number))
        return found.status if found is not None else "unknown"

    landing.land(10)
    first = allowed(landing)
    assert give_up(replace(first, commit=replace(first.commit, number=7))) == "unknown"
    assert give_up(replace(first, commit=replace(first.commit, token="another"))) == tables.OPEN
    assert give_up(first) == give_up(first) == tables.FAILED
    second = allowed(landing, "b")
    finish(landing, second)
    assert give_up(second) == tables.DONE
    told = landing.region.plane.read(lambda reader, _: events.since(reader, 0))
    assert [event.text for event in told if event.kind == "table commit failed"] == ["bronze: why"]


def test_a_permit_that_was_given_up_does_not_count_even_under_its_own_lease(landing: Landing) -> None:
    landing.land(10)
    made = allowed(landing)
    landing.region.plane.do(lambda tx: tx.put(replace(made.commit, status=tables.FAILED)))
    with pytest.raises(LeaseLost, match="overtaken"):
        finish(landing, made)


def test_x4_a_write_of_what_stays_is_void_too_when_a_rewind_came_meanwhile(landing: Landing) -> None:
    """Its checkpoint is live still, and its lease its own: the fence would not know the new version."""
    landing.land(10), landing.land(10), landing.land(10)
    made = allowed(landing, limit=1)
    landing.rewind(2)
    with pytest.raises(Stale, match="was rewound while commit 1 to bronze was written"):
        finish(landing, made)


def test_t2_a_rewrite_of_what_has_been_forgotten_meanwhile_is_void(landing: Landing) -> None:
    for _ in range(3):
        landing.land(10)
    finish(landing, allowed(landing))
    made = allowed(landing, "b", ids=[1])
    landing.retire(1, 2, history=1)
    with pytest.raises(Stale, match="Checkpoint 1 of region orders is not live any more; commit 2 to bronze is void"):
        finish(landing, made)


def test_a_lease_is_renewed_while_one_writes_and_while_one_makes_a_fence(landing: Landing, clock: Clock) -> None:
    landing.land(10), landing.land(10)
    writer = allowed(landing, "writer")
    clock.now += 5
    renewed = landing.region.plane.do(lambda tx: permits.renew(tx, writer))
    assert renewed.until == writer.lease.until + 5
    landing.rewind(1)
    with pytest.raises(LeaseLost, match="takes a fence first"):
        landing.region.plane.do(lambda tx: permits.renew(tx, writer))
    made = landing.region.plane.do(lambda tx: permits.permit_fence(tx, "bronze", holder="f", token="f"))
    assert made is not None
    clock.now += 5
    assert landing.region.plane.do(lambda tx: permits.renew(tx, made)).until == made.lease.until + 5


def test_a_fence_finished_again_after_an_unknown_outcome_changes_nothing(landing: Landing) -> None:
    landing.land(10), landing.land(10)
    landing.rewind(1)
    made = landing.region.plane.do(lambda tx: permits.permit_fence(tx, "bronze", holder="f", token="f"))
    assert made is not None
    once, again = (landing.region.plane.do(lambda tx: permits.finish_fence(tx, made, version="w")) for _ in range(2))
    assert once == again


def test_g10_only_a_fence_after_a_restored_backup_looks_for_what_sql_does_not_know(landing: Landing) -> None:
    def newer() -> bool:
        return landing.region.plane.read(lambda reader, _: permits.after_restored(reader, tables.of(reader, "bronze")))

    landing.land(10), landing.land(10)
    landing.rewind(1)
    assert not newer()
    fence(landing)
    landing.region.plane.do(lambda tx: halting.idle(tx, "test"))
    landing.region.plane.do(lambda tx: restored.rewind(tx, restored.Seen(), by="ann"))
    assert newer()
    fence(landing, "g")
    assert not newer()


def test_g10_the_writers_lease_is_given_to_nobody_while_the_region_is_stopped_for_a_restored_backup(
    landing: Landing,
) -> None:
    def take() -> str:
        return landing.region.plane.do(lambda tx: permits.take(tx, "bronze", holder="me", token="t")).holder

    assert take() == "me"
    landing.region.plane.do(lambda tx: restored.notice(tx, "older than what was seen", by="orders/0"))
    with pytest.raises(WentBack, match="older than what was seen"):
        take()


def test_g10_commits_go_on_above_a_number_that_the_table_has_seen(landing: Landing) -> None:
    landing.land(10)
    for seen in (7, 3):
        landing.region.plane.do(lambda tx, n=seen: permits.number_above(tx, "bronze", n))  # type: ignore[misc]
    assert allowed(landing).commit.number == 8


def test_a_table_is_advanced_to_checkpoints_that_there_are(landing: Landing) -> None:
    for _ in range(3):
        landing.land(10)
    landing.rewind(1)
    fence(landing)
    landing.land(10)
    for wrong, why in ((3, "superseded"), (9, "has no checkpoint 9")):
        with pytest.raises(NoSuchCheckpoint, match=why):
            permit(landing, upto=wrong)


def test_a7_of_a_table_of_a_shape_its_own_rows_are_told_where_a_commit_has_counted_them(landing: Landing) -> None:
    """A table of dead letters said that it had every record of its checkpoints."""

    def rows() -> dict[int, int]:
        return landing.region.plane.read(lambda reader, _: tables.rows_in(reader, table(landing), range(1, 6)))

    def written(rows: int, **told: dict[int, int]) -> None:
        made = allowed(landing)
        landing.region.plane.do(lambda tx: permits.finish_commit(tx, made, version="v", rows=rows, **told))

    for _ in range(4):
        landing.land(10)
    assert rows() == dict.fromkeys(range(1, 5), 20)
    landing.region.plane.do(lambda tx: tx.put(replace(table(landing), shape="shop:good")))
    assert rows() == {}
    written(70, counts={1: 19, 2: 18, 3: 17, 4: 16})
    landing.land(10)
    written(5)
    assert rows() == {1: 19, 2: 18, 3: 17, 4: 16, 5: 5}, "a commit of a single checkpoint tells by itself"
    made = allowed(landing, ids=(2, 3))
    landing.region.plane.do(lambda tx: permits.finish_commit(tx, made, version="v", rows=30))
    assert rows() == {1: 19, 4: 16, 5: 5}, "what was written again, and not counted apart"


def test_x8_what_was_written_is_told_and_where_records_were_bad(landing: Landing) -> None:
    landing.land(0), landing.land(10)
    made = allowed(landing)
    landing.region.plane.do(lambda tx: permits.finish_commit(tx, made, version="v", rows=19, bad=1))
    told = landing.region.plane.read(lambda reader, _: events.last(reader, 2))
    assert [(e.kind, e.text, e.checkpoint) for e in told] == [
        ("table advance", "bronze: 19 rows of 2 checkpoints", 2),
        (events.BAD, "bronze: 1 record of 2 checkpoints could not be decoded", 2),
    ]
    assert json.loads(told[1].data_json)["first"] == 2, "the empty checkpoint has no bad record"
    landing.rewind(1)
    fence(landing)
    fenced, all_fenced = landing.region.plane.read(lambda reader, _: events.last(reader, 2))
    assert (fenced.kind, fenced.text, fenced.checkpoint) == ("table fence", "bronze follows to 1", 1)
    assert (json.loads(fenced.data_json), all_fenced.kind) == ({"table": "bronze", "number": 2}, "fenced")


def _acknowledge(landing: Landing, number: int, holds: int) -> bool:
    """What the table itself shows."""
    return landing.region.plane.do(lambda tx: permits.acknowledge(tx, "bronze", number, holds=holds, version="found"))


def test_a_commit_that_the_table_shows_is_acknowledged_once_and_by_its_last_number_alone(
    landing: Landing, clock: Clock
) -> None:
    landing.land(10), landing.land(10)
    allowed(landing, limit=1)
    assert not _acknowledge(landing, 9, 1), "nobody permitted it"
    assert _acknowledge(landing, 1, 1)
    assert (table(landing).acknowledged, table(landing).version) == (1, "found")
    assert table(landing).rewind_epoch == 0, "all that it shows is live: it owes no fence"
    assert not _acknowledge(landing, 1, 1)
    clock.now += 100
    allowed(landing, "slow")
    clock.now += 100
    finish(landing, allowed(landing, "quick"))
    assert not _acknowledge(landing, 2, 2), "a later one is the table's last"
    assert table(landing).version == "v"


def test_x4_a_commit_that_the_table_shows_of_superseded_checkpoints_owes_a_fence(landing: Landing) -> None:
    landing.land(10), landing.land(10)
    allowed(landing)
    landing.region.plane.do(lambda tx: tables.undeclare(tx, "bronze"))
    landing.rewind(1)
    landing.region.plane.do(lambda tx: tables.declare(tx, "bronze", "parquet", "/t/bronze"))
    assert _acknowledge(landing, 1, 2)
    assert _landed(landing) == {}, (
        "what stays in it is all that is merged; a member asks for this in a cut, before the fence"
    )
    assert fence(landing).acknowledged == 1


def test_a_rewrite_that_the_table_shows_leaves_what_it_had_acknowledged(landing: Landing) -> None:
    landing.land(10), landing.land(10)
    finish(landing, allowed(landing))
    allowed(landing, "b", ids=[1])
    assert _acknowledge(landing, 2, 1)
    assert table(landing).acknowledged == 2


def test_an_advance_that_the_table_shows_counts_what_it_holds(landing: Landing) -> None:
    landing.land(10), landing.land(10)
    finish(landing, allowed(landing, limit=1))
    allowed(landing, "b")
    assert _acknowledge(landing, 2, 2)
    assert table(landing).acknowledged == 2


def test_rows_that_a_dead_writer_had_brought_in_are_not_counted_a_second_time(landing: Landing, clock: Clock) -> None:
    """The table shows the dead one's commit only after the next writer has been permitted to write the same."""
    landing.land(10)
    allowed(landing, "dead")
    clock.now += 100
    later = allowed(landing, "later")
    assert _acknowledge(landing, 1, 1)
    with pytest.raises(Stale, match="was advanced to 1 while commit 2 went on from 0"):
        finish(landing, later)


@pytest.mark.parametrize("written", [True, False])
def test_K6_a_table_of_adopted_files_gets_rows_of_another_shape_only_while_it_has_none(
    landing: Landing, written: bool
) -> None:
    """Rows of a replay are rows, though it acknowledges nothing."""
    landing.land(10)
    plane = landing.region.plane
    plane.do(lambda tx: tables.declare(tx, "silver", "delta", "/t/silver"))
    made = plane.do(lambda tx: permits.permit_commit(tx, "silver", holder="a", token="a", ids=[1]))
    assert made is not None
    if written:
        plane.do(lambda tx: permits.finish_commit(tx, made, version="1", rows=20))
        with pytest.raises(Refused, match="holds records as they are"):
            plane.do(lambda tx: tables.shape(tx, "silver"))
    else:
        plane.do(lambda tx: permits.fail_commit(tx, made, "boom"))
        assert plane.do(lambda tx: tables.shape(tx, "silver")).layout == ""


def test_rewrites_that_nobody_finished_are_known_until_the_next_one_is_done(landing: Landing) -> None:
    def unfinished() -> list[int]:
        return landing.region.plane.read(
            lambda reader, _: [c.number for c in tables.unfinished_rewrites(reader, tables.of(reader, "bronze"))]
        )

    landing.land(10)
    made = allowed(landing, ids=[1])
    landing.region.plane.do(lambda tx: permits.fail_commit(tx, made, "boom"))
    assert unfinished() == [1]
    finish(landing, allowed(landing, "b", ids=[1]))
    assert unfinished() == []


def _fed(landing: Landing) -> list[list[str]]:
    fed = landing.region.plane.read(lambda reader, row: tables.fed_by_spark(reader, row, ()))
    return [[t.name for t in family] for family in fed]


def test_K6_spark_is_fed_each_table_by_itself_and_those_of_one_shape_together(landing: Landing) -> None:
    for name, output in (("dead", "dead"), ("good", "")):
        landing.region.plane.do(
            lambda tx, n=name, o=output: tables.declare(tx, n, "delta", f"/t/{n}", shape="m:f", output=o)  # type: ignore[misc]
        )
    landing.region.plane.do(lambda tx: tables.declare(tx, "raw", "parquet", "/t/raw"))
    assert _fed(landing) == [["bronze"], ["good", "dead"], ["raw"]]


@pytest.mark.parametrize(("rows", "fed"), [(20, True), (7, False)])
def test_K6_a_table_whose_rows_a_program_shapes_is_left_to_it(landing: Landing, rows: int, fed: bool) -> None:
    landing.land(10)
    made = allowed(landing)
    landing.region.plane.do(lambda tx: permits.finish_commit(tx, made, version="v", rows=rows))
    assert (_fed(landing) == [["bronze"]]) == fed
    landing.region.plane.do(lambda tx: tx.delete(Checkpoint))
    assert _fed(landing) == [["bronze"]], "how many rows a forgotten checkpoint had is not known"


def test_K6_a_table_that_a_program_shaped_unsaid_may_be_declared_with_its_shape_and_a_raw_one_not(
    landing: Landing,
) -> None:
    def declare() -> Table:
        return landing.region.plane.do(lambda tx: tables.declare(tx, "bronze", "parquet", "/t/bronze", shape="m:f"))

    landing.land(10), landing.land(10)
    finish(landing, allowed(landing, limit=1))
    made = allowed(landing, "b")
    with pytest.raises(Refused, match="without a shape"):
        declare()  # a permit that is not done has written nothing
    landing.region.plane.do(lambda tx: permits.finish_commit(tx, made, version="v", rows=7))
    assert declare().shape == "m:f"
    (told,) = landing.region.plane.read(lambda reader, _: events.last(reader, 1))
    assert (told.kind, told.text) == ("table declared", "bronze: parquet at /t/bronze with shape m:f")


def test_K6_so_may_one_whose_first_commit_has_all_that_there_is(landing: Landing) -> None:
    landing.land(10)
    made = allowed(landing)
    landing.region.plane.do(lambda tx: permits.finish_commit(tx, made, version="v", rows=7))
    assert landing.region.plane.read(lambda reader, _: tables.shaped(reader, tables.of(reader, "bronze")))


def test_a_table_that_was_never_declared_is_refused_with_those_that_are(landing: Landing) -> None:
    with pytest.raises(Refused, match=r"Region orders declares no table 'silver'.*Declared: bronze"):
        landing.region.plane.do(lambda tx: permits.permit_commit(tx, "silver", holder="a", token="a"))


def test_x4_a_table_of_one_row_per_key_goes_back_to_the_version_that_held_the_line(landing: Landing) -> None:
    def state() -> tuple[int, str]:
        found = landing.region.plane.read(lambda r, region: states.state_at(r, region, tables.of(r, "bronze")))
        return found.checkpoint, found.version

    def write(version: str, **what: object) -> None:
        made = allowed(landing, version, **what)
        landing.region.plane.do(lambda tx: permits.finish_commit(tx, made, version=version, rows=20))

    for _ in range(4):
        landing.land(10)
    write("one", upto=2), write("two", upto=3), write("again", ids=[3])
    assert state() == (3, "again"), "as it is, with what was replayed"
    landing.rewind(2)
    assert state() == (2, "one")
    landing.rewind(1)
    assert state() == (0, ""), "no version held the first checkpoint alone"
    landing.region.plane.do(lambda tx: tx.delete(TableCommit, ("number", "=", 1)))
    with pytest.raises(Refused, match=r"version table bronze .* had at checkpoint 1 is not known.*undeclare bronze"):
        state()
