"""Faults that are decided in SQL alone: contributions, leases, members cut off, orchestrators gone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from crkafka_core.model.errors import (
    Conflict,
    CutOpen,
    LeaseHeld,
    LeaseLost,
    Lost,
    Mismatch,
    NotOpen,
    NotRunning,
    NotSettled,
    Superseded,
    WrongRegion,
)
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import (
    CheckpointStatus,
    ContributedOffset,
    Contribution,
    Expected,
    Launch,
    Lease,
    Member,
    MemberStatus,
    ResetCause,
)
from crkafka_core.plane import advance, cuts, halting, leases, life, members, permits, resets, retire
from crkafka_core.plane.status import waits_for
from tests.plane.conftest import LIMITS

if TYPE_CHECKING:
    from tests.plane.conftest import Kit

P0, P1 = TP("t", 0), TP("t", 1)


def _part(kit: Kit, checkpoint: int, number: int, rows: int = 10, **other: object) -> cuts.Part:
    name, tp = f"orders/{number}", P0 if number == 0 else P1
    at = kit.at[tp]
    segment = cuts.NamedSegment(f"{checkpoint}-{name}", rows, 1, "h", ((tp.topic, tp.partition, at, at + rows, rows),))
    return replace(
        cuts.Part(
            checkpoint,
            name,
            kit.live[name],
            kit.row.epoch,
            kit.row.head,
            kit.generation,
            tuple(sorted(kit.live)),
            {tp: (at, at + rows, rows)},
            {"t": "id-t"},
            [segment],
        ),
        **other,
    )


def _stored(kit: Kit, checkpoint: int) -> int:
    return kit.plane.read(lambda reader, row: reader.count(Contribution, ("checkpoint", "=", checkpoint)))


def test_30_same_contribution_twice_is_accepted_once(kit: Kit) -> None:
    """SPEC C2."""
    kit.running()
    cut = kit.open()
    part = _part(kit, cut, 0)
    kit.do(lambda tx: cuts.contribute(tx, part))
    kit.do(lambda tx: cuts.contribute(tx, replace(part, drain_ms=99)))
    assert _stored(kit, cut) == 1
    kit.contribute(cut, 1)
    kit.do(lambda tx: cuts.merge(tx, cut))
    kit.do(lambda tx: cuts.contribute(tx, part))
    assert kit.row.head == cut, "sent again after the merge, it changes nothing either"


def test_31_different_contribution_of_one_incarnation_is_a_conflict(kit: Kit) -> None:
    """SPEC C2, D4: the cut is aborted, the epoch rises, the evidence is in the event log."""
    kit.running()
    cut, epoch = kit.open(), kit.row.epoch
    kit.do(lambda tx: cuts.contribute(tx, _part(kit, cut, 0, 10)))
    with pytest.raises(Conflict):
        kit.do(lambda tx: cuts.contribute(tx, _part(kit, cut, 0, 11)))
    assert (kit.checkpoint(cut).status, kit.row.epoch) == (CheckpointStatus.ABORTED, epoch + 1)
    assert _stored(kit, cut) == 0
    assert "11" in kit.events("contribution refused")[0].data_json


def test_32_contribution_of_an_unknown_or_old_incarnation_is_refused(kit: Kit) -> None:
    """SPEC C2, G3: a typed error, and no row."""
    kit.running()
    cut = kit.open()
    with pytest.raises(Superseded):
        kit.do(lambda tx: cuts.contribute(tx, _part(kit, cut, 0, incarnation="older")))
    with pytest.raises(Lost):
        kit.do(lambda tx: cuts.contribute(tx, _part(kit, cut, 0, member="orders/7", incarnation="i7")))
    assert _stored(kit, cut) == 0
    assert kit.checkpoint(cut).status is CheckpointStatus.OPEN


@pytest.mark.parametrize("what", ["merged", "aborted", "unknown", "retired"])
def test_33_contribution_to_a_checkpoint_that_is_not_open_is_refused(kit: Kit, what: str) -> None:
    """SPEC C2, T1: a typed error, and no row."""
    kit.running()
    if what == "aborted":
        cut = kit.open()
        kit.do(lambda tx: resets.begin(tx, ResetCause.LATE, "test"))
        kit.settle()
    else:
        cut = kit.cut()
    if what == "retired":
        kit.do(lambda tx: tx.set_region(limits_json='{"retain": 1}'))
        kit.cut()
        kit.do(lambda tx: retire.retire(tx, [cut]))
        assert kit.checkpoint(cut).status is CheckpointStatus.RETIRED
    number = 99 if what == "unknown" else cut
    before = _stored(kit, number)
    with pytest.raises(NotOpen, match=what):
        kit.do(lambda tx: cuts.contribute(tx, _part(kit, number, 0, 5)))
    assert _stored(kit, number) == before


def test_33_contribution_of_an_old_epoch_is_refused(kit: Kit) -> None:
    """SPEC C2, M4."""
    kit.running()
    cut = kit.open()
    with pytest.raises(NotOpen, match="epoch"):
        kit.do(lambda tx: cuts.contribute(tx, _part(kit, cut, 0, epoch=kit.row.epoch - 1)))
    assert _stored(kit, cut) == 0


def test_35_two_members_that_claim_one_partition_are_not_merged(kit: Kit) -> None:
    """SPEC C2, C3: refused at the contribution, since the cut fixed who holds what; at the merge, if it ever came so far."""
    kit.running()
    cut = kit.open()
    kit.contribute(cut, 0, 10)
    part = _part(kit, cut, 1)
    both = replace(part, offsets={**part.offsets, P0: (0, 10, 10)})
    with pytest.raises(Mismatch):
        kit.do(lambda tx: cuts.contribute(tx, both))
    assert kit.checkpoint(cut).status is CheckpointStatus.ABORTED
    kit.settle()
    kit.advance(5.0)
    cut = kit.open()
    kit.contribute(cut, 0, 10)
    kit.contribute(cut, 1, 10)
    kit.do(lambda tx: tx.add(ContributedOffset("orders", cut, "orders/1", "t", 0, 0, 10, 10)))
    with pytest.raises(Mismatch, match="contributed by orders/0 and by orders/1"):
        kit.do(lambda tx: cuts.merge(tx, cut))
    assert kit.checkpoint(cut).status is CheckpointStatus.ABORTED
    assert kit.events("merge refused"), "the evidence is kept"


def test_C3_merge_compares_sets_and_not_counts(kit: Kit) -> None:
    """SPEC C3: as many contributions as expected, of another incarnation, are no merge."""
    kit.running()
    cut = kit.open()
    kit.contribute(cut, 0, 10)
    kit.contribute(cut, 1, 10)
    kit.do(lambda tx: tx.put(replace(tx.select(Expected, ("member", "=", "orders/1"))[0], incarnation="another")))
    with pytest.raises(Mismatch):
        kit.do(lambda tx: cuts.merge(tx, cut))
    assert kit.row.head == 0


def test_C3_range_that_does_not_begin_where_the_parent_ends_is_no_merge(kit: Kit) -> None:
    """SPEC C3, C5; I1."""
    kit.running()
    kit.cut(10)
    cut = kit.open()
    kit.contribute(cut, 0, 10)
    kit.at[P1] += 3
    kit.contribute(cut, 1, 10)
    with pytest.raises(Mismatch, match="left it at"):
        kit.do(lambda tx: cuts.merge(tx, cut))


def test_C3_span_with_a_hole_is_no_contribution(kit: Kit) -> None:
    """SPEC C3: the spans chain without a hole."""
    kit.running()
    cut = kit.open()
    holey = cuts.NamedSegment("s", 10, 1, "h", (("t", 0, 2, 10, 10),))
    with pytest.raises(Mismatch, match="begins at 2"):
        kit.do(lambda tx: cuts.contribute(tx, _part(kit, cut, 0, segments=[holey])))


def test_C2_contribution_of_another_generation_or_assignment_is_refused(kit: Kit) -> None:
    """SPEC C2: it must match what the opening fixed."""
    kit.running()
    for other in ({"generation": 7}, {"base": 9}, {"members": ("orders/0",)}):
        cut = kit.open()
        with pytest.raises(Mismatch):
            kit.do(lambda tx, c=cut, o=other: cuts.contribute(tx, _part(kit, c, 0, **o)))
        assert kit.checkpoint(cut).status is CheckpointStatus.ABORTED
        kit.settle()
        kit.advance(5.0)


def test_D4_cut_past_its_deadline_is_aborted_by_anyone(kit: Kit) -> None:
    """SPEC D4, G7; fault 58: no orchestrator is needed for it."""
    kit.running()
    cut, epoch = kit.open(), kit.row.epoch
    kit.contribute(cut, 0)
    kit.advance(21.0)
    assert kit.checkpoint(cut).status is CheckpointStatus.ABORTED
    assert "orders/1" in kit.checkpoint(cut).note
    assert kit.resets()[-1].member == "orders/1"
    assert kit.row.epoch == epoch + 1


def test_58_complete_cut_is_merged_without_an_orchestrator(kit: Kit) -> None:
    """SPEC G7; fault 58."""
    kit.running()
    cut = kit.open()
    kit.contribute(cut, 0)
    kit.contribute(cut, 1)
    assert kit.advance() is Phase.RUNNING
    assert kit.row.head == cut


def test_58_the_last_contribution_merges_and_one_that_does_not_fit_aborts(kit: Kit) -> None:
    """SPEC G7, C3: in one transaction, so that there is no moment between; what was wrong is kept."""
    kit.running()
    cut = kit.open()
    kit.do(lambda tx: cuts.hand_in(tx, _part(kit, cut, 0)))
    assert kit.row.phase is Phase.CUTTING
    last = _part(kit, cut, 1)
    assert kit.do(lambda tx: cuts.hand_in(tx, last)).complete
    assert (kit.row.phase, kit.row.head) == (Phase.RUNNING, cut)
    assert kit.do(lambda tx: cuts.hand_in(tx, last)).complete, "said again it is not an error"
    kit.at = {P0: 10, P1: 13}  # three records of P1 are in no checkpoint
    wrong = kit.open()
    kit.do(lambda tx: cuts.hand_in(tx, _part(kit, wrong, 0)))
    kit.do(lambda tx: cuts.hand_in(tx, _part(kit, wrong, 1)))
    assert kit.checkpoint(wrong).status is CheckpointStatus.ABORTED
    assert (kit.row.phase, kit.row.head) == (Phase.RESETTING, cut)
    assert kit.events("merge refused"), "the evidence is kept"


def test_G7_nobody_takes_the_lock_for_a_cut_that_only_waits(kit: Kit) -> None:
    """SPEC G7: members look at every change; until the deadline there is nothing for them to do."""
    kit.running()
    cut = kit.open()
    kit.contribute(cut, 0)
    assert not kit.plane.read(advance.due)
    kit.now = kit.checkpoint(cut).deadline
    assert not kit.plane.read(advance.due)
    kit.now += 1.0
    assert kit.plane.read(advance.due)
    assert kit.advance() is Phase.RESETTING


def test_7_second_driver_is_refused_with_the_holder_named(kit: Kit) -> None:
    """SPEC A6; fault 7: no effect."""
    kit.running()
    kit.do(lambda tx: leases.take(tx, "driver", holder="run 1", token="a", length=30.0))
    with pytest.raises(LeaseHeld, match="run 1"):
        kit.do(lambda tx: leases.take(tx, "driver", holder="run 2", token="b", length=30.0))
    assert kit.row.phase is Phase.RUNNING


def test_8_driver_that_slept_past_its_lease_cannot_go_on(kit: Kit) -> None:
    """SPEC A6; fault 8: its next write fails, the region is unaffected."""
    kit.running()
    first = kit.do(lambda tx: leases.take(tx, "driver", holder="run 1", token="a", length=30.0))
    kit.now += 31.0
    second = kit.do(lambda tx: leases.take(tx, "driver", holder="run 2", token="b", length=30.0))
    assert second.number > first.number
    for act in (lambda tx: leases.renew(tx, first, 30.0), lambda tx: leases.check(tx, first)):
        with pytest.raises(LeaseLost, match="run 2"):
            kit.do(act)
    kit.do(lambda tx: leases.release(tx, first))
    kit.do(lambda tx: leases.check(tx, second))


def test_44_member_cut_off_from_kafka_alone_is_lost_after_a_while(kit: Kit) -> None:
    """SPEC G4; fault 44: another one reports a newer generation for 10 s."""
    kit.running()
    epoch = kit.row.epoch
    kit.withdraw(1, wants_reset=True)
    kit.generation = 2
    kit.resolve(1, {P0, P1})
    kit.report(1, {P0, P1})
    kit.report(0, {P0}, generation=1)
    kit.advance(1.0)
    assert kit.row.phase is Phase.RESETTING
    kit.advance(5.0)
    assert kit.member(0).status is MemberStatus.LIVE, "not at once: it may be on its way"
    kit.advance(6.0)
    assert kit.member(0).status is MemberStatus.LOST
    kit.advance()
    assert (kit.row.phase, kit.row.epoch) == (Phase.RUNNING, epoch + 1)


@pytest.mark.parametrize(("silent", "seconds"), [(False, LIMITS.stale_generation), (True, 45.0)])
def test_G4_who_is_behind_and_has_withdrawn_its_report_has_a_whole_session(
    make_kit: type[Kit], silent: bool, seconds: float
) -> None:
    kit = make_kit(session_timeout=45.0).running()
    kit.report(1, {P1}, generation=2)
    if silent:
        kit.withdraw(0, wants_reset=False)
    kit.advance()
    kit.advance(seconds - 0.5)
    assert kit.member(0).status is MemberStatus.LIVE
    kit.advance(0.5)
    assert kit.member(0).status is MemberStatus.LOST


def test_G4_nobody_is_lost_while_no_generation_advances(kit: Kit) -> None:
    """SPEC G4: in a full outage of Kafka nobody is lost."""
    kit.running()
    kit.advance(3_600.0)
    assert {kit.member(n).status for n in (0, 1)} == {MemberStatus.LIVE}


def test_G4_loss_is_void_when_the_counter_has_moved(kit: Kit) -> None:
    """SPEC G4: a compare-and-set on the renewal counter."""
    from crkafka_core.model.errors import Stale

    kit.running()
    kit.do(lambda tx: members.renew(tx, "orders/0", kit.live["orders/0"]))
    with pytest.raises(Stale):
        kit.do(lambda tx: members.lose(tx, "orders/0", kit.live["orders/0"], renewals=0, by="orders/1", why="test"))
    assert kit.member(0).status is MemberStatus.LIVE
    kit.do(lambda tx: members.lose(tx, "orders/0", kit.live["orders/0"], renewals=1, by="orders/1", why="test"))
    assert kit.member(0).status is MemberStatus.LOST


def test_G1_member_of_another_region_is_refused_without_a_trace(kit: Kit) -> None:
    """SPEC G1: before it registers; the error names the group and both regions."""
    kit.running()
    stranger = members.Registration("orders/1", "x", 99, 5, "cluster", "group")
    with pytest.raises(WrongRegion, match="group"):
        kit.do(lambda tx: members.register(tx, stranger))
    from crkafka_core.model.rows import Region

    life.declare(kit.plane.store, Region(name="other", uid="uid2", region_index=1, members_wanted=1))
    from crkafka_core.plane.transact import ControlPlane

    other = ControlPlane(kit.plane.store, "other")
    other.do(lambda tx: life.start(tx, by="test"))
    launch = other.do(lambda tx: members.launch(tx, "other/0"))
    with pytest.raises(WrongRegion) as refused:
        other.do(lambda tx: members.register(tx, members.Registration("other/0", "x", launch, 1, "cluster", "group")))
    assert all(word in str(refused.value) for word in ("'group'", "orders", "other"))
    assert other.read(lambda reader, _: reader.count(Member)) == 0


def test_G3_older_launch_never_registers_over_a_newer_one(kit: Kit) -> None:
    """SPEC G3: launch numbers decide, not the order of arrival."""
    kit.running()
    old = kit.do(lambda tx: members.launch(tx, "orders/0"))
    new = kit.do(lambda tx: members.launch(tx, "orders/0"))
    kit.do(lambda tx: members.register(tx, members.Registration("orders/0", "newer", new, 0, "cluster", "group")))
    for launch in (old, new):
        late = members.Registration("orders/0", "older", launch, 0, "cluster", "group")
        with pytest.raises(Superseded):
            kit.do(lambda tx, late=late: members.register(tx, late))
    assert kit.member(0).incarnation == "newer"


def test_g10_a_launch_number_from_before_sql_went_back_supersedes_nobody_who_is_launched_after_it(kit: Kit) -> None:
    """The numbers that SQL draws began at an older one then: who came next was refused for good, and its place stayed empty."""
    kit.running()
    (drawn,) = kit.plane.read(lambda reader, _: reader.select(Launch, ("name", "=", "orders/0")))
    ahead = members.Registration("orders/0", "ahead", drawn.number + 3, 0, "cluster", "group")
    kit.do(lambda tx: members.register(tx, ahead))
    kit.do(lambda tx: members.leave(tx, "orders/0", "ahead"))
    kit.register(0)
    assert kit.member(0).incarnation == kit.live["orders/0"]


def test_G3_registration_raises_the_epoch_only_where_records_flow(kit: Kit) -> None:
    """SPEC G3, X5: a loss in RUNNING and CUTTING; elsewhere the group is merely unsettled."""
    kit.running()
    epoch = kit.row.epoch
    kit.register(0)
    assert (kit.row.epoch, kit.row.phase) == (epoch + 1, Phase.RESETTING)
    kit.register(1)
    kit.register(0)
    assert kit.row.epoch == epoch + 1


def test_R3_one_rebalance_makes_one_reset_however_many_members_it_hits(kit: Kit) -> None:
    """SPEC R3, R2."""
    kit.running()
    epoch = kit.row.epoch
    for number in (0, 1):
        kit.withdraw(number, epoch=epoch)
    assert kit.row.epoch == epoch + 1
    kit.withdraw(0)
    assert kit.row.epoch == epoch + 1, "a revocation while resetting only withdraws the report"
    kit.settle()
    assert kit.row.phase is Phase.RUNNING
    kit.withdraw(1, epoch=epoch)
    assert kit.row.epoch == epoch + 1, "one heard of late, for an older epoch, requests nothing"
    kit.settle({1: {P1}})
    assert kit.row.phase is Phase.RUNNING


def test_R3_withdrawing_a_report_in_a_cut_is_the_abort(kit: Kit) -> None:
    """SPEC R3, D4: in one transaction."""
    kit.running()
    cut, epoch = kit.open(), kit.row.epoch
    kit.withdraw(1)
    assert (kit.checkpoint(cut).status, kit.row.epoch) == (CheckpointStatus.ABORTED, epoch + 1)


def test_G8_no_cut_and_no_resume_before_the_group_is_settled(kit: Kit) -> None:
    """SPEC G8; fault 14."""
    kit.running()
    kit.withdraw(0, epoch=kit.row.epoch)
    kit.settle({1: {P1}})
    assert kit.row.phase is Phase.RESETTING
    with pytest.raises(NotRunning, match="is RESETTING; a cut needs RUNNING"):
        kit.open()
    kit.settle({0: {P0, P1}})
    assert kit.row.phase is Phase.RESETTING, "held twice"
    kit.settle({0: {P0}})
    assert kit.row.phase is Phase.RUNNING
    kit.do(lambda tx: tx.put(replace(kit.member(0), assignment_json="")))
    with pytest.raises(NotSettled, match="orders/0"):
        kit.open()
    kit.do(lambda tx: halting.halt(tx, "disk full"))
    with pytest.raises(NotRunning, match="is STOPPED: disk full; a cut needs RUNNING"):
        kit.open()


def test_57_member_that_flaps_slower_than_cuts_come_ends_in_stopped_with_its_name(make_kit: type[Kit]) -> None:
    """SPEC X6; fault 57: 20 in 10 minutes, also when each is followed by a cut."""
    kit = make_kit(forced_budget=6).running()
    for _ in range(6):
        kit.withdraw(1, thrown_out=True)
        if kit.row.phase is Phase.STOPPED:
            break
        kit.settle()
        kit.cut()
        kit.advance(20.0)
    assert (kit.row.phase, kit.row.stop_member) == (Phase.STOPPED, "orders/1")
    assert "orders/1" in kit.row.stop_reason


def test_X6_flaps_that_are_hours_apart_never_stop_a_region(make_kit: type[Kit]) -> None:
    """SPEC X6: the budget is of a window."""
    kit = make_kit(forced_budget=6).running()
    for _ in range(20):
        kit.withdraw(1, thrown_out=True)
        kit.settle()
        kit.cut()
        kit.advance(3_600.0)
    assert kit.row.phase is Phase.RUNNING


def test_X6_counted_resets_in_a_row_stop_the_region_and_a_cut_zeroes_them(kit: Kit) -> None:
    """SPEC X6: only a person leaves STOPPED."""
    kit.running()

    def fail() -> None:
        kit.fail(0, "bad disk")
        kit.settle()
        kit.advance(65.0)

    for _ in range(4):
        fail()
    kit.cut()
    assert kit.row.consecutive == 0
    for _ in range(5):
        fail()
    assert kit.row.phase is Phase.STOPPED
    assert "bad disk" in kit.row.stop_reason
    kit.do(lambda tx: life.start(tx, by="me"))
    kit.settle()
    assert kit.row.phase is Phase.RUNNING


def test_X6_nth_attempt_waits_twice_as_long(make_kit: type[Kit]) -> None:
    """SPEC X6: min(2ⁿ, 60) seconds."""
    kit = make_kit(max_consecutive_resets=20).running()
    waits = []
    for _ in range(8):
        kit.fail(0)
        waits.append(kit.row.not_before - kit.now)
    assert waits == [2, 4, 8, 16, 32, 60, 60, 60]


def test_X7_reset_that_takes_too_long_while_settled_is_attempted_again(kit: Kit) -> None:
    """SPEC X7: the time counts while the group is settled only."""
    kit.running()
    epoch = kit.do(lambda tx: resets.request(tx, cause="x", by="me"))
    kit.advance(1.0)
    kit.advance(39.0)
    assert kit.row.epoch == epoch, "members of the older epoch hold everything: settled, but not there yet"
    kit.advance(2.0)
    assert kit.row.epoch == epoch + 1


def test_X7_an_attempt_in_which_a_member_arrives_has_its_time_from_then_on(kit: Kit) -> None:
    kit.running()
    epoch = kit.do(lambda tx: resets.request(tx, cause="x", by="me"))
    kit.advance(1.0)
    kit.now += 39.0
    kit.report(0, {P0})
    kit.advance(2.0)
    kit.advance(LIMITS.reset_timeout)
    assert kit.row.epoch == epoch
    kit.advance(1.0)
    assert kit.row.epoch == epoch + 1


def test_53_reset_asked_for_meanwhile_keeps_or_lowers_the_target(kit: Kit) -> None:
    """SPEC X4, X5; fault 53: never raises it."""
    kit.running()
    first, second, third = kit.cut(), kit.cut(), kit.cut()
    kit.do(lambda tx: resets.request(tx, cause="back", by="me", target=second))
    kit.withdraw(0)
    assert kit.row.head == second
    from crkafka_core.model.errors import NoSuchCheckpoint

    with pytest.raises(NoSuchCheckpoint):
        kit.do(lambda tx: resets.request(tx, cause="forth", by="me", target=third))
    kit.do(lambda tx: resets.request(tx, cause="further back", by="me", target=first))
    assert kit.row.head == first
    assert {kit.checkpoint(c).status for c in (second, third)} == {CheckpointStatus.SUPERSEDED}


def test_66_region_that_was_rewound_and_stopped_does_not_run_before_its_tables_are_fenced(make_kit: type[Kit]) -> None:
    """SPEC X4, G9; fault 66: by `start` out of STOPPED and out of IDLE alike."""
    kit = make_kit(tables=("bronze",)).running()
    first = kit.cut()
    kit.cut()
    kit.do(lambda tx: resets.request(tx, cause="back", by="me", target=first))
    assert kit.row.phase is Phase.REWINDING
    kit.do(lambda tx: halting.halt(tx, "test"))
    kit.do(lambda tx: life.start(tx, by="me"))
    kit.settle()
    assert kit.row.phase is Phase.REWINDING
    kit.do(lambda tx: life.stop(tx, token="s", by="me"))
    kit.do(lambda tx: life.start(tx, by="me"))
    for number in (0, 1):
        kit.register(number)
    kit.settle()
    assert kit.row.phase is Phase.REWINDING
    assert kit.plane.read(waits_for) == "what was superseded leaves bronze first"
    permit = kit.do(lambda tx: permits.permit_fence(tx, "bronze", holder="me", token="f"))
    assert permit is not None
    kit.do(lambda tx: permits.finish_fence(tx, permit, version="7"))
    kit.settle()
    assert kit.row.phase is Phase.RUNNING


def test_C5_numbers_only_grow_also_after_an_abort_and_a_rewind(kit: Kit) -> None:
    """SPEC C5; I6."""
    kit.running()
    first = kit.cut()
    aborted = kit.open()
    kit.do(lambda tx: resets.begin(tx, ResetCause.LATE, "test"))
    kit.settle()
    kit.do(lambda tx: resets.request(tx, cause="back", by="me", target=0))
    kit.at = {P0: 0, P1: 0}
    kit.settle()
    third = kit.cut()
    assert first < aborted < third
    assert kit.checkpoint(third).parent == 0


def test_C6_checkpoint_without_new_tuples_merges_with_its_parents_offsets(kit: Kit) -> None:
    """SPEC C6."""
    kit.running()
    kit.cut(10)
    empty = kit.cut(0)
    assert (kit.checkpoint(empty).rows, kit.row.head) == (0, empty)


def test_C4_cut_opened_twice_with_one_token_is_one_cut(kit: Kit) -> None:
    """SPEC C4, A6: a merge is read; whoever comes late or asks again finds the same."""
    kit.running()
    assert kit.open("run 7") == kit.open("run 7")
    cut = kit.row.open_cut
    with pytest.raises(CutOpen, match=f"Cut {cut} of region orders is open"):
        kit.open("run 8")
    kit.contribute(cut, 0)
    kit.contribute(cut, 1)
    done = kit.do(lambda tx: cuts.merge(tx, cut))
    assert kit.do(lambda tx: cuts.merge(tx, cut)) == done
    assert kit.open("run 7") == cut


def test_33_superseded_process_is_told_so_before_it_is_told_anything_else(kit: Kit) -> None:
    """SPEC G3, G7: an older incarnation's report and renewal are refused."""
    kit.running()
    old = kit.live["orders/0"]
    kit.register(0)
    for act in (
        lambda tx: members.report(tx, "orders/0", old, epoch=kit.row.epoch, base=0, generation=1, held={P0}),
        lambda tx: members.renew(tx, "orders/0", old),
    ):
        with pytest.raises(Superseded):
            kit.do(act)


def _join(kit: Kit, number: int) -> None:
    """One more member: Kafka takes everything away from the others and assigns anew; range gives the two partitions to the first two."""
    flowed = kit.row.phase is Phase.RUNNING
    kit.register(number)
    there = [int(name.rpartition("/")[2]) for name in kit.live]
    for other in there:
        if other != number:
            kit.withdraw(other, wants_reset=flowed)
    kit.generation += 1
    kit.settle({n: {P0} if n == 0 else {P1} if n == 1 else set() for n in there})


def test_63_thirty_members_that_trickle_in_at_the_first_start_make_no_reset(make_kit: type[Kit]) -> None:
    """SPEC G8: each comes within the grace of the one before; nothing flows until all are there."""
    kit = make_kit(wanted=30)
    kit.do(lambda tx: life.start(tx, by="test"))
    for number in range(30):
        assert kit.row.phase is Phase.BIRTH
        _join(kit, number)
        kit.now += 5.0
    assert kit.row.phase is Phase.RUNNING
    assert not kit.events("reset")
    assert kit.checkpoint(kit.open()).members == 30


def test_63_thirty_members_that_trickle_in_while_running_make_one_reset(make_kit: type[Kit]) -> None:
    """SPEC G5, G8, X5, X6: the first that joins makes it, the others only unsettle the group; nobody's budget is touched."""
    kit = make_kit(wanted=2).running()
    kit.cut()
    kit.do(lambda tx: life.scale(tx, 30, by="me"))
    for number in range(2, 30):
        _join(kit, number)
        kit.now += 5.0
    assert kit.row.phase is Phase.RUNNING
    assert len(kit.events("reset")) == 1
    assert kit.row.consecutive == 0
    assert kit.checkpoint(kit.open()).members == 30


def test_7_a_lease_is_over_at_its_end_and_numbers_only_grow(kit: Kit) -> None:
    first = kit.do(lambda tx: leases.take(tx, "driver", holder="run 1", token="a", length=30.0))
    kit.now = first.until
    second = kit.do(lambda tx: leases.take(tx, "driver", holder="run 2", token="b", length=30.0))
    kit.do(lambda tx: leases.release(tx, second))
    third = kit.do(lambda tx: leases.take(tx, "driver", holder="run 3", token="c", length=30.0))
    assert [lease.number for lease in (first, second, third)] == [1, 2, 3]


def test_t1_the_row_of_a_readers_lease_goes_with_it(kit: Kit) -> None:
    lease = kit.do(lambda tx: leases.take(tx, "reader", holder="x", token="a", length=30.0, slot="a"))
    kit.do(lambda tx: leases.release(tx, lease))
    assert kit.plane.read(lambda reader, row: reader.get(Lease, "reader", "a")) is None


def test_C3_a_merge_that_cannot_be_says_why_and_changes_nothing(kit: Kit) -> None:
    """SPEC C3: what is missing may still come until the deadline."""
    kit.running()
    cut = kit.open()
    kit.contribute(cut, 0)
    with pytest.raises(NotSettled, match=rf"Checkpoint {cut} still waits for orders/1\."):
        kit.do(lambda tx: cuts.merge(tx, cut))
    assert (kit.row.phase, kit.checkpoint(cut).status) == (Phase.CUTTING, CheckpointStatus.OPEN)
    with pytest.raises(NotOpen, match="Checkpoint 99 of region orders is unknown"):
        kit.do(lambda tx: cuts.merge(tx, 99))
    kit.advance(21.0)
    with pytest.raises(NotOpen, match="is aborted"):
        kit.do(lambda tx: cuts.merge(tx, cut))


def test_R3_another_report_in_a_cut_aborts_it(kit: Kit) -> None:
    """SPEC R3, C2: what the cut has fixed is no longer so."""
    kit.running()
    cut = kit.open()
    kit.report(1, {P1}, generation=2)
    assert (kit.row.phase, kit.checkpoint(cut).status) == (Phase.RESETTING, CheckpointStatus.ABORTED)
    assert kit.checkpoint(cut).note == "orders/1 reports another assignment during the cut"


def test_D2_who_cannot_do_its_part_aborts_the_cut_and_is_named(kit: Kit) -> None:
    """SPEC D2: only the registered incarnation may."""
    kit.running()
    cut, mine = kit.open(), kit.live["orders/0"]

    def give_up(incarnation: str) -> None:
        kit.do(
            lambda tx: cuts.give_up(
                tx,
                cut,
                member="orders/0",
                incarnation=incarnation,
                why="disk full",
                cause=ResetCause.FAILURE,
            )
        )

    with pytest.raises(Superseded):
        give_up("older")
    assert kit.row.open_cut == cut
    give_up(mine)
    assert (kit.checkpoint(cut).status, kit.checkpoint(cut).note) == (CheckpointStatus.ABORTED, "disk full")
    assert (kit.resets()[-1].cause, kit.resets()[-1].member) == (ResetCause.FAILURE, "orders/0")


def test_G7_a_contribution_wakes_whoever_waits_for_the_region(kit: Kit) -> None:
    """SPEC G7: the version of the region's row is what is waited for."""
    kit.running()
    cut = kit.open()
    before = kit.row.version
    kit.contribute(cut, 0)
    assert kit.row.version > before


def test_G5_who_is_not_wanted_is_refused_with_what_to_do(kit: Kit) -> None:
    """SPEC G5, G9: a process too many, or of a region that is not started."""

    def refused(name: str) -> NotRunning:
        who = members.Registration(name, "new", 99, 0, "cluster", "group")
        with pytest.raises(NotRunning) as found:
            kit.do(lambda tx: members.register(tx, who))
        return found.value

    found = refused("orders/0")
    assert "orders is not started: no members are wanted" in str(found) and "`crkafka start`" in (found.hint or "")
    kit.running()
    found = refused("orders/2")
    assert "orders wants 2 members; orders/2 is not one" in str(found) and "`crkafka scale`" in (found.hint or "")
    assert kit.plane.read(lambda reader, _: reader.count(Member)) == 2


@pytest.mark.parametrize(("cluster", "group"), [("another", "group"), ("cluster", "another")])
def test_G1_a_member_that_connects_to_another_group_or_cluster_is_refused(kit: Kit, cluster: str, group: str) -> None:
    """SPEC G1: it would read other records into the same checkpoints."""
    kit.running()
    who = members.Registration("orders/1", "new", 99, 0, cluster, group)
    with pytest.raises(WrongRegion, match=f"orders/1 connects to group '{group}' on cluster {cluster}"):
        kit.do(lambda tx: members.register(tx, who))
    assert kit.member(1).incarnation == kit.live["orders/1"]


def test_G3_an_earlier_process_that_says_it_failed_costs_the_later_one_nothing(kit: Kit) -> None:
    """SPEC G3, G4; nor does one that has left before."""
    kit.running()
    old = kit.live["orders/0"]
    kit.register(0)
    epoch = kit.row.epoch
    kit.do(lambda tx: members.fail(tx, "orders/0", old, "x"))
    assert (kit.member(0).status, kit.row.epoch) == (MemberStatus.LIVE, epoch)
    kit.do(lambda tx: members.leave(tx, "orders/0", kit.live["orders/0"]))
    kit.do(lambda tx: members.fail(tx, "orders/0", kit.live["orders/0"], "x"))
    assert kit.member(0).status is MemberStatus.LEFT


def test_44_who_caught_up_has_its_whole_time_again_when_it_falls_behind_again(kit: Kit) -> None:
    """SPEC G4: members look when somebody is behind, and when one that was behind has caught up."""
    kit.running()
    kit.report(1, {P1}, generation=2)
    assert kit.plane.read(advance.due)
    kit.advance()
    assert kit.member(0).stale_since == kit.now
    kit.report(0, {P0}, generation=2)
    assert kit.plane.read(advance.due)
    kit.advance(1.0)
    assert kit.member(0).stale_since == 0.0 and not kit.plane.read(advance.due)
    kit.report(1, {P1}, generation=3)
    kit.advance(60.0)
    assert kit.member(0).status is MemberStatus.LIVE
    kit.advance(LIMITS.stale_generation - 0.5)
    assert kit.member(0).status is MemberStatus.LIVE
    kit.advance(0.5)
    assert kit.member(0).status is MemberStatus.LOST
