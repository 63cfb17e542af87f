"""Runs a seed, for tests, soak and `python -m tests.rigs.simulation SEED`; and makes a schedule that fails small."""

from __future__ import annotations

import gc
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from crkafka_core.plane import alarms
from tests.rigs.memory import MemoryStore
from tests.rigs.simulation.configuration import ALARM_AT_LEAST
from tests.rigs.simulation.history import History
from tests.rigs.simulation.plan import Plan
from tests.rigs.simulation.plan import plan as planned
from tests.rigs.simulation.world import Stores, World


def simulate(
    seed: int,
    *,
    plan: Plan | None = None,
    stores: Stores = MemoryStore,
    plant: Callable[[World], None] = lambda _: None,
) -> History:
    """Run one schedule; equal arguments give equal histories. `plant` gets the world before its first moment."""
    with _uncollected(), _quiet(), _chance(seed), _shortened():
        return _run(plan or planned(seed), stores, plant)


def _run(plan: Plan, stores: Stores, plant: Callable[[World], None]) -> History:
    world = World(plan, stores)
    plant(world)
    try:
        return world.run()
    finally:
        world.close()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Garbage is collected after a schedule, when all of its world is garbage, and not again and again while it lives."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _quiet() -> Iterator[None]:
    """What members log is of no use without their history."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _shortened() -> Iterator[None]:
    """What is long by a person's clock is so by simulated time."""
    before = alarms.AT_LEAST
    alarms.AT_LEAST = ALARM_AT_LEAST
    try:
        yield
    finally:
        alarms.AT_LEAST = before


@contextmanager
def _chance(seed: int) -> Iterator[None]:
    """Back-off is spread by chance; here by the seed's."""
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)


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
            tried = simulate(seed, plan=smaller, stores=stores)
            if tried.violation is not None and tried.violation.rule == rule:
                best, history, again = smaller, tried, True
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
