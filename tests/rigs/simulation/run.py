"""Runs a seed: the entry point of tests, soak and `python -m tests.rigs.simulation SEED`."""

from __future__ import annotations

import gc
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
