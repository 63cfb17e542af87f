"""Who comes to a simulated region for a while: readers that hold checkpoints, and bounded runs (SPEC T1, V3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crkafka_core.control import Tx
from crkafka_core.model.errors import CrkafkaError, ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Checkpoint, CheckpointStatus
from crkafka_core.plane import leases, reading, starts
from crkafka_core.region import caught_up
from tests.rigs.simulation.actors import Actor, SimulatedRegion
from tests.rigs.simulation.history import Violation

if TYPE_CHECKING:
    from tests.rigs.simulation.plan import Fault
    from tests.rigs.simulation.world import World

LOOKS = 12
"""Of a reader at the files that it holds, before it goes."""


class Visitor(Actor):
    """Comes, does one thing, tries again while a service is away, and goes."""

    def __init__(self, world: World, visit: Fault) -> None:
        super().__init__(world, f"{visit.kind} {visit.at:.2f} (visitor {len(world.visitors)})")
        self.value, self.gone, self.fault = visit.value, False, visit.kind
        world.scheduler.spawn(self, "visit", self._come)

    def _come(self) -> None:
        while not self.gone:
            try:
                self.visit()
                self.gone = True
            except ServiceUnavailable:
                continue
            except Violation as violation:
                self.world.fail(violation)
            except CrkafkaError as refused:
                self.world.note(self.name, "is refused", refused)
                self.gone = True

    def visit(self) -> None:
        raise NotImplementedError


class SlowReader(Visitor):
    """Holds what is live, and finds all of it until it lets go (T1, fault 52)."""

    def visit(self) -> None:
        world, length = self.world, self.world.limits.driver_lease
        asked, clock, lost = world.now, world.clock_offset, len(world.oracle.lost)
        held = self.plane.do(lambda tx: self._take(tx, length))
        paths = [segment.path for segment in held.plan.segments]
        for _ in range(LOOKS):
            world.scheduler.sleep(length / 4 * self.value)
            steady = (clock, lost) == (world.clock_offset, len(world.oracle.lost))
            if not steady or world.now - asked > length:
                return
            files = (
                world.disk.keys() | world.oracle.deleted
            )  # what was retired before a backup was put in place, no backup has
            if gone := [path for path in paths if path not in files]:
                raise Violation("T1", f"{self.name} holds {held.plan.checkpoints}, and {gone[0]} is gone")
            asked = world.now
            self.plane.do(lambda tx: leases.renew(tx, held.lease, length))
        self.plane.do(lambda tx: leases.release(tx, held.lease))

    def _take(self, tx: Tx, length: float) -> reading.Reading:
        live = [c.id for c in tx.select(Checkpoint, ("status", "=", CheckpointStatus.MERGED))]
        line = [i for i in tx.line(tx.region().head) if i in live]
        return reading.take(tx, holder=self.name, token=self.name, length=length, ids=line)


class BoundedRun(Visitor):
    """Ends by itself, with all in a checkpoint that was there when it came (V3)."""

    lost = 0
    produced = -1
    """The number of the newest record that was there when it came; -1: it has not come yet."""
    forgotten = 0
    """How often one had been by then: what is forgotten later is no goal, also if it, or another of its name, becomes known again."""
    known: frozenset[TP] = frozenset()
    """Partitions that it is about."""

    def visit(self) -> None:
        world, oracle = self.world, self.world.oracle
        if self.produced < 0:
            self.lost, self.produced = len(oracle.lost), world.broker.numbers
            self.forgotten = len(oracle.forgotten)
        if not self.known:  # a region that has just been born knows none at first
            self.known = self.plane.read(lambda reader, _: frozenset(starts.known(reader)))
        done = caught_up.consume(SimulatedRegion(self), token=self.name)
        merged = oracle.merged.get(done.checkpoint.id, {})
        world.note(self.name, "has caught up", done.checkpoint.id)
        if self.lost != len(oracle.lost):
            return
        waits_for = self.known - world.ever_paused - set(oracle.forgotten[self.forgotten :])
        left = [tp for tp in sorted(waits_for) if self._left(tp, merged.get(tp, 0))]
        if left:
            raise Violation("V3", f"{self.name} ended with {merged}, and {left} had more when it came")

    def _left(self, tp: TP, merged: int) -> bool:
        """Where a log was cut since, others may have taken the place of what was there."""
        broker = self.world.broker
        return any(number <= self.produced for _, number in broker.records(tp, merged, broker.ends[tp]))


VISITORS: dict[str, type[Visitor]] = {"read": SlowReader, "consume": BoundedRun}
