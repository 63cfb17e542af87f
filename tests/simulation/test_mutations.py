"""The simulation is worth its trust: every planted breakage of the protocol is found, and a found seed is shrunk."""

from __future__ import annotations

import pytest

from crkafka_core.plane import merging
from tests.rigs.simulation import shrink, simulate
from tests.simulation import mutations_around, mutations_of_handovers
from tests.simulation.breakage import MUTATIONS, Mutation, check_fits, put

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
