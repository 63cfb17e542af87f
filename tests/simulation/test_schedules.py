"""Thousands of random schedules hold every invariant; the same seed gives the same history on both control planes (FAULTS, simulation)."""

from __future__ import annotations

import os

import pytest

from crkafka_core.testing.simulation import plan, simulate
from tests.simulation.schedules import failures, sqlite

IN_MEMORY = int(os.environ.get("CRKAFKA_SCHEDULES", "10000"))
ON_SQLITE = max(300, IN_MEMORY // 33)
FIRST = int(os.environ.get("CRKAFKA_SEED", "0"))
"""The soak runs other seeds than `make test`."""


@pytest.mark.slow
@pytest.mark.timeout(0.2 * IN_MEMORY + 120)
def test_random_faults_in_memory_break_no_invariant() -> None:
    assert failures(range(FIRST, FIRST + IN_MEMORY)) == []


@pytest.mark.slow
@pytest.mark.timeout(2.0 * ON_SQLITE + 120)
def test_random_faults_on_sqlite_break_no_invariant() -> None:
    first = FIRST + 1_000_000
    assert failures(range(first, first + ON_SQLITE), store="sqlite") == []


@pytest.mark.parametrize("seed", range(4))
def test_a_seed_replays_exactly(seed: int) -> None:
    assert simulate(seed).lines() == simulate(seed).lines()


@pytest.mark.parametrize("seed", range(12))
def test_a_seed_gives_the_same_history_on_both_control_planes(seed: int) -> None:
    assert simulate(seed, stores=sqlite).lines() == simulate(seed).lines()


def test_seeds_differ_in_what_they_try() -> None:
    """Every fault strikes, cuts merge, resets and rewinds happen, tables are fenced: the schedules are not empty."""
    kinds, whats, tuples, cuts = set(), set(), 0, 0
    for seed in range(250):
        history = simulate(seed)
        assert history.ok, history.text(last=40)
        tuples, cuts = tuples + history.tuples, cuts + history.cuts
        for _, who, what, _ in history.entries:
            if who == "fault":
                kinds.add(what.split(": ")[1].split(" (")[0])
            whats.add(what.rstrip(" 0123456789"))
    assert kinds >= {fault.kind for seed in range(250) for fault in plan(seed).faults} - {"writer kill", "writer stall"}
    assert {
        "sql: finish fence",
        "sql: rewind to",
        "sql: retire",
        "sql: give up",
        "sql: withdraw",
        "sql: ask cut",
    } <= whats
    assert tuples > 2000 and cuts > 500


def test_the_history_names_who_did_what_when() -> None:
    text = simulate(3).text()
    assert text.startswith("seed 3: ")
    assert "sql: start" in text and "hears Observed" in text and "gate" in text and "faults are over" in text
