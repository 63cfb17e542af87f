"""Makes a failing schedule small: fewer faults, fewer members, less time, as long as the same rule is broken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.rigs.memory import MemoryStore
from tests.rigs.simulation.history import History
from tests.rigs.simulation.plan import Plan
from tests.rigs.simulation.plan import plan as planned
from tests.rigs.simulation.run import simulate
from tests.rigs.simulation.world import Stores


def shrink(
    seed: int, *, plan: Plan | None = None, stores: Stores = MemoryStore, tries: int = 200
) -> tuple[Plan, History]:
    """The smallest plan found that breaks the same rule as the seed's, and its history."""
    best = plan or planned(seed)
    history = simulate(seed, plan=best, stores=stores)
    if history.violation is None:
        return best, history
    rule, again = history.violation.rule, True
    while again and tries > 0:
        again = False
        for smaller in _smaller(best):
            tries -= 1
            found = simulate(seed, plan=smaller, stores=stores)
            if found.violation is not None and found.violation.rule == rule:
                best, history, again = smaller, found, True
                break
            if tries <= 0:
                break
    return best, history


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Plans that are one thing less."""
    count = len(plan.faults)
    if count > 2:
        yield replace(plan, faults=plan.faults[: count // 2])
        yield replace(plan, faults=plan.faults[count // 2 :])
    for i in range(count):
        yield replace(plan, faults=plan.faults[:i] + plan.faults[i + 1 :])
    if plan.tables:
        yield replace(plan, tables=0)
    if plan.members > 1:
        yield replace(plan, members=plan.members - 1)
    if len(plan.partitions) > 1:
        yield replace(plan, partitions=plan.partitions[:1])
    if plan.trigger_count:
        yield replace(plan, trigger_count=0, period=plan.period or 2.0)
    if plan.chaos > 3.0:
        yield replace(plan, chaos=plan.chaos / 2, faults=tuple(f for f in plan.faults if f.at < plan.chaos / 2))
