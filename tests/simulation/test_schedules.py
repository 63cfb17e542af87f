"""Thousands of random schedules hold every invariant; the same seed gives the same history on both control planes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from crkafka_core.control import Reader
from crkafka_core.member.event_loop import EventLoop
from crkafka_core.model import limits
from crkafka_core.model.rows import Region, ResetCause, Segment
from crkafka_core.protocol import reset_policy
from tests.rigs.simulation import plan, simulate
from tests.rigs.simulation.oracle import Oracle
from tests.rigs.simulation.plan import Fault, Plan
from tests.simulation.schedules import Outcome, run, sqlite, varied

IN_MEMORY = int(os.environ.get("CRKAFKA_SCHEDULES", "40"))
ON_SQLITE = IN_MEMORY // 4
LONG = 20_000
FIRST = int(os.environ.get("CRKAFKA_SEED", "0"))
"""The soak runs other seeds than `make test`."""


def _large(seed: int) -> Plan:
    """The seed's plan with the large segments and queues that it had when the seed was found."""
    return replace(plan(seed), segment_rows=0, queue_rows=0)


@pytest.fixture(scope="module")
def seeds() -> list[int]:
    return varied(FIRST, IN_MEMORY)


@pytest.fixture(scope="module")
def in_memory(seeds: list[int]) -> Outcome:
    return run(seeds)


@pytest.mark.slow
@pytest.mark.timeout(2.0 * IN_MEMORY + 120)
def test_random_faults_in_memory_break_no_invariant(in_memory: Outcome) -> None:
    assert in_memory.failures == []


@pytest.mark.timeout(2.0 * IN_MEMORY + 120)
def test_R1_random_faults_in_a_group_of_kip848_break_no_invariant() -> None:
    assert run(range(FIRST, FIRST + IN_MEMORY // 4), epochs=True).failures == []


@pytest.mark.timeout(2.0 * IN_MEMORY + 120)
def test_seeds_differ_in_what_they_try(in_memory: Outcome, seeds: list[int]) -> None:
    """Every fault strikes, cuts merge, resets and rewinds happen, tables are fenced: the schedules are not empty."""
    planned = {fault.kind for seed in seeds for fault in plan(seed).faults}
    assert {kind for _, _, kind in in_memory.strikes} >= planned
    assert {
        "sql: permits.finish_fence",
        "rewinds to",
        "sql: _retire.lease",
        "sql: merging.give_up",
        "sql: members.withdraw",
        "sql: cuts.ask",
    } <= in_memory.actions
    assert in_memory.tuples > 20 * IN_MEMORY and in_memory.cuts > 5 * IN_MEMORY


@pytest.mark.slow
@pytest.mark.timeout(4.0 * ON_SQLITE + 120)
def test_random_faults_on_sqlite_break_no_invariant() -> None:
    assert run(varied(FIRST + 1_000_000, ON_SQLITE), store="sqlite").failures == []


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


CLOCK_STEPS = (Fault(5, "clock step", 0, 0.1), Fault(6, "add partition", 0, 0.3))
RESTORED_IN_A_CUT = (Fault(7.53, "restore", 3, 0.311), Fault(8.118, "initial", 11, 0.899, "CUTTING"))
ASKS = Plan(47, members=1, partitions=(2,), period=None, trigger_count=12, tables=1, sluggish="main")
REACHES = Plan(15, members=1, partitions=(2,), tables=1, sluggish="main")
BROKEN_ONCE: dict[str, Sequence[Plan]] = {
    "a partition discovered after a clock stepped back, whose first offset is older than open cuts": [
        replace(plan(seed), faults=CLOCK_STEPS, chaos=9.0) for seed in range(3)
    ],
    "a request for a cut that a restored backup lost, where none comes by time": (
        replace(ASKS, faults=(Fault(5.032, "restore", 7, 0.024), Fault(8.998, "restore", 0, 0.016))),
    ),
    "the ends of a bounded run, reached before a restored backup": (
        replace(REACHES, faults=(Fault(7.652, "consume", 8, 0.856), Fault(8.621, "restore", 5, 0.152))),
    ),
    "a head seen merged before a restored backup and a reset (SPEC G10)": [
        Plan(seed, sluggish="observer", faults=RESTORED_IN_A_CUT) for seed in (0, 8, 23)
    ],
    "two writers of one table, a lost acknowledgement, a clock step (SPEC K6)": (_large(1087),),
    "a stop with its last cut open, and then a loss": (plan(2075),),
    "a log cut between two resolutions of one start (SPEC S4)": (plan(1300), _large(114)),
    "a back-off, a reader, an alarm while the clock is ahead (SPEC G4, T1, X6, X8)": (
        *(_large(10_001_884), plan(263_017_484), plan(265_014_489)),
    ),
    "reports, files, skips and cuts that a restored backup lost (SPEC G10, T3, X9)": (
        *(plan(265_017_372), plan(265_001_585), plan(110_011_095), plan(110_016_037), plan(150_003_300)),
        *(plan(170_004_787), plan(190_015_979), plan(10_018_135), _large(10_000_742), _large(30_003_379)),
        *(_large(160_009_355), _large(160_013_272), _large(180_015_583)),
    ),
    "topics that leave, are recreated or come back in a bounded run (SPEC V3, S4)": (
        *(plan(266_003_772), plan(150_000_757), plan(160_013_587), plan(40_001_858), plan(262_005_628)),
        _large(3118),
    ),
    "a log cut inside of a skip, and a skip where a log was cut (SPEC X9)": (plan(264_005_823), plan(90_016_211)),
    "a member started just before the configuration changes (SPEC G6)": (_large(110_004_065),),
}
"""Situations in which a schedule once broke a rule. Those without faults of their own are seeds, which the code around them moves."""


@pytest.mark.parametrize("situation", BROKEN_ONCE)
def test_a_situation_that_once_broke_a_rule_breaks_none(situation: str) -> None:
    for chosen in BROKEN_ONCE[situation]:
        history = simulate(chosen.seed, plan=chosen)
        assert history.ok, history.text(last=40)


@pytest.mark.parametrize("seed", range(3))
def test_a_decision_after_a_restore_stands_though_its_reply_was_lost(seed: int) -> None:
    """SQL has the decision and refuses a second one: files of the newer state may be collected from then on (SPEC T3)."""
    faults = (Fault(3.6, "restore", value=0.48), Fault(5.6, "lose reply", who=1))
    history = simulate(seed, plan=Plan(seed, period=1.0, faults=faults))
    assert history.ok, history.text(last=40)
    assert ("person", "go on refused") in {(who, what) for _, who, what, _ in history.entries}, "no reply was lost"


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

    def hasty(cause: ResetCause, text: str, member: str, region: Region, *rest: Any) -> reset_policy.Decision:
        limit = replace(limits.of(region), max_consecutive_resets=3)
        return decide(cause, text, member, replace(region, limits_json=limits.dump(limit)), *rest)

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
    histories = [simulate(seed) for seed in range(20) if plan(seed).segment_rows]
    assert all(history.ok for history in histories)
    assert several > 10 and full > 10, (several, full)


def test_the_history_names_who_did_what_when() -> None:
    text = simulate(3).text()
    assert text.startswith("seed 3: ")
    assert "sql: enrol" in text and "hears Observed" in text and "gate" in text and "faults are over" in text
