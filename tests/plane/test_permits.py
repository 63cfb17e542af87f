"""Permits to commit to a table: one write at a time, each numbered, void once overtaken or rewound (SPEC K6, X4)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from crkafka_core.control import Tx
from crkafka_core.model.errors import LeaseHeld, LeaseLost, NoSuchCheckpoint, Refused, Stale, WentBack
from crkafka_core.model.rows import TableCommit
from crkafka_core.plane import contents, events, permits, restored, tables
from crkafka_core.plane.permits import Permit
from tests.plane.bronze import allowed, fence, finish, permit, table
from tests.plane.conftest import Clock
from tests.rigs.landing import Landing


def test_advancing_goes_on_from_what_is_acknowledged(landing: Landing) -> None:
    landing.land(10, times=3)
    first = allowed(landing, limit=2)
    assert first.plan.checkpoints == (1, 2)
    assert finish(landing, first).acknowledged == 2
    second = allowed(landing, "b")
    assert (second.plan.checkpoints, second.commit.number) == ((3,), 2)
    finish(landing, second)
    assert permit(landing, "c") is None


def test_a_second_writer_is_refused_and_the_holder_named(landing: Landing) -> None:
    landing.land(10)
    allowed(landing, "first")
    with pytest.raises(LeaseHeld, match="held by first"):
        permit(landing, "second")


def test_K6_tables_of_one_pass_find_their_permits_again_of_the_same_checkpoints(landing: Landing) -> None:
    """The answer to the commit of the permits was lost, and the store tries their transaction again, behind the next merge."""

    def ask(tx: Tx) -> list[Permit]:
        return permits.permit_together(tx, ["bronze"], holder="a", token="a", limit=9, most=1 << 30)

    landing.land(10)
    (first,) = landing.do(ask)
    landing.land(10)
    (again,) = landing.do(ask)
    assert again.commit == first.commit and again.plan.checkpoints == first.plan.checkpoints == (1,)


def test_a_finish_repeated_after_an_unknown_outcome_changes_nothing(landing: Landing) -> None:
    landing.land(10)
    made = allowed(landing)
    assert finish(landing, made) == finish(landing, made)


def test_a_writer_that_was_overtaken_cannot_finish(landing: Landing, clock: Clock) -> None:
    landing.land(10)
    zombie = allowed(landing, "zombie")
    clock.now += 100
    later = allowed(landing, "later")
    assert later.commit.number == 2
    with pytest.raises(LeaseLost):
        finish(landing, zombie)
    with pytest.raises(LeaseLost):
        landing.do(lambda tx: permits.renew(tx, zombie))
    assert finish(landing, later).acknowledged == 1
    with pytest.raises(LeaseLost):
        finish(landing, zombie)
    assert table(landing).acknowledged == 1


def test_acknowledged_follows_the_line_of_descent_and_not_the_numbers(landing: Landing) -> None:
    landing.land(10, times=3)
    finish(landing, allowed(landing))
    landing.rewind(1)
    fence(landing)
    landing.land(10)
    made = allowed(landing, "b")
    assert made.plan.checkpoints == (4,)
    finish(landing, made)
    assert landing.read(lambda r, region: contents.live_in(r, region, tables.of(r, "bronze"))) == [1, 4]


def test_a_rewrite_takes_live_checkpoints_only_and_acknowledges_nothing(landing: Landing) -> None:
    landing.land(10, times=3)
    finish(landing, allowed(landing, limit=2))
    made = allowed(landing, "b", ids=[1])
    assert finish(landing, made).acknowledged == 2
    counting = landing.read(lambda r, region: contents.counting(r, region, tables.of(r, "bronze")))
    assert counting == {1: 2, 2: 1}
    landing.rewind(1)
    fence(landing)
    with pytest.raises(NoSuchCheckpoint, match="superseded"):
        permit(landing, "c", ids=[2])


def test_nobody_waits_for_who_wrote_a_table_that_is_undeclared(landing: Landing) -> None:
    landing.land(10)
    before = allowed(landing)
    landing.do(lambda tx: tables.undeclare(tx, "bronze"))
    landing.do(lambda tx: tables.declare(tx, "bronze", "delta", "lake.shop.other"))
    after = allowed(landing, "b")
    with pytest.raises(LeaseLost):
        finish(landing, before)
    assert finish(landing, after).acknowledged == 1


def test_empty_checkpoints_are_acknowledged_too(landing: Landing) -> None:
    landing.land(0)
    made = allowed(landing)
    assert made.plan.filled == ()
    assert finish(landing, made).acknowledged == 1


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

    landing.do(restore)
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
        landing.do(lambda tx: permits.fail_commit(tx, made, "why"))
        found = landing.read(lambda reader, _: reader.get(TableCommit, "bronze", made.commit.number))
        return found.status if found is not None else "unknown"

    landing.land(10)
    first = allowed(landing)
    assert give_up(replace(first, commit=replace(first.commit, number=7))) == "unknown"
    assert give_up(replace(first, commit=replace(first.commit, token="another"))) == tables.OPEN
    assert give_up(first) == give_up(first) == tables.FAILED
    second = allowed(landing, "b")
    finish(landing, second)
    assert give_up(second) == tables.DONE
    told = landing.read(lambda reader, _: events.since(reader, 0))
    assert [event.text for event in told if event.kind == "table commit failed"] == ["bronze: why"]


def test_a_permit_that_was_given_up_does_not_count_even_under_its_own_lease(landing: Landing) -> None:
    landing.land(10)
    made = allowed(landing)
    landing.do(lambda tx: tx.put(replace(made.commit, status=tables.FAILED)))
    with pytest.raises(LeaseLost, match="overtaken"):
        finish(landing, made)


def test_x4_a_write_of_what_stays_is_void_too_when_a_rewind_came_meanwhile(landing: Landing) -> None:
    """Its checkpoint is live still, and its lease its own: the fence would not know the new version."""
    landing.land(10, times=3)
    made = allowed(landing, limit=1)
    landing.rewind(2)
    with pytest.raises(Stale, match="was rewound while commit 1 to bronze was written"):
        finish(landing, made)


def test_t2_a_rewrite_of_what_has_been_forgotten_meanwhile_is_void(landing: Landing) -> None:
    landing.land(10, times=3)
    finish(landing, allowed(landing))
    made = allowed(landing, "b", ids=[1])
    landing.retire(1, 2, history=1)
    with pytest.raises(Stale, match="Checkpoint 1 of region orders is not live any more; commit 2 to bronze is void"):
        finish(landing, made)


def test_a_lease_is_renewed_while_one_writes_and_while_one_makes_a_fence(landing: Landing, clock: Clock) -> None:
    landing.land(10, times=2)
    writer = allowed(landing, "writer")
    clock.now += 5
    renewed = landing.do(lambda tx: permits.renew(tx, writer))
    assert renewed.until == writer.lease.until + 5
    landing.rewind(1)
    with pytest.raises(LeaseLost, match="takes a fence first"):
        landing.do(lambda tx: permits.renew(tx, writer))
    made = landing.do(lambda tx: permits.permit_fence(tx, "bronze", holder="f", token="f"))
    assert made is not None
    clock.now += 5
    assert landing.do(lambda tx: permits.renew(tx, made)).until == made.lease.until + 5


def test_g10_the_writers_lease_is_given_to_nobody_while_the_region_is_stopped_for_a_restored_backup(
    landing: Landing,
) -> None:
    def take() -> str:
        return landing.do(lambda tx: permits.take(tx, "bronze", holder="me", token="t")).holder

    assert take() == "me"
    landing.do(lambda tx: restored.notice(tx, "older than what was seen", by="orders/0"))
    with pytest.raises(WentBack, match="older than what was seen"):
        take()


def test_g10_commits_go_on_above_a_number_that_the_table_has_seen(landing: Landing) -> None:
    landing.land(10)
    for seen in (7, 3):
        landing.do(lambda tx, n=seen: permits.number_above(tx, "bronze", n))  # type: ignore[misc]
    assert allowed(landing).commit.number == 8


def test_a_table_is_advanced_to_checkpoints_that_there_are(landing: Landing) -> None:
    landing.land(10, times=3)
    allowed(landing)
    landing.rewind(1)
    fence(landing)
    landing.land(10)
    for wrong, why in ((3, "superseded"), (9, "has no checkpoint 9")):
        with pytest.raises(NoSuchCheckpoint, match=why):
            permit(landing, upto=wrong)


def test_x8_what_was_written_is_told_and_where_records_were_bad(landing: Landing) -> None:
    landing.land(0), landing.land(10)
    made = allowed(landing)
    landing.do(lambda tx: permits.finish_commit(tx, made, version="v", rows=19, bad={1: 0, 2: 1}))
    told = landing.read(lambda reader, _: events.last(reader, 2))
    assert [(e.kind, e.text, e.checkpoint) for e in told] == [
        ("table advance", "bronze: 19 rows of 2 checkpoints", 2),
        (events.BAD, "bronze: 1 record of 2 checkpoints could not be decoded", 2),
    ]
    assert json.loads(told[1].data_json)["of"] == {"2": 1}, "the empty checkpoint has no bad record"
    landing.rewind(1)
    fence(landing)
    fenced, all_fenced = landing.read(lambda reader, _: events.last(reader, 2))
    assert (fenced.kind, fenced.text, fenced.checkpoint) == ("table fence", "bronze follows to 1", 1)
    assert (json.loads(fenced.data_json), all_fenced.kind) == ({"table": "bronze", "number": 2}, "fenced")


def test_rewrites_that_nobody_finished_are_known_until_the_next_one_is_done(landing: Landing) -> None:
    def unfinished() -> list[int]:
        return landing.read(
            lambda reader, _: [c.number for c in tables.unfinished_rewrites(reader, tables.of(reader, "bronze"))]
        )

    landing.land(10)
    made = allowed(landing, ids=[1])
    landing.do(lambda tx: permits.fail_commit(tx, made, "boom"))
    assert unfinished() == [1]
    finish(landing, allowed(landing, "b", ids=[1]))
    assert unfinished() == []


def test_a_table_that_was_never_declared_is_refused_with_those_that_are(landing: Landing) -> None:
    with pytest.raises(Refused, match=r"Region orders declares no table 'silver'.*Declared: bronze"):
        landing.do(lambda tx: permits.permit_commit(tx, "silver", holder="a", token="a"))
