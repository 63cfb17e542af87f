"""Thousands of random schedules hold every invariant; the same seed gives the same history on both control planes."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from crkafka_core.control import Reader
from crkafka_core.member.event_loop import EventLoop
from crkafka_core.model.limits import Limits
from crkafka_core.model.rows import Region, ResetCause, Segment
from crkafka_core.protocol import reset_policy
from tests.rigs.simulation import plan, simulate
from tests.rigs.simulation.oracle import Oracle
from tests.rigs.simulation.plan import Fault, Plan
from tests.simulation.schedules import Outcome, run, sqlite

IN_MEMORY = int(os.environ.get("CRKAFKA_SCHEDULES", "200"))
ON_SQLITE = IN_MEMORY // 4
LONG = 20_000
FIRST = int(os.environ.get("CRKAFKA_SEED", "0"))
"""The soak runs other seeds than `make test`."""


def large(seed: int) -> Plan:
    """Segments and queues as large as in all schedules when this seed was found."""
    return replace(plan(seed), segment_rows=0, queue_rows=0)


@pytest.fixture(scope="module")
def in_memory() -> Outcome:
    return run(range(FIRST, FIRST + IN_MEMORY))


@pytest.mark.slow
@pytest.mark.timeout(2.0 * IN_MEMORY + 120)
def test_random_faults_in_memory_break_no_invariant(in_memory: Outcome) -> None:
    assert in_memory.failures == []


@pytest.mark.timeout(2.0 * IN_MEMORY + 120)
def test_R1_random_faults_in_a_group_of_kip848_break_no_invariant() -> None:
    assert run(range(FIRST, FIRST + IN_MEMORY // 8), epochs=True).failures == []


@pytest.mark.timeout(2.0 * IN_MEMORY + 120)
def test_seeds_differ_in_what_they_try(in_memory: Outcome) -> None:
    """Every fault strikes, cuts merge, resets and rewinds happen, tables are fenced: the schedules are not empty."""
    planned = {fault.kind for seed in range(FIRST, FIRST + IN_MEMORY) for fault in plan(seed).faults}
    assert {kind for _, _, kind in in_memory.strikes} >= planned
    assert {
        "sql: permits.finish_fence",
        "rewinds to",
        "sql: _retire.lease",
        "sql: cuts.give_up",
        "sql: members.withdraw",
        "sql: triggers.ask",
    } <= in_memory.actions
    assert in_memory.tuples > 20 * IN_MEMORY and in_memory.cuts > 5 * IN_MEMORY


@pytest.mark.slow
@pytest.mark.timeout(4.0 * ON_SQLITE + 120)
def test_random_faults_on_sqlite_break_no_invariant() -> None:
    first = FIRST + 1_000_000
    assert run(range(first, first + ON_SQLITE), store="sqlite").failures == []


@pytest.mark.soak
@pytest.mark.timeout(9_000)
@pytest.mark.parametrize(("store", "share"), [("memory", 0.9), ("sqlite", 0.1)])
def test_twenty_thousand_schedules_break_no_invariant(
    store: str, share: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """Others with each `CRKAFKA_SOAK_SEED`; what was never tried is printed."""
    first = int(os.environ.get("CRKAFKA_SOAK_SEED", "0")) * 1_000_000 + 10_000_000
    outcome = run(range(first, first + int(LONG * share)), store=store)
    with capsys.disabled():
        print(f"\n{store}: {outcome.report()}")
    assert outcome.failures == []


@pytest.mark.parametrize("seed", range(2))
def test_a_seed_replays_exactly(seed: int) -> None:
    assert simulate(seed).lines() == simulate(seed).lines()


@pytest.mark.parametrize("seed", range(4))
def test_a_seed_gives_the_same_history_on_both_control_planes(seed: int) -> None:
    assert simulate(seed, stores=sqlite).lines() == simulate(seed).lines()


@pytest.mark.parametrize("seed", range(3))
def test_a_partition_that_is_found_after_a_clock_stepped_back_is_no_finding(seed: int) -> None:
    """The time of its first offset lies before the cuts that were opened earlier."""
    faults = (Fault(5, "clock step", 0, 0.1), Fault(6, "add partition", 0, 0.3))
    history = simulate(seed, plan=replace(plan(seed), faults=faults, chaos=9.0))
    assert history.ok, history.text(last=40)


@pytest.mark.parametrize("seed", range(3))
def test_how_to_go_on_is_said_also_if_the_reply_was_lost(seed: int) -> None:
    """SQL has the decision, and refuses a second one: what a newer state of it named may be collected from then on (SPEC T3)."""
    faults = (Fault(3.6, "restore", value=0.48), Fault(5.6, "lose reply", who=1))
    history = simulate(seed, plan=Plan(seed, period=1.0, faults=faults))
    assert history.ok, history.text(last=40)
    assert ("person", "go on refused") in {(who, what) for _, who, what, _ in history.entries}, "no reply was lost"


def test_a_commit_that_another_tells_sql_of_is_not_made_twice() -> None:
    """A clock that stepped had ended the lease of its writer; the next one had its permit before SQL knew (SPEC K6)."""
    assert simulate(1087, plan=large(1087)).ok


def test_a_region_that_runs_again_for_its_last_cut_owes_no_alarm_of_periods() -> None:
    """It was asked to stop while its cut was open, and lost a member after that: the stop is given up in time, with its own alarm."""
    assert simulate(2075).ok


def test_a_region_does_not_run_while_it_is_known_that_sql_went_back() -> None:
    """A table's writer notices it while a person starts the region; what is merged then would reach no table until a person says more."""
    assert simulate(10_000_742, plan=large(10_000_742)).ok


def test_a_reader_of_a_backup_misses_files_that_were_retired_before_it_was_put_in_place() -> None:
    """They are of no hold's time: nobody took them from under it."""
    assert simulate(10_018_135, stores=sqlite).ok


def test_a_log_that_is_cut_between_two_resolutions_of_one_start_goes_on_where_it_was_cut() -> None:
    """The start is stored by then, and the leader's epoch of the head is asked for all the same (SPEC S4)."""
    assert simulate(1300).ok


def test_a_back_off_that_begins_after_a_clock_stepped_back_lasts() -> None:
    """A member failed before anybody had noticed the step (SPEC X6)."""
    assert simulate(10_001_884, plan=large(10_001_884)).ok


def test_a_reader_that_came_while_the_clock_was_ahead_holds_nothing_for_as_long() -> None:
    """It died, the clock stepped back, and its lease was the only one that told of it (SPEC G4, T1)."""
    assert simulate(263_017_484).ok


def test_an_alarm_of_while_the_clock_was_ahead_is_over_with_the_next_merge() -> None:
    """Nothing else of the region told that the clock stepped back (SPEC G4, X8)."""
    assert simulate(265_014_489).ok


def test_a_report_that_a_backup_lost_is_made_again() -> None:
    """Another transaction brought the version as far as the member had seen, so that nobody noticed the backup (SPEC G10)."""
    assert simulate(265_017_372).ok


def test_who_has_not_seen_that_sql_went_back_knows_nothing_of_what_was_skipped_since() -> None:
    """Both states of SQL have the same epoch. It is told before anything flows, and who goes on from there has a newer one (SPEC G10)."""
    assert simulate(265_001_585).ok


def test_what_a_backup_lost_of_a_members_word_is_said_again() -> None:
    """That it asked for a cut, where none comes by time; and that it has reached the ends of a bounded run. Nobody noticed the backup."""
    asked = Plan(47, members=1, partitions=(2,), period=None, trigger_count=12, tables=1, sluggish="main")
    lost = (Fault(5.032, "restore", 7, 0.024), Fault(8.998, "restore", 0, 0.016))
    assert simulate(47, plan=replace(asked, faults=lost)).ok
    reached = Plan(15, members=1, partitions=(2,), tables=1, sluggish="main")
    lost = (Fault(7.652, "consume", 8, 0.856), Fault(8.621, "restore", 5, 0.152))
    assert simulate(15, plan=replace(reached, faults=lost)).ok


def test_a_topic_that_left_and_came_back_during_a_bounded_run_is_none_of_its_goals() -> None:
    """It was forgotten in between: what it had when the run came is read later (SPEC V3, S4)."""
    assert simulate(266_003_772).ok


def test_a_log_that_is_cut_in_the_middle_of_what_was_skipped_goes_on_where_it_was_cut() -> None:
    """What is written there from then on is not what the person has given up (SPEC X9)."""
    assert simulate(264_005_823).ok


def test_a_region_that_was_never_resumed_is_at_its_birth_also_behind_a_fence() -> None:
    """A backup from before its birth was put in place, its table followed, and a person asked for a reset (SPEC G9)."""
    assert simulate(30_003_379, plan=large(30_003_379)).ok


@pytest.mark.parametrize("seed", [0, 8, 23])
def test_who_saw_a_head_merged_knows_an_older_state_also_behind_a_reset(seed: int) -> None:
    """A backup of while its cut was open was put in place, and a person asked for a reset before any member had looked (SPEC G10)."""
    faults = (Fault(7.53, "restore", 3, 0.311), Fault(8.118, "initial", 11, 0.899, "CUTTING"))
    history = simulate(seed, plan=Plan(seed, sluggish="observer", faults=faults))
    assert history.ok, history.text(last=40)


def test_a_log_that_is_cut_before_a_seek_that_is_lost_is_noticed_by_what_is_read_over() -> None:
    """The seek would have told; what the client reads again is of a later leader (SPEC S4)."""
    assert simulate(114, plan=large(114)).ok


def test_a_topic_that_is_made_anew_while_its_start_is_resolved_is_no_log_that_was_cut() -> None:
    """Its id was asked for before, its end after that: what stops the region says what happened (SPEC S4)."""
    chosen = large(3118)
    others = tuple(fault for fault in chosen.faults if fault.kind != "lake fails")
    assert simulate(3118, plan=replace(chosen, faults=others)).ok


def test_a_bounded_run_that_is_tried_again_hears_again_what_is_reached() -> None:
    """The reply to its cut was lost; the members had told already, and it waited for ever (SPEC V3)."""
    assert simulate(40_001_858).ok


def test_a_bounded_run_that_comes_before_any_partition_is_known_is_about_what_was_there_then() -> None:
    """The visitor asked for what was there at a later try, and its ends were those of the first."""
    assert simulate(262_005_628).ok


def test_a_person_may_give_up_what_stands_where_a_log_was_cut() -> None:
    """Behind it the region goes on in either log: nobody reads what tells them apart (SPEC S4, X9)."""
    assert simulate(90_016_211).ok


def test_a_member_that_was_started_just_before_the_configuration_changed_takes_part_once_its_host_is_started_anew() -> (
    None
):
    """It is refused with the word that its host has to be started with the new one (SPEC G6)."""
    assert simulate(110_004_065, plan=large(110_004_065)).ok


def test_what_a_newer_state_had_retired_is_deleted_also_after_a_backup_is_put_in_place() -> None:
    """The driver had retired it in SQL, and was about to delete its files (SPEC T3)."""
    assert simulate(110_011_095).ok


def test_a_reader_of_a_backup_misses_files_that_are_deleted_for_the_newer_state_while_it_looks() -> None:
    """The driver had retired them in SQL just before, and deleted them just after (SPEC T3)."""
    assert simulate(150_003_300).ok


def test_who_starts_a_region_after_the_last_trace_of_a_newer_state_is_gone_has_said_how_to_go_on() -> None:
    """Only a member that has ended had seen the newer state; the segment that it had begun went with it (SPEC G10)."""
    assert simulate(110_016_037).ok


def test_a_bounded_run_does_not_wait_for_a_topic_that_is_forgotten_and_made_anew_meanwhile() -> None:
    """Its ends are of the old one; what is known under the name then is another topic (SPEC V3)."""
    assert simulate(150_000_757).ok


def test_nobody_skips_in_a_partition_that_the_backup_in_place_does_not_know() -> None:
    """He is told from where on he may, and there is nothing yet (SPEC X9)."""
    assert simulate(160_009_355, plan=large(160_009_355)).ok


def test_a_topic_that_is_put_back_and_dropped_again_keeps_where_it_began() -> None:
    """A member came while it was wanted, and resolved its start once it was not: it proposed its end instead (SPEC S1, S4)."""
    assert simulate(160_013_587).ok


def test_a_table_may_show_what_a_newer_state_of_sql_had_merged_until_somebody_looks() -> None:
    """What followed in SQL had no rows: it was acknowledged without a look at the table (SPEC G10)."""
    assert simulate(160_013_272, plan=large(160_013_272)).ok


def test_who_saw_a_cut_open_that_sql_never_opened_stops_the_region_before_it_contributes() -> None:
    """SQL had gone back to just before it, and on to the same version; the member would have begun behind the head (SPEC G10)."""
    assert simulate(170_004_787).ok


def test_who_saw_a_cut_of_a_lost_state_open_does_not_stop_a_region_again_that_a_person_has_told_how_to_go_on() -> None:
    """The cut was of another epoch; stopped again each time, the region would never have gone on (SPEC G10)."""
    assert simulate(180_015_583, plan=large(180_015_583)).ok


def test_who_collects_orphans_notices_that_sql_went_back_and_on_to_the_same_version() -> None:
    """Between its look and the deletion; a file of a cut that the newer state had merged went (SPEC T3, G10)."""
    assert simulate(190_015_979).ok


@pytest.mark.parametrize("kind", ["seek fails", "seek is lost"])
def test_a_fault_strikes_when_it_hits_and_is_armed_until_then(kind: str) -> None:
    """While the region runs nobody seeks: a person asks for a reset."""
    history = simulate(5, plan=Plan(5, members=1, faults=(Fault(4.0, kind, value=0.05),)))
    assert history.ok, history.text(last=40)
    assert [what for _, who, what, _ in history.entries if who == "fault" and what == f"{kind} hits sim/0#1"]
    assert {phase for phase, _, hit in history.pairs if hit == kind} == {"RESETTING"}


def test_a_fault_that_hits_nobody_was_not_tried() -> None:
    """Retention takes nothing, and nobody looks at a table that is not there."""
    faults = (Fault(4.0, "retention", value=0.0), Fault(4.5, "lake fails", value=0.9))
    history = simulate(5, plan=Plan(5, members=1, faults=faults, data_loss="gap"))
    assert history.ok, history.text(last=40)
    assert not history.pairs


def test_a_region_that_stops_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough faults are there that may stop it; the budget of none is spent."""
    decide = reset_policy.decide

    def hasty(cause: ResetCause, text: str, member: str, record: Any, limits: Limits) -> reset_policy.Decision:
        return decide(cause, text, member, record, replace(limits, max_consecutive_resets=3))

    monkeypatch.setattr(reset_policy, "decide", hasty)
    faults = tuple(Fault(4.0 + 0.2 * i, "trouble", i) for i in range(12))
    violation = simulate(3, plan=Plan(3, period=2.0, faults=faults)).violation
    assert violation is not None and violation.rule == "X6" and "has not happened" in violation.text


def test_cuts_of_several_segments_and_full_queues_are_among_what_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one member and partition in one cut; a full queue also while the gate is shut."""
    several = full = 0
    merge, may_poll = Oracle._merge, EventLoop._may_poll

    def merges(self: Oracle, reader: Reader, last: Region, row: Region) -> None:
        nonlocal several
        merge(self, reader, last, row)
        named = reader.select(Segment, ("checkpoint", "=", row.head))
        holds = Counter((s.incarnation, tp) for s in named for tp in {tp for tp, _ in self.disk[s.path] or ()})
        several += max(holds.values(), default=0) > 1

    def may(self: EventLoop) -> bool:
        nonlocal full
        full += self._subscribed and self._submitter.queue.full
        return may_poll(self)

    monkeypatch.setattr(Oracle, "_merge", merges)
    monkeypatch.setattr(EventLoop, "_may_poll", may)
    histories = [simulate(seed) for seed in range(40) if plan(seed).segment_rows]
    assert all(history.ok for history in histories)
    assert several > 20 and full > 20, (several, full)


def test_the_history_names_who_did_what_when() -> None:
    text = simulate(3).text()
    assert text.startswith("seed 3: ")
    assert "sql: enrol" in text and "hears Observed" in text and "gate" in text and "faults are over" in text
