"""What one fault costs: at most one reset each, none where the rules promise none; and the others go on while it lasts."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from crkafka_core.kafka.errors import REACTIONS, Fenced, KafkaFailed
from crkafka_core.model.rows import Checkpoint, Reset, ResetCause
from tests.rigs.simulation import Fault, History, answers, plan, simulate
from tests.rigs.simulation.faults import EPOCH, Faults
from tests.rigs.simulation.plan import MOMENTS, Plan
from tests.rigs.simulation.scheduler import Owner
from tests.simulation.one_failure import Watched, watched

SEEDS = (0, 3)
"""A region of four dynamic members whose cuts flow, and one of two static members whose cuts stop."""
AT = 6.0


DEADLINES = frozenset({ResetCause.LATE, ResetCause.STUCK})
"""Causes of resets that come when nobody has told of a failure in time."""

OWN_FAILURES = frozenset({ResetCause.FAILURE, ResetCause.MISMATCH})


def with_one_fault(seed: int, *faults: Fault, chaos: float = 12.0, members: int = 1) -> Watched:
    """A seed's region, with these faults only."""
    chosen = plan(seed)
    return watched(replace(chosen, tables=0, chaos=chaos, members=max(members, chosen.members), faults=faults))


def one_fault(seed: int, *faults: Fault, chaos: float = 12.0, members: int = 1) -> History:
    return with_one_fault(seed, *faults, chaos=chaos, members=members).history


def causes(seen: Watched) -> set[ResetCause]:
    """Of all resets, also of those that come when the faults are over."""
    return {reset.cause for reset in seen.rows(Reset)}


@pytest.mark.parametrize("tables", [0, 1])
def test_a_start_without_faults_costs_no_reset(tables: int) -> None:
    """Fault 49: members join one after another; no reset, no record before the group is settled. None until a person stops it, either."""
    for seed in SEEDS:
        seen = watched(replace(plan(seed), tables=tables, aided=False, faults=()))
        assert causes(seen) <= {ResetCause.START, ResetCause.STOP}, seen.history.text(last=60)


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        ("kill", 1),
        ("kill before sql", 1),
        ("kill after sql", 1),
        ("duplicate", 1),
        ("trouble", 1),
        ("rebalance", 1),
        ("add partition", 1),
        ("scale", 1),
        ("initial", 1),
        ("rewind", 1),
        ("reset", 1),
        ("no leader", 0),
        ("lose reply", 0),
        ("disturb", 0),
        ("driver stall", 0),
        ("pause", 0),
    ],
)
def test_one_fault_costs_at_most(kind: str, most: int) -> None:
    """And none of it is left to a deadline."""
    costs = {}
    for seed in SEEDS:
        seen = with_one_fault(seed, Fault(AT, kind, seed, seed % 10 / 10))
        costs[seed] = seen.history.resets
        assert not DEADLINES & causes(seen), seen.history.text(last=60)
    assert max(costs.values()) <= most, {seed: cost for seed, cost in costs.items() if cost > most}


@pytest.mark.parametrize("kind", ["poll fails", "partition fails", "question fails"])
def test_92_every_answer_of_kafka_is_waited_for(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC X11: each code once, but those after which a client is of no use any more; questions are those of a reset."""
    waited_for = [code for code in answers.CODES if REACTIONS.get(code) not in (KafkaFailed, Fenced)]
    left, strikes = list[int](), Faults.strikes

    def each(self: Faults, who: Owner, what: str) -> bool:
        return strikes(self, who, what) if what != kind else bool(left) and self.world.now > EPOCH + AT

    monkeypatch.setattr(Faults, "strikes", each)
    monkeypatch.setattr(answers, "draw", lambda _: left.pop())
    asks, allowed = (), {ResetCause.START, ResetCause.STOP}
    if kind == "question fails":
        asks, allowed = (Fault(AT + 0.5, "reset"),), allowed | {ResetCause.PERSON, ResetCause.UNAVAILABLE}
    for seed in SEEDS:
        left[:] = waited_for
        seen = with_one_fault(seed, *asks, chaos=60.0)
        assert not left and causes(seen) <= allowed, seen.history.text(last=60)
        assert not seen.history.stops and not seen.events("process died"), seen.history.text(last=60)


TOLD = (
    *("kill", "kill before sql", "kill after sql", "lose reply", "duplicate", "trouble", "disturb", "storage full"),
    *("poll fails", "seek fails", "seek is lost", "commit fails", "late fetch", "driver kill", "host kill"),
    *("add partition", "rebalance", "retention", "cut log", "reset", "rewind", "scale", "pause", "skip"),
)
"""Faults that somebody notices at once: no cut and no reset waits for its deadline, however they meet."""
FAIL = ("trouble", "seek is lost")
"""Of these, after which a member says that it failed: by itself, or since a batch does not continue where its partition stands."""


def told(seed: int) -> Plan:
    rng = Random(f"told {seed}")
    kinds = rng.sample(TOLD, rng.randint(1, 4))
    faults = [
        Fault(rng.uniform(3.0, 12.0), rng.choice(kinds), rng.randint(0, 11), 0.999 * rng.random(), rng.choice(MOMENTS))
        for _ in range(rng.randint(2, 8))
    ]
    ordered = tuple(sorted(faults, key=lambda f: f.at))
    return replace(plan(seed), tables=0, chaos=12.0, data_loss="gap", faults=ordered)


def test_what_is_told_is_left_to_no_deadline_and_is_nobodys_own_failure() -> None:
    """Only a planted one is: what a member cannot vouch for, or a cut that does not match, would be a consequence of something else."""
    for seed in range(16):
        chosen = told(seed)
        planted = {ResetCause.FAILURE} if any(fault.kind in FAIL for fault in chosen.faults) else set()
        seen = watched(chosen)
        assert not (DEADLINES | OWN_FAILURES - planted) & causes(seen), seen.history.text(last=60)
        if not any(
            fault.kind == "host kill" for fault in chosen.faults
        ):  # nobody tells that its members are gone (SPEC X10)
            assert not [c.id for c in seen.rows(Checkpoint) if c.merged_at > c.deadline], seen.history.text(last=60)


@pytest.mark.parametrize("value", [0.2, 0.5])
def test_an_outage_of_sql_loses_nobody(value: float) -> None:
    """Fault 37: members wait, also past their leases, and go on afterwards; only past `isolation_timeout` do they leave.

    Ten times the value in seconds; lease and isolation are 8 s here, of which up to 1.7 had passed since the last renewal, and a
    renewal that failed is tried again after 1 s.
    """
    costs = {seed: one_fault(seed, Fault(AT, "sql down", 0, value), chaos=AT + 10 * value + 4).resets for seed in SEEDS}
    assert set(costs.values()) == {0}, costs


@pytest.mark.parametrize("kind", ["stall", "cut sql", "cut kafka"])
@pytest.mark.parametrize("after_a_rebalance", [False, True], ids=["alone", "after a rebalance"])
def test_the_others_go_on_while_one_is_away(kind: str, after_a_rebalance: bool) -> None:
    """Faults 9, 43, 44: a cut completes within 35 s although the fault lasts for 60; also if a rebalance was just under way (SPEC G4)."""
    tried = 0
    for seed in (
        0,
        1,
        172,
    ):  # 172: the queue of the other one is full when a rebalance waits for it, and nobody empties it
        away = Fault(AT + 0.1, kind, seed, 6.0, "RESETTING" if after_a_rebalance else "")
        faults = (Fault(AT, "rebalance"), away) if after_a_rebalance else (away,)
        history = one_fault(seed, *faults, chaos=50.0, members=2)
        struck = next((at for at, who, what, _ in history.entries if who == "fault" and kind in what), None)
        if struck is not None:  # a rebalance of members that fetched nothing resets nothing
            tried += 1
            assert any(struck + 10 < at < struck + 35 for at in history.merges), (seed, history.merges)
    assert tried >= 2


@pytest.mark.parametrize(("static", "apart"), [(True, 5.0), (False, 6.0)], ids=["static", "dynamic"])
def test_a_flapping_member_ends_in_stopped_with_its_name(static: bool, apart: float) -> None:
    faults = tuple(Fault(4.0 + apart * i, "kill", when="RUNNING") for i in range(int(150 / apart)))
    for seed in SEEDS[:1]:
        region = Plan(seed, members=1, partitions=(3,), static=static, period=3.0, chaos=150.0, faults=faults)
        history = simulate(seed, plan=region)
        assert history.ok, history.text(last=60)
        assert history.stops and "sim/0" in history.stops[0], history.stops
