"""The member's decisions, step by step: what it hears and what it wants done (SPEC M9 and the rules in the names)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from crkafka_core.model.desired import Desired, Mark, OpenCut
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import ClientState, Phase
from crkafka_core.model.rows import ResetCause
from crkafka_core.protocol import signals as sg
from crkafka_core.protocol.machine import step
from crkafka_core.protocol.signals import ExitKind, Outcome, Stamp
from crkafka_core.protocol.state import Gate, State, Step

A, B = TP("t", 0), TP("t", 1)
HELD = frozenset({A, B})


class Player:
    """A machine that is told one thing after the other. Its client gets where it is sent, unless it `sticks`."""

    def __init__(self, **changes: Any) -> None:
        self.state = State(**changes)
        self.sticks = False
        self.version = 0
        self.desired = Desired(
            "u",
            0,
            epoch=1,
            phase=Phase.RESETTING,
            head=0,
            registered=True,
            superseded=False,
            wanted=True,
            filling=1,
            fills=HELD,
        )

    def hear(self, *events: sg.Event) -> list[sg.Effect]:
        done: list[sg.Effect] = []
        for event in events:
            self.state, effects = step(self.state, event)
            done += effects
            for effect in effects:
                if isinstance(effect, sg.Seek | sg.Requeue) and not self.sticks:
                    done += self.hear(sg.Sought(effect.stamp))
        return done

    def see(self, **changes: Any) -> list[sg.Effect]:
        self.version += 1
        self.desired = replace(self.desired, version=self.version, **changes)
        return self.hear(sg.Observed(self.desired))

    def started(self, offset: int = 0) -> list[sg.Effect]:
        return self.hear(sg.Started(self.state.stamp, dict.fromkeys(HELD, offset), {"t": "id"}))

    def running(self) -> Player:
        """Assigned, started, submitting."""
        self.see()
        self.hear(sg.Lease(True), sg.Assigned(HELD, 1))
        self.started()
        self.see(phase=Phase.RUNNING)
        self.hear(sg.Fetched())
        assert self.state.gate is Gate.OPEN and self.state.client is ClientState.RECORDS_FETCHED
        return self

    def cutting(self, mine: frozenset[TP] | None = HELD, cut: int = 7, **changes: Any) -> list[sg.Effect]:
        return self.see(phase=Phase.CUTTING, cut=OpenCut(cut, self.state.base, 1, ("r/0",), mine), **changes)

    def handing_over(self, cut: int, **changes: Any) -> list[sg.Effect]:
        """A handover's cut is open of the number that is being filled."""
        base = changes.get("head", self.state.base)
        opened = OpenCut(cut, base, -1, ("r/0",), HELD, handover=True)
        return self.see(phase=Phase.CUTTING, cut=opened, filling=cut, **changes)

    def marking(self, **changes: Any) -> list[sg.Effect]:
        """The opening has handed out the next number."""
        return self.cutting(filling=8, **changes)


def kinds(effects: list[sg.Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


@pytest.fixture
def player() -> Player:
    return Player().running()


def test_R4_an_assignment_clears_and_asks_where_to_start_and_nothing_flows_before() -> None:
    p = Player()
    p.see()
    assert kinds(p.hear(sg.Lease(True), sg.Assigned(HELD, 1))) == ["Clear", "Resolve"]
    assert not p.state.fetches and p.state.gate is Gate.CLOSED
    assert kinds(p.started()) == ["Seek", "Report"]
    assert not p.state.fetches, "the region has not resumed (M8)"


def test_M8_permits_come_with_the_phase_and_with_the_lease() -> None:
    p = Player()
    p.see()
    p.hear(sg.Assigned(HELD, 1))
    p.started()
    assert kinds(p.see(phase=Phase.RUNNING)) == []
    assert kinds(p.hear(sg.Lease(True))) == ["OpenGate"]
    assert kinds(p.hear(sg.Lease(False))) == ["CloseGate"], "G4: its lease ended"


def test_C8_only_who_fills_a_number_with_what_it_holds_submits_to_it() -> None:
    p = Player()
    p.see(fills=None)
    p.hear(sg.Lease(True), sg.Assigned(HELD, 1))
    p.started()
    assert kinds(p.see(phase=Phase.RUNNING)) == [], "it has joined since the number was handed out"
    assert kinds(p.see(fills=frozenset({TP("t", 9)}))) == [], "it fills other partitions"
    assert p.see(filling=2, fills=HELD) == [sg.OpenGate(p.state.stamp, 2)]


def test_M4_a_start_under_an_old_stamp_is_dropped_and_asked_for_again() -> None:
    p = Player()
    p.see()
    p.hear(sg.Assigned(HELD, 1))
    old = p.state.stamp
    assert kinds(p.see(epoch=2)) == ["Clear", "Resolve"]
    assert kinds(p.hear(sg.Started(old, dict.fromkeys(HELD, 5), {"t": "id"}))) == []
    assert kinds(p.started()) == ["Seek", "Report"]


def test_R2_a_revocation_while_records_flow_is_withdrawn_at_once_and_seeks_nothing(player: Player) -> None:
    effects = player.hear(sg.Revoked("partitions lost"))
    assert kinds(effects) == ["Clear", "Withdraw", "CloseGate"] and sg.Withdraw("partitions lost") in effects
    assert player.state.client is ClientState.CR_RESET_PENDING
    assert kinds(player.hear(sg.GateClosed(), sg.Assigned(HELD, 2))) == ["Clear"], "in CR_RESET_PENDING the reset seeks"
    assert kinds(player.see(epoch=2, phase=Phase.RESETTING)) == ["Clear", "Resolve"]


def test_R2_where_nothing_flows_a_revocation_before_anything_was_fetched_is_resolved_anew() -> None:
    p = Player()
    p.see()
    p.hear(sg.Assigned(HELD, 1))
    assert kinds(p.hear(sg.Revoked())) == ["Clear", "Withdraw"]
    assert kinds(p.hear(sg.Assigned(frozenset({A}), 2))) == ["Clear", "Resolve"]


def test_X2_a_reset_waits_for_the_holder_of_the_permit_and_then_drops_everything(player: Player) -> None:
    assert kinds(player.see(epoch=2, phase=Phase.RESETTING)) == ["CloseGate"]
    assert player.state.epoch == 1
    effects = player.hear(sg.GateClosed())
    assert kinds(effects) == ["Clear", "Resolve"]
    assert effects[0] == sg.Clear(Stamp(2, 0, player.state.serial), drop=True)
    assert player.state.client is ClientState.RESET_COMPLETE


def test_D1_a_cut_closes_the_gate_then_saves_and_commits_and_polls_no_more(player: Player) -> None:
    assert kinds(player.cutting()) == ["CloseGate"] and not player.state.polls
    assert kinds(player.hear(sg.GateClosed())) == ["Save", "Commit"]
    assert kinds(player.hear(sg.Committed(7, Outcome.DONE))) == []
    assert kinds(player.hear(sg.Saved(7, "payload"))) == ["Contribute"]
    assert not player.state.polls
    assert kinds(player.hear(sg.Contributed(6))) == [] and player.state.step is Step.CONTRIBUTING
    assert kinds(player.hear(sg.Contributed(7))) == [] and player.state.step is Step.CONTRIBUTED
    effects = player.see(phase=Phase.RUNNING, head=7, cut=None, filling=8)
    assert kinds(effects) == ["Merged", "OpenGate"] and player.state.polls
    assert effects[1] == sg.OpenGate(Stamp(1, 7, player.state.serial), 8), "the queue stays valid: its serial does"


def test_V1_a_cut_that_is_over_without_a_new_epoch_or_head_had_nothing_new_and_the_member_goes_on(
    player: Player,
) -> None:
    base = player.state.base
    player.cutting()
    player.hear(sg.GateClosed())
    player.hear(sg.Committed(7, Outcome.DONE))
    player.hear(sg.Saved(7, "payload"))
    player.hear(sg.Contributed(7))
    serial = player.state.serial
    effects = player.see(phase=Phase.RUNNING, cut=None, filling=8)
    assert effects == [sg.Merged(base), sg.OpenGate(Stamp(1, base, serial), 8)]
    assert player.state.polls
    assert kinds(player.cutting(cut=8)) == ["CloseGate"], "and takes part in the next one"


def test_D2_commit_consistent_contributes_without_a_commit() -> None:
    p = Player(commit_at_drain=False).running()
    p.cutting()
    assert kinds(p.hear(sg.GateClosed())) == ["Save"]
    assert kinds(p.hear(sg.Saved(7, "payload"))) == ["Contribute"]
    assert kinds(p.hear(sg.Contributed(7))) == []
    assert p.see(phase=Phase.RUNNING, head=7, cut=None)[:2] == [sg.Commit(7, merged=True), sg.Merged(7)]


def test_D5_behind_a_mark_a_member_goes_on_with_the_next_number_and_commits_once_it_has_contributed(
    player: Player,
) -> None:
    assert player.marking() == [sg.Save(7, 8)]
    assert player.state.submits and player.state.polls and player.state.gate is Gate.OPEN
    (contribute,) = player.hear(sg.Saved(7, "payload"))
    assert isinstance(contribute, sg.Contribute) and contribute.payload == "payload"
    assert player.hear(sg.Contributed(7)) == [sg.Commit(7)]
    assert player.hear(sg.Committed(7, Outcome.ABORT, "why")) == [], "a later commit covers it"
    assert player.see(phase=Phase.RUNNING, head=7, cut=None) == [sg.Merged(7)]
    assert player.state.stamp == Stamp(1, 7, player.state.serial) == player.state.started
    assert player.state.gate is Gate.OPEN


def test_D5_a_member_that_hears_of_the_merge_first_commits_then_and_marks_the_next_cut_in_the_same_step(
    player: Player,
) -> None:
    player.marking()
    player.hear(sg.Saved(7, "payload"))
    cut = OpenCut(8, 7, 1, ("r/0",), HELD)
    assert player.see(head=7, filling=9, cut=cut) == [sg.Commit(7), sg.Merged(7), sg.Save(8, 9)], (
        "S2: no table has what is merged just now, so the metadata says what it says before the merge"
    )
    assert player.hear(sg.Contributed(7)) == [], "that is over"
    assert player.state.gate is Gate.OPEN


@pytest.mark.parametrize("event", [sg.Stop(), sg.Triggered(1, 0)])
def test_D5_a_leaver_and_a_full_count_stop_at_their_mark(player: Player, event: sg.Event) -> None:
    player.hear(event)
    player.marking()
    assert kinds(player.hear(sg.GateClosed())) in (["Save", "Commit"], ["Exit"])
    player = Player().running()
    player.marking()
    assert "CloseGate" in kinds(player.hear(event)), "behind it too"
    player.hear(sg.GateClosed(), sg.Saved(7, "payload"), sg.Contributed(7))
    assert player.state.ended is None, "R5: it waits for the merge"


def test_D5_a_requeue_does_not_wait_for_the_merge_and_the_merge_does_not_void_it(player: Player) -> None:
    player.marking()
    player.sticks = True
    player.hear(sg.Disturbed("why"))
    (requeue,) = player.hear(sg.GateClosed())
    assert isinstance(requeue, sg.Requeue)
    player.hear(sg.Saved(7, "payload"), sg.Contributed(7))
    assert player.see(phase=Phase.RUNNING, head=7, cut=None) == [sg.Merged(7)], "nothing is resolved from the head"
    assert player.hear(sg.Sought(requeue.stamp)) == [sg.OpenGate(Stamp(1, 7, requeue.stamp.serial), 8)]


def test_D5_pause_marks_that_come_with_a_cut_hold_for_what_is_behind_its_mark(player: Player) -> None:
    assert kinds(player.marking(marks=frozenset({Mark("partition", "t[0]")}))) == ["CloseGate", "Save"]
    assert kinds(player.hear(sg.GateClosed())) == ["Requeue", "OpenGate"]


def test_X10_a_revocation_behind_a_mark_voids_nothing_and_the_handover_takes_what_came_behind_it(
    player: Player,
) -> None:
    player.marking()
    assert kinds(player.hear(sg.Revoked())) == ["Clear", "Withdraw", "CloseGate"]
    player.hear(sg.GateClosed(), sg.Assigned(frozenset({A}), 2), sg.Revoked(), sg.Assigned(HELD, 3))
    (contribute,) = player.hear(sg.Saved(7, "payload"))
    assert isinstance(contribute, sg.Contribute) and contribute.generation == 1, "that of the mark"
    assert player.hear(sg.Contributed(7)) == [], "it holds nothing of what it would commit"
    assert kinds(player.handing_over(8, head=7)) == ["Merged", "Save"]
    (contribute,) = player.hear(sg.Saved(8, "rest"))
    assert isinstance(contribute, sg.Contribute) and (contribute.cut.id, contribute.base) == (8, 7)


@pytest.mark.parametrize("heard", ["revoked", "assigned to others", "not yet", "after it has contributed"])
def test_X10_a_member_contributes_to_a_handover_what_it_filled_whatever_it_holds_and_polls_on(
    player: Player, heard: str
) -> None:
    moves = {"revoked": (sg.Revoked(),), "assigned to others": (sg.Revoked(), sg.Assigned(frozenset(), 2))}
    player.hear(*moves.get(heard, ()), sg.GateClosed())
    assert "Save" in kinds([*player.handing_over(1), *player.hear(sg.GateClosed())])
    (contribute,) = player.hear(sg.Saved(1, "payload"))
    assert isinstance(contribute, sg.Contribute) and player.state.polls and not player.state.fetches
    if heard == "after it has contributed":
        assert "Resolve" not in kinds(player.hear(sg.Revoked(), sg.Assigned(frozenset({A}), 2)))
    assert "Commit" not in kinds(player.hear(sg.Contributed(1))), "it commits nothing before its merge"
    assert (
        kinds(player.see(epoch=2, head=1, phase=Phase.RESETTING, cut=None, fills=None))
        == ["Clear", "Resolve"][: 1 + (player.state.held is not None)]
    )


def test_X10_a_member_that_a_merge_went_without_submits_nothing_and_starts_from_the_next_epoch(player: Player) -> None:
    player.marking()
    player.hear(sg.Saved(7, "payload"))
    left_out = OpenCut(8, 7, -1, ("r/1",), None, handover=True)
    assert "Merged" not in kinds(player.see(phase=Phase.CUTTING, head=7, cut=left_out, fills=None))
    assert kinds(player.hear(sg.GateClosed())) == ["Clear"] and not player.state.submits
    assert kinds(player.see(epoch=2, head=8, phase=Phase.RESETTING, cut=None)) == ["Clear", "Resolve"]


def test_X10_a_start_that_was_asked_for_before_records_flowed_moves_nobody_who_fills() -> None:
    p = Player()
    p.see()
    p.hear(sg.Lease(True), sg.Assigned(HELD, 1))
    p.started()
    p.hear(sg.Revoked(), sg.Assigned(HELD, 2))
    p.see(phase=Phase.RUNNING)
    assert "Seek" not in kinds(p.started()), "it fills the number from where it was placed before"
    assert "Save" in kinds(p.handing_over(1))


@pytest.mark.parametrize("head", [0, 7])
def test_D5_a_joiner_resolves_its_starts_once_the_open_cut_is_over(head: int) -> None:
    """Else it finds a gap that the merge closes, or makes a partition known that the cut does not cover."""
    p = Player()
    p.cutting(mine=None)
    assert kinds(p.hear(sg.Lease(True), sg.Assigned(HELD, 2))) == ["Clear"]
    assert "Resolve" in kinds(p.see(phase=Phase.RUNNING, head=head, cut=None))


@pytest.mark.parametrize("contributed", [False, True])
def test_S4_records_that_are_gone_behind_a_mark_reset_the_region_once_the_cut_is_over(
    player: Player, contributed: bool
) -> None:
    """Kafka may have lost what the cut has taken, too."""
    player.marking()
    if contributed:
        player.hear(sg.Saved(7, "payload"), sg.Contributed(7))
    assert player.hear(sg.Trouble(1, "offset gone", ResetCause.OFFSET_GONE)) == []
    assert player.state.submits, "other partitions flow"
    player.hear(sg.Saved(7, "payload"), sg.Contributed(7))
    after = player.see(phase=Phase.RUNNING, head=7, cut=None)
    assert after == [sg.Merged(7), sg.AskReset(1, "offset gone", ResetCause.OFFSET_GONE)]


def test_X10_records_that_are_gone_in_a_handover_drop_nothing_that_was_submitted(player: Player) -> None:
    player.handing_over(1)
    player.hear(sg.GateClosed())
    assert player.hear(sg.Trouble(1, "offset gone", ResetCause.OFFSET_GONE)) == []
    assert kinds(player.hear(sg.Saved(1, "payload"))) == ["Contribute"]


def test_D5_an_abort_behind_a_mark_drops_what_was_written_since(player: Player) -> None:
    player.marking()
    player.hear(sg.Saved(7, "payload"))
    assert kinds(player.see(epoch=2, phase=Phase.RESETTING, cut=None, fills=None)) == ["CloseGate"]
    assert player.hear(sg.GateClosed())[0] == sg.Clear(Stamp(2, 0, player.state.serial), drop=True)
    assert player.state.marked == 0


@pytest.mark.parametrize(
    ("outcome", "effect"), [(Outcome.ABORT, "GiveUp"), (Outcome.REBALANCED, ""), (Outcome.RESTART, "Exit")]
)
def test_D2_how_a_commit_failed_decides_what_follows(player: Player, outcome: Outcome, effect: str) -> None:
    player.cutting()
    player.hear(sg.GateClosed())
    effects = player.hear(sg.Committed(7, outcome, "why"))
    assert kinds(effects) == [effect] * bool(effect)
    if outcome is not Outcome.RESTART:
        assert not player.state.polls
        contributes = ["Contribute"] if outcome is Outcome.REBALANCED else []  # what was given up is not contributed
        assert kinds(player.hear(sg.Saved(7, "payload"))) == contributes, "a rebalance aborts no cut (X10)"


@pytest.mark.parametrize("mine", [None, frozenset({A})])
def test_C2_a_cut_that_fixed_something_else_is_not_taken_part_in(player: Player, mine: frozenset[TP] | None) -> None:
    player.cutting(mine)
    assert player.state.step is Step.NONE and player.state.polls


def test_D4_an_aborted_cut_is_left_by_the_epoch(player: Player) -> None:
    player.cutting()
    player.hear(sg.GateClosed())
    assert kinds(player.see(epoch=2, phase=Phase.RESETTING, cut=None)) == ["Clear", "Resolve"]
    assert player.state.step is Step.NONE and player.state.payload is None
    assert kinds(player.hear(sg.Saved(7, "late"), sg.Committed(7, Outcome.DONE))) == []


def test_S1_a_head_that_it_did_not_contribute_to_is_resolved_from_again() -> None:
    p = Player()
    p.see()
    p.hear(sg.Assigned(HELD, 1))
    p.started()
    assert kinds(p.see(phase=Phase.RUNNING, head=3)) == ["Clear", "Resolve"]


def test_M5_a_disturbance_fetches_again_under_a_new_serial_once_nobody_holds_the_permit(player: Player) -> None:
    serial = player.state.serial
    assert kinds(player.hear(sg.Disturbed("why"))) == ["CloseGate"]
    assert kinds(player.hear(sg.GateClosed())) == ["Requeue", "OpenGate"]
    assert player.state.serial == serial + 1


def test_M5_a_disturbance_in_a_cut_waits_for_its_end(player: Player) -> None:
    player.cutting()
    player.hear(sg.GateClosed())
    assert kinds(player.hear(sg.Disturbed("why"))) == []
    player.hear(sg.Committed(7, Outcome.DONE), sg.Saved(7, "payload"), sg.Contributed(7))
    assert kinds(player.see(phase=Phase.RUNNING, head=7, cut=None)) == ["Merged", "Requeue", "OpenGate"]


def test_M5_nothing_is_submitted_before_the_client_is_where_it_was_sent(player: Player) -> None:
    """A seek that fails for one partition leaves the client past records that nobody has: the gate stays closed until it is sought."""
    player.sticks = True
    player.hear(sg.Disturbed("why"))
    (requeue,) = player.hear(sg.GateClosed())
    assert isinstance(requeue, sg.Requeue)
    assert not player.state.submits and not player.state.fetches and player.state.started is None
    assert player.hear(sg.Sought(Stamp(1, 0, requeue.stamp.serial - 1))) == [], "an answer to an older one is none"
    (again,) = player.hear(sg.NotSought(requeue.stamp))
    assert isinstance(again, sg.Requeue) and again.stamp.serial == requeue.stamp.serial + 1
    assert kinds(player.hear(sg.Sought(again.stamp))) == ["OpenGate"]


def test_R4_a_start_that_could_not_be_sought_is_neither_reported_nor_resolved_again_but_sought_again() -> None:
    p = Player()
    p.sticks = True
    p.see()
    p.hear(sg.Lease(True), sg.Assigned(HELD, 1))
    (seek,) = p.started()
    assert isinstance(seek, sg.Seek)
    assert kinds(p.see(phase=Phase.RUNNING)) == []
    (again,) = p.hear(sg.NotSought(seek.stamp))
    assert isinstance(again, sg.Requeue)
    assert kinds(p.hear(sg.Sought(again.stamp))) == ["Report", "OpenGate"]


def test_V2_the_trigger_count_stops_submission_and_asks_once(player: Player) -> None:
    assert kinds(player.hear(sg.Triggered(1, 0))) == ["AskCut", "CloseGate"]
    assert kinds(player.hear(sg.Triggered(1, 0))) == []
    late = Player().running()
    assert kinds(late.hear(sg.Triggered(0, 0))) == [], "a count under another epoch is void"


def test_R5_a_leaving_member_waits_for_the_open_cut_and_for_a_handover_of_what_it_has_submitted(player: Player) -> None:
    player.cutting()
    player.hear(sg.GateClosed())
    assert player.hear(sg.Stop()) == [sg.AskToLeave(1)]
    player.hear(sg.Committed(7, Outcome.DONE), sg.Saved(7, "payload"), sg.Contributed(7))
    assert kinds(player.see(phase=Phase.RUNNING, head=7, cut=None, filling=8)) == ["Merged", "AskToLeave"]
    assert kinds(player.handing_over(8)) == ["Save"] and player.state.ended is None
    player.hear(sg.Saved(8, "rest"), sg.Contributed(8))
    assert kinds(player.see(epoch=2, head=8, phase=Phase.RESETTING, cut=None, fills=None)) == ["Clear", "Exit"]
    assert player.state.ended is ExitKind.CLEAN


@pytest.mark.parametrize(
    ("changes", "kind"),
    [({"superseded": True, "registered": False}, ExitKind.SUPERSEDED), ({"registered": False}, ExitKind.LOST)],
)
def test_G3_what_sql_says_of_this_incarnation_ends_it(player: Player, changes: dict[str, bool], kind: ExitKind) -> None:
    assert kinds(player.see(**changes)) == ["Exit"] and player.state.ended is kind
    assert player.hear(sg.Assigned(HELD, 3), sg.Lease(True)) == [], "an ended member does nothing more"


def test_R7_a_fenced_member_asks_sql_first_and_fails_if_it_is_still_registered(player: Player) -> None:
    assert "Refresh" in kinds(player.hear(sg.Fenced())) and player.state.ended is None
    assert player.state.gate is not Gate.OPEN
    player.see()
    assert player.state.ended is ExitKind.FAILED


@pytest.mark.parametrize("changes", [{"epoch": 0}, {"uid": "another"}])
def test_G10_a_control_plane_that_went_back_ends_the_member(player: Player, changes: dict[str, Any]) -> None:
    player.see(**changes)
    assert player.state.ended is ExitKind.FAILED


def test_G10_a_cut_that_vanishes_and_that_sql_never_opened_ends_the_member(player: Player) -> None:
    """It is no cut that had nothing new: that one keeps its number (found by seed 250003296)."""
    player.see(phase=Phase.CUTTING, opened=7, cut=OpenCut(7, player.state.base, 1, ("r/0",), HELD))
    assert kinds(player.see(phase=Phase.RUNNING, opened=6, cut=None)) == ["Exit"]
    assert player.state.ended is ExitKind.FAILED


def test_X3_trouble_in_a_drain_gives_the_cut_up_and_elsewhere_asks_for_a_reset(player: Player) -> None:
    assert player.hear(sg.Trouble(1, "disk full", ResetCause.UNAVAILABLE)) == [
        sg.AskReset(1, "disk full", ResetCause.UNAVAILABLE)
    ]
    player.cutting()
    assert sg.GiveUp(7, "disk full", ResetCause.UNAVAILABLE) in player.hear(
        sg.Trouble(1, "disk full", ResetCause.UNAVAILABLE)
    )
    assert player.hear(sg.Trouble(0, "of an older epoch", ResetCause.FAILURE)) == []


def test_G9_in_a_stopped_region_a_member_stays_and_resolves_nothing() -> None:
    p = Player()
    p.see(phase=Phase.STOPPED)
    assert kinds(p.hear(sg.Assigned(HELD, 1))) == ["Clear"] and p.state.ended is None
    assert kinds(p.see(phase=Phase.RESETTING, epoch=2)) == ["Clear", "Resolve"]


@pytest.mark.parametrize(("before", "head"), [(3, 2), (3, 0), (0, 4)], ids=["a rewind", "initial state", "a handover"])
def test_D2_after_another_head_its_offsets_are_committed_once_records_flow(before: int, head: int) -> None:
    p = Player()
    p.see(head=before)
    p.hear(sg.Lease(True), sg.Assigned(HELD, 1))
    p.started(30)
    p.see(head=head, epoch=2)
    assert "CommitStarts" not in kinds(p.started(20)), "the group may be in the middle of a rebalance"
    assert p.see(phase=Phase.RUNNING)[1:] == [sg.CommitStarts(dict.fromkeys(HELD, 20), head)]
    assert "CommitStarts" not in kinds([*p.hear(sg.Lease(False), sg.GateClosed()), *p.hear(sg.Lease(True))])
