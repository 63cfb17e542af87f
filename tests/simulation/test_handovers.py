"""Executions of handovers: who dies, is silent, leaves or comes back around them; what they must not lose, the oracle judges (SPEC X10)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.rigs.simulation import Fault, plan, simulate
from tests.rigs.simulation.oracle import Oracle

CUTTING = ("", "CUTTING")


def _one_after_another(*kinds: str, apart: float = 1.0, value: float = 0.5) -> tuple[Fault, ...]:
    return tuple(
        Fault(4.0 + apart * i, kinds[i % len(kinds)], i, value, CUTTING[i % 2]) for i in range(round(9 / apart))
    )


EXECUTIONS: dict[str, tuple[Fault, ...]] = {
    "a member dies before, in or after its contribution": _one_after_another(
        "rebalance", "kill", "kill before sql", "kill after sql"
    ),
    "two rebalances at once, and a member that dies": _one_after_another(
        "rebalance", "rebalance", "kill", apart=0.3, value=0.3
    ),
    "members join and leave": tuple(
        Fault(4.0 + 1.5 * i, "scale", i, (0.1, 0.9, 0.3, 0.6, 0.99, 0.0)[i]) for i in range(6)
    ),
    "a new partition, in a rebalance with a loss": _one_after_another("add partition", "rebalance", "kill"),
    "a skip, and then a loss": _one_after_another("rebalance", "skip", "kill"),
    "a frozen member wakes in the next epoch": _one_after_another("stall", "rebalance", "cut sql", "cut kafka"),
    "SQL is away, or goes back, in the middle": _one_after_another("rebalance", "restore", "sql down", value=0.2),
    "an older process of a name, and replies that are lost": _one_after_another("duplicate", "rebalance", "lose reply"),
    "a stop in the middle": _one_after_another("rebalance", "stop", "kill", "scale"),
}


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_X10_whatever_meets_a_handover_breaks_no_invariant(execution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow withdrawals among them: each seed has a loop that takes its time, or none."""
    handovers, final = 0, Oracle.final

    def counted(self: Oracle) -> Any:
        nonlocal handovers
        handovers += self.handovers
        return final(self)

    monkeypatch.setattr(Oracle, "final", counted)
    for seed in (0, 3):
        chosen = plan(seed)
        how = {"data_loss": "gap"} if "skip" in execution else {}
        history = simulate(seed, plan=replace(chosen, faults=EXECUTIONS[execution], chaos=14.0, adopts=True, **how))
        assert history.ok, history.text(last=40)
    assert handovers, "none was merged"
