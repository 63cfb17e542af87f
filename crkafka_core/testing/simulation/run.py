"""Running a seed: the entry point of tests, soak and `crkafka simulate`."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from crkafka_core.testing.memory import MemoryStore
from crkafka_core.testing.simulation.history import History
from crkafka_core.testing.simulation.plan import Plan
from crkafka_core.testing.simulation.plan import plan as planned
from crkafka_core.testing.simulation.world import Stores, World


def simulate(seed: int, *, plan: Plan | None = None, stores: Stores = MemoryStore) -> History:
    """Run one schedule; equal arguments give equal histories."""
    with _uncollected():
        return _run(plan or planned(seed), stores)


def _run(plan: Plan, stores: Stores) -> History:
    world = World(plan, stores)
    try:
        return world.run()
    finally:
        world.store.close()


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
