"""Single rules of the member's machine, where events come in an order that Kafka and SQL permit but seldom show (SPEC M9)."""

from __future__ import annotations

from dataclasses import replace

from crkafka_core.model.desired import OpenCut
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import ClientState, Phase
from crkafka_core.model.rows import ResetCause
from crkafka_core.protocol import signals as sg
from crkafka_core.protocol.state import Gate, State, Step
from tests.protocol.test_machine import Player, kinds

P0, P1 = TP("t", 0), TP("t", 1)
RUNNING = replace(Player().desired, version=1, phase=Phase.RUNNING, fills=frozenset({P0}))


class Machine(Player):
    def flowing(self) -> Machine:
        """RUNNING, holding P0, records fetched, permits given."""
        self.hear(sg.Lease(True), sg.Observed(RUNNING), sg.Assigned(frozenset({P0}), 1))
        self.hear(sg.Started(self.state.stamp, {P0: 0}, {"t": "id"}), sg.Fetched())
        assert (self.state.gate, self.state.client) == (Gate.OPEN, ClientState.RECORDS_FETCHED)
        return self


def test_r2_an_assignment_without_a_revocation_is_taken_as_one() -> None:
    """docs/clients.md C-K8: `lost` can fail to come. What was fetched under the old assignment must not go on as if nothing had been."""
    m = Machine().flowing()
    effects = m.hear(sg.Assigned(frozenset({P0, P1}), 2))
    assert any(isinstance(e, sg.Withdraw) for e in effects)
    assert not any(isinstance(e, sg.Resolve) for e in effects), "the reset does it"
    assert m.state.client is ClientState.CR_RESET_PENDING
    assert m.state.held == {P0, P1}
    again = m.hear(sg.GateClosed(), sg.Observed(replace(RUNNING, version=2, epoch=2, phase=Phase.RESETTING)))
    assert any(isinstance(e, sg.Resolve) and e.held == {P0, P1} for e in again)


def test_r2_an_idle_member_that_is_assigned_nothing_again_asks_for_no_reset() -> None:
    m = Machine()
    m.hear(sg.Lease(True), sg.Observed(RUNNING), sg.Assigned(frozenset(), 1))
    m.hear(sg.Started(m.state.stamp, {}, {}))
    assert not any(isinstance(e, sg.Withdraw) for e in m.hear(sg.Assigned(frozenset(), 2)))


def test_94_a_partition_without_a_leader_or_a_start_is_left_out_until_it_has_one() -> None:
    """The member reads, reports and contributes what else it holds; then it takes part with all, by a reset (SPEC R2, R4)."""
    m = Machine()
    m.hear(sg.Lease(True), sg.Observed(RUNNING), sg.Assigned(frozenset({P0, P1}), 1))
    effects = m.hear(sg.Started(m.state.stamp, {P0: 0}, {"t": "id"}, leaderless=frozenset({P1})), sg.Fetched())
    assert [e.held for e in effects if isinstance(e, sg.Report)] == [{P0}] and m.state.gate is Gate.OPEN
    assert m.hear(sg.Led(frozenset({P0}))) == [], "not what it waits for"
    effects = m.hear(sg.Led(frozenset({P1})))
    assert any(isinstance(e, sg.Withdraw) for e in effects) and m.state.gate is Gate.CLOSING
    again = m.hear(sg.GateClosed(), sg.Observed(replace(RUNNING, version=2, epoch=2, phase=Phase.RESETTING)))
    assert any(isinstance(e, sg.Resolve) and e.held == {P0, P1} for e in again)


def test_94_a_partition_gets_its_leader_while_a_cut_is_open_however_often_cuts_come() -> None:
    m = Machine()
    m.hear(sg.Lease(True), sg.Observed(RUNNING), sg.Assigned(frozenset({P0, P1}), 1))
    m.hear(sg.Started(m.state.stamp, {P0: 0}, {"t": "id"}, leaderless=frozenset({P1})), sg.Fetched())
    m.hear(
        sg.Observed(replace(RUNNING, version=2, phase=Phase.CUTTING, cut=OpenCut(1, 0, 1, ("r/0",), frozenset({P0}))))
    )
    assert m.state.step is not Step.NONE
    effects = m.hear(sg.Led(frozenset({P1})))
    assert any(isinstance(e, sg.Withdraw) for e in effects) and m.state.held == {P0, P1}


def test_94_every_reset_asks_again_where_a_partition_without_a_leader_starts() -> None:
    m = Machine()
    m.hear(sg.Lease(True), sg.Observed(RUNNING), sg.Assigned(frozenset({P0, P1}), 1))
    m.hear(sg.Started(m.state.stamp, {P0: 0}, {"t": "id"}, leaderless=frozenset({P1})), sg.Fetched())
    m.hear(sg.Observed(replace(RUNNING, version=2, epoch=2, phase=Phase.RESETTING)))
    assert any(isinstance(e, sg.Resolve) and e.held == {P0, P1} for e in m.hear(sg.GateClosed()))


def test_p3_records_flow_only_while_it_runs_and_before_anything_is_known_nothing_does() -> None:
    assert not State().fetches and not State().submits and not State().leaves and not State().scaled_in
    m = Machine().flowing()
    assert m.state.fetches
    m.hear(sg.Stop())
    assert not m.state.fetches, "a leaving member fetches no more"


def test_g5_who_is_wanted_no_more_leaves_and_is_scaled_in_unless_the_region_is_idle() -> None:
    m = Machine().flowing()
    assert not m.state.leaves and not m.state.scaled_in
    assert kinds(m.hear(sg.Observed(replace(RUNNING, version=2, wanted=False)))) == ["AskToLeave", "CloseGate"]
    assert m.state.leaves and m.state.scaled_in
    assert kinds(m.hear(sg.GateClosed())) == [], "what it has submitted is merged first"
    over = replace(RUNNING, version=3, epoch=2, phase=Phase.RESETTING, wanted=False, fills=None)
    assert kinds(m.hear(sg.Observed(over))) == ["Clear", "Exit"] and m.state.ended is sg.ExitKind.CLEAN
    idle = Machine().flowing()
    idle.hear(sg.Observed(replace(RUNNING, version=2, wanted=False, phase=Phase.IDLE)))
    assert idle.state.leaves and not idle.state.scaled_in


def test_g10_the_same_state_seen_again_is_no_step_back() -> None:
    m = Machine().flowing()
    assert m.hear(sg.Observed(RUNNING)) == [] and m.state.ended is None
    m.hear(sg.Observed(replace(RUNNING, version=0)))
    assert m.state.ended is sg.ExitKind.FAILED


def test_r2_a_revocation_forgets_what_was_held_reported_and_asked() -> None:
    m = Machine().flowing()
    stamp = m.state.stamp
    m.hear(sg.Revoked())
    assert m.state.held is None and m.state.report is None and m.state.started is None
    assert m.state.stamp.serial == stamp.serial + 1
    assert kinds(m.hear(sg.Started(stamp, {P0: 0}, {"t": "id"}), sg.Sought(stamp))) == []


def test_r2_another_assignment_before_records_flow_is_no_revocation() -> None:
    m = Machine()
    m.hear(
        sg.Lease(True),
        sg.Observed(replace(RUNNING, phase=Phase.RESETTING, fills=None)),
        sg.Assigned(frozenset({P0}), 1),
    )
    m.hear(sg.Started(m.state.stamp, {P0: 0}, {"t": "id"}))
    assert kinds(m.hear(sg.Assigned(frozenset({P1}), 2))) == ["Clear", "Resolve"]


def test_s1_an_answer_that_lacks_a_partition_is_asked_for_again() -> None:
    m = Machine()
    m.hear(sg.Lease(True), sg.Observed(RUNNING), sg.Assigned(frozenset({P0, P1}), 1))
    assert kinds(m.hear(sg.Started(m.state.stamp, {P0: 0}, {"t": "id"}))) == ["Resolve"]


def test_s1_a_start_that_could_not_be_resolved_is_asked_for_again_and_an_older_one_is_not() -> None:
    m = Machine()
    m.hear(sg.Lease(True), sg.Observed(RUNNING), sg.Assigned(frozenset({P0}), 1))
    old = m.state.stamp
    assert kinds(m.hear(sg.NotStarted(old))) == ["Refresh", "Resolve"]
    m.hear(sg.Assigned(frozenset({P1}), 2))
    assert kinds(m.hear(sg.NotStarted(old))) == []


def test_m5_a_disturbance_before_the_start_is_forgotten_by_it() -> None:
    m = Machine()
    m.hear(sg.Lease(True), sg.Observed(RUNNING), sg.Assigned(frozenset({P0}), 1), sg.Disturbed("early"))
    assert kinds(m.hear(sg.Started(m.state.stamp, {P0: 0}, {"t": "id"}))) == ["Seek", "Report", "OpenGate"]


def test_r3_a_report_that_was_refused_is_made_again_and_an_older_one_is_not() -> None:
    m = Machine().flowing()
    report = m.state.report
    assert report is not None
    assert kinds(m.hear(sg.NotReported(report))) == ["Refresh", "Report"]
    assert kinds(m.hear(sg.NotReported(replace(report, generation=0)))) == ["Refresh"]
    assert kinds(m.hear(sg.NotContributed())) == ["Refresh"]
    assert m.state.report == report


def test_g10_a_report_that_a_backup_has_not_got_is_made_again() -> None:
    """SQL had it, was replaced by an older state, and others have brought its version as far as this member had seen."""
    m = Machine().flowing()
    report = m.state.report
    assert report is not None
    without, there = replace(RUNNING, reported=False), replace(RUNNING, reported=True)
    assert kinds(m.hear(sg.Observed(without))) == [], "it is on its way"
    m.hear(sg.Reported(replace(report, generation=0)))
    assert kinds(m.hear(sg.Observed(without))) == [], "the answer was to an earlier one"
    m.hear(sg.Reported(report))
    assert kinds(m.hear(sg.Observed(there))) == []
    assert m.hear(sg.Observed(without)) == [report]
    assert kinds(m.hear(sg.Observed(without))) == [], "it is on its way again"
    m.hear(sg.Reported(report))
    assert kinds(m.hear(sg.Observed(replace(without, epoch=RUNNING.epoch + 1)))) == ["CloseGate"], (
        "of an epoch that is over"
    )


def test_g10_a_cut_that_a_backup_was_not_asked_for_is_asked_for_again() -> None:
    """The member submits nothing until that cut: without it a region whose cuts come by count alone would wait for ever."""
    m = Machine().flowing()
    m.hear(sg.Triggered(RUNNING.epoch, RUNNING.head))
    without, there = replace(RUNNING, asked=False), replace(RUNNING, asked=True)
    assert kinds(m.hear(sg.Observed(there))) == []
    assert m.hear(sg.Observed(without)) == [sg.AskCut(RUNNING.epoch, RUNNING.head)]
    assert "AskCut" not in kinds(m.hear(sg.Observed(replace(without, epoch=RUNNING.epoch + 1)))), (
        "of an epoch that is over"
    )


def test_d2_a_cut_is_given_up_once() -> None:
    """By the commit or by a segment; what fails afterwards asks for a reset."""
    for first in (sg.Committed(7, sg.Outcome.ABORT, "away"), sg.Trouble(1, "disk", ResetCause.UNAVAILABLE)):
        m = Machine().flowing()
        m.hear(
            sg.Observed(
                replace(RUNNING, version=2, phase=Phase.CUTTING, cut=OpenCut(7, 0, 1, ("r/0",), frozenset({P0})))
            )
        )
        m.hear(sg.GateClosed())
        assert kinds(m.hear(first)) == ["GiveUp"]
        assert kinds(m.hear(sg.Trouble(1, "again", ResetCause.UNAVAILABLE))) == ["AskReset"]


def test_g8_a_rebalance_is_forced_only_by_who_holds_something_and_is_in_no_cut() -> None:
    assert kinds(Machine().hear(sg.WronglyShared("nobody holds t-0"))) == []
    m = Machine().flowing()
    assert kinds(m.hear(sg.WronglyShared("nobody holds t-0"))) == ["ForceRebalance"]
    m.hear(
        sg.Observed(replace(RUNNING, version=2, phase=Phase.CUTTING, cut=OpenCut(7, 0, 1, ("r/0",), frozenset({P0}))))
    )
    assert kinds(m.hear(sg.WronglyShared("nobody holds t-0"))) == []


def test_g3_what_only_a_new_process_can_mend_ends_this_one() -> None:
    m = Machine().flowing()
    assert kinds(m.hear(sg.Broken("why"))) == ["Exit"] and m.state.ended is sg.ExitKind.FAILED
