"""The control plane as one simulated process reaches it: late, not at all, with lost replies; the rules and the store are the real ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from crkafka_core.control import Reader, Tx
from crkafka_core.model.errors import CrkafkaError, ServiceUnavailable
from crkafka_core.model.rows import Region
from crkafka_core.plane.transact import ControlPlane
from tests.rigs.simulation.history import Violation
from tests.rigs.simulation.scheduler import Killed, Owner

if TYPE_CHECKING:
    from tests.rigs.simulation.world import World

T = TypeVar("T")


class SimulatedPlane(ControlPlane):
    """`ControlPlane`, and who asks: others move before a request arrives, and before its reply is heard."""

    def __init__(self, world: World, owner: Owner) -> None:
        super().__init__(world.store, world.region)
        self.spoken = world.spoken
        self._world = world
        self._owner = owner

    def do(self, work: Callable[[Tx], T | CrkafkaError]) -> T:
        world, owner = self._world, self._owner
        self._reach()
        what, faults = named(work), world.faults
        if faults.at_sql(owner, "kill before sql"):
            self._die()
        before = world.oracle.row
        if self.spoken < before.protocol:
            work = partial(self._by_old_rules, work)
        done = False
        try:
            result = super().do(work)
            done = True
        except CrkafkaError as refused:
            world.note(owner.name, f"sql: {what}: refused", refused)
            raise
        finally:
            world.after_sql(owner, what, before, done)
        if faults.at_sql(owner, "kill after sql"):
            self._die()
        if faults.at_sql(owner, "lose reply"):
            raise ServiceUnavailable("The outcome is unknown.")
        world.scheduler.give_way()
        return result

    def read(self, question: Callable[[Reader, Region], T]) -> T:
        self._reach()
        answer = super().read(question)
        self._world.scheduler.give_way()
        return answer

    def wait(self, version: int, timeout: float) -> int:
        world = self._world
        if world.sql_is_down(self._owner):
            world.scheduler.give_way()
            raise ServiceUnavailable("The control plane is not there.")
        world.scheduler.idle(timeout, lambda: world.oracle.row.version != version)
        return world.oracle.row.version

    def _by_old_rules(self, work: Callable[[Tx], T], tx: Tx) -> T:
        """Nobody gets here: the region is run by newer ones."""
        self._world.fail(
            Violation("upgrade", f"{self._owner.name} changes a region by rules that are older than its own")
        )
        return work(tx)

    def _reach(self) -> None:
        world = self._world
        world.scheduler.give_way()
        if world.sql_is_down(self._owner):
            world.scheduler.sleep(0.2 * world.rng.random())
            raise ServiceUnavailable("The control plane is not there.")

    def _die(self) -> None:
        self._world.kill(self._owner)
        raise Killed


_NAMES: dict[Any, str] = {}


def named(work: Callable[..., Any]) -> str:
    """Which rule a mutation calls, for the history."""
    if isinstance(work, partial):
        return named(work.func)
    work = getattr(work, "__wrapped__", work)
    code = getattr(work, "__code__", None)
    if code is None:
        return getattr(work, "__name__", "?")
    name = _NAMES.get(code)
    if name is None:
        words = code.co_names[:2] if work.__name__ == "<lambda>" else (work.__name__,)
        name = _NAMES[code] = ".".join(words)
    return name
