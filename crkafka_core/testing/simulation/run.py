"""Running a seed: the entry point of tests, soak and `crkafka simulate`."""

from __future__ import annotations

from crkafka_core.testing.memory import MemoryStore
from crkafka_core.testing.simulation.history import History
from crkafka_core.testing.simulation.plan import Plan
from crkafka_core.testing.simulation.plan import plan as planned
from crkafka_core.testing.simulation.world import Stores, World


def simulate(seed: int, *, plan: Plan | None = None, stores: Stores = MemoryStore) -> History:
    """Run one schedule; equal arguments give equal histories."""
    world = World(plan or planned(seed), stores)
    try:
        return world.run()
    finally:
        world.store.close()
