"""Would it be seen if the rules broke? Machine-made mutants against the tests of the rules and the simulation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crkafka_core.member.observer import live as view_live
from crkafka_core.model.rows import Member
from crkafka_core.plane import merging
from crkafka_core.protocol import settle
from tests.rigs.simulation import shrink, simulate
from tests.simulation import mutations_around, mutations_of_handovers
from tests.simulation.breakage import MUTATIONS, Mutation, check_fits, put
from tests.simulation.killers import arguments, equivalent, known, report
from tests.simulation.mutants import all_mutants
from tests.simulation.one_failure import Unnoticed
from tests.simulation.promises import PROMISES, Promise
from tests.simulation.silences import SILENCES, Silence

SAMPLE = os.environ.get("CRKAFKA_MUTANTS", "0")
"""How many of all, chosen anew by each `CRKAFKA_SOAK_SEED`; 0: all of them."""
KILLED = 0.9
"""The least share, of those that change something."""


def test_a_mutant_changes_one_function_for_everybody_and_is_taken_back() -> None:
    mutant = next(m for m in all_mutants() if m.module.endswith("protocol.settle") and m.function == "live")
    there = Member("r", "r/0", "a", 1)
    with mutant.planted():
        assert settle.live([there]) == view_live([there]) == [], str(mutant)
    assert settle.live([there]) == view_live([there]) == [there]


def test_who_was_asked_about_nothing_has_found_nothing() -> None:
    assert report(arguments(["--sample", "5"]), {}) == (0.0, [])


def test_every_rule_has_places_where_it_can_be_broken() -> None:
    modules = {mutant.module.rpartition(".")[2] for mutant in all_mutants()}
    assert modules >= {"machine", "merge", "settle", "cuts", "members", "resets", "starts", "tables", "retire"}
    keys = [mutant.key for mutant in all_mutants()]
    assert len(keys) == len(set(keys)) > 1_000, "each has a name of its own"


def test_what_is_called_equivalent_is_there_and_has_its_reason() -> None:
    there = {mutant.key for mutant in all_mutants()}
    for key, why in equivalent().items():
        assert key in there, f"no such mutant any more: {key}"
        assert len(why) > 20, key


@pytest.mark.soak
@pytest.mark.timeout(12_000)
def test_most_mutants_of_the_rules_are_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Survivors are printed: each is a missing check, redundant code, or equivalent."""
    given = ["--sample", SAMPLE, "--seed", os.environ.get("CRKAFKA_SOAK_SEED", "0"), "--keep", str(tmp_path / "m.json")]
    with capsys.disabled():
        subprocess.run([sys.executable, "-m", "tests.simulation.killers", *given, "--seconds", "11000"], check=True)
    options = arguments(given)
    share, survivors = report(options, known(options))
    assert share >= KILLED, survivors


assert mutations_around and mutations_of_handovers, "they fill MUTATIONS"
WITHIN = 200
"""Schedules in which each mutation must be found; most need fewer than five."""


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_a_planted_breakage_is_found(mutation: Mutation) -> None:
    others = []
    with mutation.planted():
        for seed in range(mutation.since, mutation.since + WITHIN):
            violation = simulate(seed, plan=mutation.plan(seed)).violation
            if violation is None:
                continue
            check_fits(mutation.name, str(violation))
            if violation.rule in mutation.found_by:
                return
            others.append(str(violation))
    pytest.fail(f"{WITHIN} schedules did not show that {mutation.name}; other violations: {others[:3]}")


def test_a_breakage_that_does_not_fit_the_code_is_no_find() -> None:
    """Its own mistake would count as one by the rule `machine`, or hide for as long as another schedule shows the breakage."""
    misfit = Mutation("misfit", frozenset({"machine"}), lambda stack: put(stack, merging, "_close", lambda tx: None))
    with pytest.raises(AssertionError, match=r"misfit does not fit the code any more: .* TypeError"):
        test_a_planted_breakage_is_found(misfit)


def test_a_failing_seed_is_shrunk_and_still_fails_by_the_same_rule() -> None:
    planted = next(m for m in MUTATIONS if m.name == "a_revocation_asks_for_no_reset")
    with planted.planted():
        # The search begins at a seed that shows it.
        seed = next(s for s in range(42, 242) if not (h := simulate(s)).ok and len(h.faults) > 2)
        before = simulate(seed)
        plan, history = shrink(seed, tries=20)
    assert before.violation is not None and history.violation is not None
    assert history.violation.rule == before.violation.rule
    assert len(plan.faults) < len(before.faults)
    assert "VIOLATION" in history.text()
    assert simulate(seed, plan=plan).ok, "without the breakage the shrunk schedule is fine"


SEEDS = range(2)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda p: p.__name__)
def test_a_promise_is_kept(promise: Promise) -> None:
    for seed in SEEDS:
        promise(seed)


@pytest.mark.parametrize("silence", SILENCES, ids=lambda s: s.name)
def test_a_planted_silence_is_noticed(silence: Silence) -> None:
    with silence.planted():
        for seed in SEEDS:
            try:
                silence.breaks(seed)
            except Unnoticed as unnoticed:
                check_fits(silence.name, str(unnoticed))
                return
    pytest.fail(f"{silence.breaks.__name__} is kept although {silence.name}")
