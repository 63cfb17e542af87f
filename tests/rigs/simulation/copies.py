"""A copy of a simulated control plane, as a dump that became a staging system: it shares the storage and the tables (SPEC T3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from crkafka_core.control import Place, Reader, Store, Tx
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.rows import Region
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.region.driver import Driver
from crkafka_core.region.feeder import Feeder
from tests.rigs.simulation.actors import RETIRE_EVERY, Actor, SimulatedRegion
from tests.rigs.simulation.backup import put, rows_of
from tests.rigs.simulation.lake import means

if TYPE_CHECKING:
    from tests.rigs.simulation.world import World

T = TypeVar("T")


class CopiedPlane(ControlPlane):
    """At another place than the original; nothing of it says so but that."""

    def __init__(self, world: World, store: Store) -> None:
        super().__init__(store, world.region)
        self._world = world

    def place(self) -> Place:
        return Place("copy", "a copy")

    def do(self, work: Callable[[Tx], T | CrkafkaError]) -> T:
        self._world.scheduler.give_way()
        return super().do(work)

    def read(self, question: Callable[[Reader, Region], T]) -> T:
        self._world.scheduler.give_way()
        return super().read(question)

    def wait(self, version: int, timeout: float) -> int:
        self._world.scheduler.sleep(timeout)
        return super().wait(version, 0.0)


class Copy(Actor):
    """Somebody starts it, drives it, and feeds its tables."""

    copy = True

    def __init__(self, world: World) -> None:
        super().__init__(world, "copy")
        self.store = world.another_store()
        put(self.store, rows_of(world.store, world.region))
        self.plane = CopiedPlane(world, self.store)
        self.region = SimulatedRegion(self)
        world.scheduler.spawn(self, "person", self._start)
        self.runtime.start(Driver(self.region, retire_every=RETIRE_EVERY / 4))
        self.runtime.start(Feeder(self.region, means=means(world, self)))

    def _start(self) -> None:
        while True:
            try:
                self.region.start(by="staging")
            except CrkafkaError as refused:
                self.world.note(self.name, "is refused", type(refused).__name__)
            self.world.scheduler.sleep(1.0)

    def end(self) -> None:
        if not self.dead:
            self.world.scheduler.kill(self)
            self.store.close()
