"""Resets: what raises the epoch, what counts, what stops, and that a call may be repeated (SPEC X1-X7, G7, G9)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from crkafka_core.model.errors import DataLoss, NoSuchCheckpoint, NotRunning, RegionStopped, Stale
from crkafka_core.model.phase import TRANSITIONS, Phase, Wanted
from crkafka_core.model.plural import listed
from crkafka_core.model.rows import Event, Initial, Reset, ResetCause
from crkafka_core.plane import alarms, epochs, life, members, permits, resets, restored, retire, starts, tables
from tests.plane.conftest import LIMITS, P0, P1, Kit
from tests.rigs.merging import merge_cut


def test_x5_a_persons_reset_repeated_with_its_token_raises_the_epoch_once(kit: Kit) -> None:
    kit.running()
    first = kit.do(lambda tx: resets.request(tx, cause="c", by="me", token="run 7"))
    assert kit.do(lambda tx: resets.request(tx, cause="c", by="me", token="run 7")) == first
    assert kit.row.epoch == first
    kit.settle()
    kit.do(lambda tx: resets.request(tx, cause="c", by="me", token="run 7"))
    assert (kit.row.epoch, kit.row.phase) == (first, Phase.RUNNING), "also when the region has resumed meanwhile"
    assert kit.do(lambda tx: resets.request(tx, cause="c", by="me", token="run 8")) == first + 1


def test_x4_a_rewind_repeated_with_its_token_goes_back_once(kit: Kit) -> None:
    kit.running()
    first, second = kit.cut(), kit.cut()
    kit.do(lambda tx: resets.request(tx, cause="c", by="me", target=first, token="a"))
    kit.settle()
    third = kit.cut()
    kit.do(lambda tx: resets.request(tx, cause="c", by="me", target=first, token="a"))
    assert kit.row.head == third > second


def test_x5_a_failure_seen_in_an_older_epoch_asks_for_nothing(kit: Kit) -> None:
    kit.running()
    epoch = kit.row.epoch
    kit.fail(0, "c", epoch=epoch)
    with pytest.raises(Stale):
        kit.fail(0, "c", epoch=epoch)
    assert kit.row.epoch == epoch + 1


def test_x6_a_persons_reset_out_of_stopped_counts_anew(kit: Kit) -> None:
    kit.running()
    for _ in range(5):
        kit.fail(0, "broken")
    assert kit.row.phase is Phase.STOPPED
    kit.do(lambda tx: resets.request(tx, cause="mended", by="me"))
    assert (kit.row.phase, kit.row.consecutive) == (Phase.RESETTING, 0)
    assert kit.events("start")[-1].text == "back to initial state, as asked by me: mended"
    kit.fail(0, "broken")
    assert kit.row.phase is Phase.RESETTING


def test_x6_a_persons_reset_out_of_stopped_gives_a_flapping_member_a_new_budget(kit: Kit) -> None:
    kit.running()
    for _ in range(10):
        kit.dies(0)
        if kit.row.phase is Phase.STOPPED:
            break
        kit.settle()
    assert kit.row.stop_member == "orders/0"
    kit.do(lambda tx: resets.request(tx, cause="mended", by="me"))
    kit.settle()
    kit.dies(0)
    assert kit.row.phase is Phase.RESETTING


def test_x6_the_budget_sees_forced_resets_between_counted_ones_of_the_same_member(make_kit: type[Kit]) -> None:
    kit = make_kit(max_consecutive_resets=100).running()
    for _ in range(9):
        kit.dies(0)
        kit.settle()
        for _ in range(3):
            kit.fail(0, "x")
            kit.advance(60.0)
        kit.settle()
    kit.dies(0)
    assert kit.row.phase is Phase.STOPPED, "ten without a completed cut"


def test_g10_a_region_never_resumed_waits_for_its_tables_after_a_restored_backup(make_kit: type[Kit]) -> None:
    kit = make_kit(tables=("a",))
    kit.do(lambda tx: restored.rewind(tx, restored.Seen(epoch=9, checkpoint=9, where="x"), by="me"))
    assert kit.row.phase is Phase.REWINDING


def test_g10_who_goes_on_after_a_restored_backup_is_above_all_that_was_seen(kit: Kit) -> None:
    """What bears a lower number may be of the newer state that is gone."""
    kit.running()
    kit.cut()
    kit.do(lambda tx: epochs.halt(tx, "an older backup"))
    kit.do(lambda tx: restored.rewind(tx, restored.Seen(epoch=90, checkpoint=70, where="x"), by="me"))
    assert kit.row.epoch == 91
    kit.settle()
    assert kit.cut() > 70 + restored.MARGIN


def test_g9_a_region_never_resumed_is_at_its_birth_also_behind_a_fence(make_kit: type[Kit]) -> None:
    """Each of its attempts is one of the birth (found by seed 30003379)."""
    kit = make_kit(tables=("a",))
    kit.do(lambda tx: restored.rewind(tx, restored.Seen(epoch=9, checkpoint=9, where="x"), by="me"))
    permit = kit.do(lambda tx: permits.permit_fence(tx, "a", holder="me", token="f"))
    assert permit is not None
    kit.do(lambda tx: permits.finish_fence(tx, permit, version="7"))
    assert kit.row.phase is Phase.BIRTH
    kit.do(lambda tx: resets.request(tx, by="me", target=0))
    assert kit.row.phase is Phase.BIRTH
    kit.do(lambda tx: tables.undeclare(tx, "a", by="me"))
    kit.do(lambda tx: tables.declare(tx, "a", "delta", "lake/a", by="me"))
    kit.do(lambda tx: resets.request(tx, by="me"))
    assert kit.row.phase is Phase.REWINDING, "a table that was there before owes a fence"
    assert {Phase.REWINDING, Phase.BIRTH} <= TRANSITIONS[Phase.BIRTH]
    assert Phase.BIRTH in TRANSITIONS[Phase.REWINDING]


def test_r5_a_clean_leave_during_a_cut_counts_as_no_failure(kit: Kit) -> None:
    kit.running()
    cut = kit.open()
    kit.do(lambda tx: members.leave(tx, "orders/0", kit.live["orders/0"]))
    kit.hand_over(3)
    assert (kit.checkpoint(cut).status, kit.row.phase) == ("MERGED", Phase.RESETTING)
    assert (kit.row.consecutive, kit.row.failing, kit.row.not_before) == (0, 0, 0.0)


def _joins(kit: Kit, number: int, first: int) -> None:
    """One more member registers; Kafka takes everything away, and `first` is the quickest to say so."""
    kit.do(lambda tx: life.scale(tx, number + 1, by="me"))
    kit.register(number)
    others = sorted(range(number), key=lambda n: n != first)
    for other in others:
        kit.withdraw(other)
    kit.hand_over()
    kit.generation += 1
    kit.settle({n: {P0} if n == 0 else {P1} if n == 1 else set() for n in range(number + 1)})


def test_74_twenty_joins_with_cuts_between_count_against_nobody(kit: Kit) -> None:
    """SPEC X6; fault 74: 25 s apart, the same neighbour reports each first."""
    kit.running()
    for number in range(2, 22):
        _joins(kit, number, first=0)
        assert kit.row.phase is Phase.RUNNING
        cut = kit.open()
        for n in range(number + 1):
            kit.contribute(cut, n, held={P0} if n == 0 else {P1} if n == 1 else set())
        kit.do(lambda tx, c=cut: merge_cut(tx, c))  # type: ignore[misc]
        kit.now += 25.0
    joins = [r for r in kit.resets() if r.cause is ResetCause.JOIN]
    assert [r.member for r in joins] == [f"orders/{n}" for n in range(2, 22)], "each reset names who joined"
    assert {r.by for r in joins} == {"orders/0"}, "and who reported it"


def test_74_a_flapping_member_is_named_and_not_the_neighbour_that_reports_first(make_kit: type[Kit]) -> None:
    kit = make_kit(forced_budget=6).running()
    for _ in range(6):
        kit.withdraw(0)
        assert kit.row.phase is Phase.CUTTING
        kit.dies(1)
        if kit.row.phase is Phase.STOPPED:
            break
        kit.generation += 1
        kit.settle()
        kit.cut()
        kit.advance(20.0)
    assert (kit.row.phase, kit.row.stop_member) == (Phase.STOPPED, "orders/1")
    assert "orders/1 made the region reset 6 times" in kit.row.stop_reason


def test_x6_rebalances_never_stop_a_region(kit: Kit) -> None:
    kit.running()
    for _ in range(30):
        kit.rebalance(1)
        assert (kit.resets()[-1].cause, kit.row.phase) == (ResetCause.REBALANCE, Phase.RESETTING)
        kit.settle()
    assert kit.row.phase is Phase.RUNNING


def test_82_cuts_that_slow_storage_keeps_past_their_deadline_abort_and_come_back(kit: Kit) -> None:
    kit.running()
    for _ in range(30):
        cut = kit.open()
        kit.contribute(cut, 0)
        kit.advance(LIMITS.drain_timeout + 1)
        assert kit.checkpoint(cut).status == "ABORTED"
        kit.now += 61.0
        kit.settle()
        assert kit.row.phase is Phase.RUNNING
    assert kit.row.consecutive == 0
    assert {r.cause for r in kit.resets() if r.aborted} == {ResetCause.LATE}
    kit.cut()
    assert kit.row.failing == 0


def test_x8_each_epoch_says_why_it_began_and_which_cut_it_cost(kit: Kit) -> None:
    kit.running()
    first, second = kit.cut(), kit.cut()
    opened = kit.open()
    kit.now += 7.0
    epoch = kit.do(lambda tx: resets.request(tx, cause="bad rows", by="ann@host", target=first, token="t"))
    row = kit.resets()[-1]
    assert row == Reset(
        "orders",
        epoch,
        kit.now,
        ResetCause.PERSON,
        text=f"back to checkpoint {first}, as asked by ann@host: bad rows",
        by="ann@host",
        token="t",
        target=first,
        aborted=opened,
        filling=opened,
        opened=opened,
        ran=7.0,
    ), second


@pytest.mark.parametrize(
    ("target", "cause", "told"),
    [
        (None, "", "back to checkpoint 2, as asked by anna"),
        (1, "", "back to checkpoint 1, as asked by anna"),
        (0, "bad rows", "back to initial state, as asked by anna: bad rows"),
    ],
)
def test_who_asked_for_a_reset_and_where_to_is_one_sentence_wherever_it_is_told(
    make_kit: type[Kit], target: int | None, cause: str, told: str
) -> None:
    """In the row of the epoch, in events, in what was superseded, in the alarm."""
    kit = make_kit(tables=("bronze",)).running()
    kit.cut(), kit.cut()
    kit.do(lambda tx: permits.permit_commit(tx, "bronze", holder="writer", token="w"))
    kit.do(lambda tx: resets.request(tx, by="anna", cause=cause, target=target))
    assert kit.row.reset_cause == kit.resets()[-1].text == kit.events("reset")[-1].text == told
    assert [e.text for e in kit.events("rewind")] == ([] if target is None else [f"head 2 → {target}: {told}"])
    kit.now += 200.0
    alarm = kit.read(alarms.current)
    if target is None:
        assert f"; it is {kit.row.phase}: {told}" in alarm
    else:
        assert alarm.startswith("table bronze has not followed the rewind for 200 s")
    assert kit.row.phase is (Phase.RESETTING if target is None else Phase.REWINDING)


def test_a_start_says_who_asked_and_where_the_region_goes_on(kit: Kit) -> None:
    kit.do(lambda tx: life.start(tx, by="anna"))
    assert kit.row.reset_cause == "the region was started by anna, and goes on from initial state"
    kit.do(lambda tx: epochs.idle(tx, "test"))
    kit.running()
    kit.cut()
    kit.do(lambda tx: epochs.idle(tx, "test"))
    kit.do(lambda tx: life.start(tx, by="anna"))
    assert kit.row.reset_cause == "the region was started by anna, and goes on from checkpoint 1"


def _story(kit: Kit, after_each: Callable[[Kit], None]) -> list[object]:
    """A region's life with everything that was once decided from events."""
    told: list[object] = []

    def tell() -> None:
        after_each(kit)
        row = kit.row
        told.append((row.phase, row.epoch, row.consecutive, row.failing, row.not_before, row.stop_reason, row.head))

    kit.running()
    for step in range(12):
        kit.do(lambda tx: resets.request(tx, cause="c", by="me", token="once"))
        tell()
        kit.settle()
        kit.dies(1)
        tell()
        kit.advance(31.0), kit.advance(1.0)
        told.append(kit.read(lambda reader, row: alarms.current(reader, row)))
        kit.settle()
        if step == 5:
            kit.fail(0)
            kit.now += 60.0
            kit.settle()
        tell()
        if kit.row.phase is Phase.STOPPED:
            kit.do(lambda tx: life.start(tx, by="me"))
            kit.settle()
    kit.rebalance(0)
    kit.do(lambda tx: life.stop(tx, token="stop", by="me"))
    tell()
    kit.advance(LIMITS.drain_timeout - 1)
    tell()
    kit.advance(2.0)
    tell()
    return told


def test_x8_a_region_whose_events_are_deleted_behaves_the_same(make_kit: type[Kit]) -> None:
    """The event log is for people: budgets, tokens, alarms and the deadline of a stop are rows."""

    def forget(kit: Kit) -> None:
        kit.do(lambda tx: tx.delete(Event))

    kept, forgotten = _story(make_kit(), lambda _: None), _story(make_kit(), forget)
    assert kept == forgotten
    assert any("made the region reset" in str(told) for told in kept), "the budget was used up on the way"
    assert any("not settled" in str(told) for told in kept), "the alarm was raised on the way"


def test_g9_an_idle_region_is_not_reset_and_goes_back_only_to_another_checkpoint(kit: Kit) -> None:
    kit.running()
    first, head = kit.cut(), kit.cut()
    kit.do(lambda tx: epochs.idle(tx, "test"))
    for target in (None, head):
        with pytest.raises(NotRunning, match=r"is idle: there is nothing to reset.*Name a target"):
            kit.do(lambda tx, t=target: resets.request(tx, by="me", target=t))  # type: ignore[misc]
    with pytest.raises(NotRunning, match="is idle: there is nothing to reset"):
        kit.fail(0)
    kit.do(lambda tx: resets.request(tx, by="me", target=first))
    assert (kit.row.phase, kit.row.head) == (Phase.IDLE, first)


def test_x6_a_stopped_region_tells_who_fails_why_it_is_stopped(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: epochs.halt(tx, "the disk is full"))
    with pytest.raises(RegionStopped, match=r"is stopped: the disk is full.*`crkafka start`"):
        kit.fail(0)


@pytest.mark.parametrize("cause", list(ResetCause))
@pytest.mark.parametrize("wanted", list(Wanted))
def test_x6_only_a_persons_word_leads_out_of_stopped_and_none_when_it_is_wanted_stopped(
    kit: Kit, cause: ResetCause, wanted: Wanted
) -> None:
    kit.running()
    kit.do(lambda tx: epochs.halt(tx, "the disk is full"))
    kit.do(lambda tx: tx.set_region(wanted=wanted))
    kit.do(lambda tx: resets.begin(tx, cause, "x"))
    persons = cause in (ResetCause.PERSON, ResetCause.START, ResetCause.RESTORED)
    assert kit.row.phase is (Phase.RESETTING if persons and wanted is Wanted.RUN else Phase.STOPPED)


@pytest.mark.parametrize(
    ("cuts", "there"),
    [(0, "initial"), (2, "1, 2 or initial"), (8, "1, 2, 3, 4, 5, 6, 7, 8 or initial"), (9, "1 … 9 or initial")],
)
def test_x4_a_target_that_is_none_is_refused_with_those_that_are(kit: Kit, cuts: int, there: str) -> None:
    kit.running()
    for _ in range(cuts):
        kit.cut()
    with pytest.raises(NoSuchCheckpoint, match=rf"Checkpoint 77 .* is unknown.*It can go back to {there} state \(0\)"):
        kit.do(lambda tx: resets.request(tx, by="me", target=77))


def test_x4_what_was_superseded_is_not_among_the_targets_that_are_named(kit: Kit) -> None:
    """A range from the first to the last would name those, too."""
    kit.running()
    for _ in range(9):
        kit.cut()
    kit.do(lambda tx: resets.request(tx, by="me", target=3))
    kit.settle()
    for _ in range(6):
        kit.cut()
    with pytest.raises(NoSuchCheckpoint, match=r"Checkpoint 5 .* is superseded.*It can go back to 1 … 3, 11 … 16 or"):
        kit.do(lambda tx: resets.request(tx, by="me", target=5))


def test_of_very_many_gaps_the_first_and_the_last_spans_are_named() -> None:
    assert listed([*range(1, 4), 7, *range(9, 14)]) == "1 … 3, 7, 9 … 13"
    assert listed(range(1, 100, 2)) == "1, 3, 5, 7, …, 93, 95, 97, 99"


@pytest.mark.parametrize("target", [0, 2])
def test_x4_a_rewind_over_rows_of_a_forgotten_topic_is_refused_until_they_are_given_up(kit: Kit, target: int) -> None:
    """They would leave the tables, and nobody would read them again."""
    kit.running()
    kit.cut(), kit.cut(), kit.cut(rows=0)
    last = kit.cut()
    kit.do(lambda tx: starts.forget(tx, "t", by="me"))
    before = kit.row
    with pytest.raises(DataLoss, match=r"rows of t would be superseded.*--give-up t"):
        kit.do(lambda tx: resets.request(tx, by="me", target=target))
    with pytest.raises(DataLoss, match=r"rows of t would be superseded"):
        kit.do(lambda tx: resets.request(tx, by="me", target=target, give_up=["other"]))
    assert kit.row == before
    kit.do(lambda tx: resets.request(tx, by="me", target=last))
    kit.do(lambda tx: resets.request(tx, by="me"))
    kit.do(lambda tx: resets.request(tx, by="me", target=target, give_up=["t"]))
    assert kit.row.head == target


def test_x4_a_rewind_over_nothing_of_a_forgotten_topic_is_not_refused(kit: Kit) -> None:
    kit.running()
    kit.cut(), kit.cut(), kit.cut(rows=0)
    kit.do(lambda tx: starts.forget(tx, "t", by="me"))
    kit.do(lambda tx: resets.request(tx, by="me", target=2))
    assert kit.row.head == 2


@pytest.mark.parametrize("found", ["before a merge without a row", "after the last merge"])
def test_x4_a_topic_of_which_nothing_was_merged_is_not_in_the_way_of_initial_state(kit: Kit, found: str) -> None:
    kit.running()
    kit.cut(rows=0)
    late = Initial("orders", "id-late", 0, "late", 7, "beginning", forgotten=True)
    kit.do(lambda tx: tx.put(late) if found.startswith("after") else starts.forget(tx, "t", by="me"))
    kit.do(lambda tx: resets.request(tx, by="me", target=0))
    assert kit.row.head == 0


def _made_anew(kit: Kit) -> None:
    """The topic is another one now, and the region reads it from its beginning."""
    for number, tp in enumerate((P0, P1)):
        kit.at |= dict(kit.resolve(number, {tp}, ids={P0: "id-t2", P1: "id-t2"}).offsets)
        kit.report(number, {tp})
    kit.advance()


def _cut_of_the_new_one(kit: Kit) -> None:
    checkpoint = kit.open()
    for number in (0, 1):
        kit.contribute(checkpoint, number, 5, topic_ids={"t": "id-t2"})
    kit.do(lambda tx: merge_cut(tx, checkpoint))


@pytest.mark.parametrize("lost", [True, False])
def test_x4_what_a_rewind_has_given_up_is_in_the_way_of_no_other(kit: Kit, lost: bool) -> None:
    """Nor a topic of which no row was ever merged, once another one has its name."""
    kit.running()
    kit.cut(rows=10 if lost else 0)
    kit.do(lambda tx: starts.forget(tx, "t", by="me"))
    kit.do(lambda tx: resets.request(tx, by="me", target=0 if lost else None, give_up=["t"]))
    _made_anew(kit)
    _cut_of_the_new_one(kit)
    kit.do(lambda tx: resets.request(tx, by="me", target=0))
    assert kit.row.head == 0


def test_x4_rows_of_a_log_that_was_cut_back_to_its_beginning_are_rows(kit: Kit) -> None:
    kit.running()
    kit.cut(rows=10)
    kit.do(lambda tx: resets.request(tx, by="me"))
    for number, tp in enumerate((P0, P1)):
        kit.at |= dict(kit.resolve(number, {tp}, gaps={tp: starts.Gap(10, 0, "cut")}).offsets)
        kit.report(number, {tp})
    kit.advance()
    kit.cut(rows=0)
    kit.do(lambda tx: starts.forget(tx, "t", by="me"))
    with pytest.raises(DataLoss, match="rows of t"):
        kit.do(lambda tx: resets.request(tx, by="me", target=0))


@pytest.mark.parametrize("history", [20_000, 1])
def test_x4_rows_of_retired_checkpoints_count_as_well(make_kit: type[Kit], history: int) -> None:
    """Also where the archive does not reach back to them."""
    kit = make_kit(retain=1, history=history).running()
    kit.cut(rows=10)
    for _ in range(4):
        kit.cut(rows=0)
    kit.do(lambda tx: retire.retire(tx, range(1, 5)))
    kit.do(lambda tx: starts.forget(tx, "t", by="me"))
    with pytest.raises(DataLoss, match="rows of t"):
        kit.do(lambda tx: resets.request(tx, by="me", target=0))
    kit.do(lambda tx: resets.request(tx, by="me", target=0, give_up=["t"]))
    assert kit.resets()[-1].text.endswith("; rows of t may be lost by it")
