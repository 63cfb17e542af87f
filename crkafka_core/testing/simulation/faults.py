"""Faults of a plan, as they hit a simulated region when their time comes."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from crkafka_core.protocol import signals as sg
from crkafka_core.testing.simulation.plan import PERSON, Fault
from crkafka_core.testing.simulation.stage import Stage

if TYPE_CHECKING:
    from crkafka_core.testing.simulation.process import Process
    from crkafka_core.testing.simulation.world import World

EPOCH = 1000.0
"""Simulated time begins here; faults count from it."""


class Faults:
    """What is still to come, and what waits for its victim's next move."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.waiting = deque(world.plan.faults)
        self.ripe: list[Fault] = []
        self.armed: dict[str, str] = {}
        """Name of who runs SQL → what happens to his next mutation."""
        self.full: dict[str, float] = {}
        self.sql_down_until = 0.0

    def due(self) -> None:
        """Let come what is due."""
        world = self.world
        while self.waiting and self.waiting[0].at <= world.now - EPOCH:
            self.ripe.append(self.waiting.popleft())
        if self.ripe:
            phase = world.oracle.row.phase
            for fault in [f for f in self.ripe if not f.when or phase == f.when]:
                self.ripe.remove(fault)
                world.note("fault", str(fault))
                self.strike(fault)

    def strike(self, fault: Fault) -> None:
        world, limits = self.world, self.world.limits
        short_or_long = limits.session_timeout * 2 * fault.value
        if fault.kind in PERSON:
            world.person.asks.append(fault)
            if fault.kind == "stop":
                world.person.asks.append(Fault(fault.at, "start"))
        elif fault.kind == "sql down":
            self.sql_down_until = world.now + short_or_long
        elif fault.kind == "kafka down":
            world.broker.down_until = world.now + short_or_long
        elif fault.kind == "add partition":
            world.broker.add_partition(sorted(world.broker.partitions)[0])
            world.later(fault.value, world.broker.rebalance)
        elif fault.kind == "rebalance":
            world.broker.rebalance()
        elif fault.kind == "driver stall":
            world.drivers[fault.who % len(world.drivers)].stalled_until = world.now + short_or_long
        elif fault.kind.startswith("writer"):
            self.writer(fault, short_or_long)
        else:
            self.process(fault, short_or_long)

    def writer(self, fault: Fault, length: float) -> None:
        if not self.world.writers:
            return
        writer = self.world.writers[fault.who % len(self.world.writers)]
        if fault.kind == "writer kill":
            writer.kill()
        else:
            writer.stalled_until = self.world.now + length

    def process(self, fault: Fault, length: float) -> None:
        there = [p for p in self.world.processes if not p.gone]
        if not there:
            return
        p = there[fault.who % len(there)]
        match fault.kind:
            case "kill":
                p.kill()
            case "kill before sql" | "kill after sql" | "lose reply":
                self.armed[p.incarnation] = fault.kind
            case "stall":
                p.away(stalled=self.world.now + length)
            case "cut sql":
                p.sql_cut_until = self.world.now + length
            case "cut kafka":
                p.away(cut=self.world.now + length)
            case "duplicate":
                self.world.launch(p.name)
            case "trouble":
                if p.stage is Stage.RUNNING:
                    p.inbox.append(sg.Trouble(p.state.epoch, "downstream failed", counted=True))
            case "disturb":
                if p.stage is Stage.RUNNING:
                    p.inbox.append(sg.Disturbed("a callback ran in the same call"))
            case "storage full":
                self.full[p.incarnation] = self.world.now + length
            case _:
                raise AssertionError(f"nobody knows the fault {fault.kind}")

    def storage_fails(self, p: Process) -> bool:
        return self.world.now < self.full.get(p.incarnation, 0.0)

    def at_sql(self, who: Any) -> str:
        """What happens to this mutation."""
        return self.armed.pop(who.incarnation, "") if self.armed else ""

    def heal(self) -> None:
        """All faults end; what they broke is left as it is."""
        self.waiting.clear()
        self.ripe.clear()
        self.armed.clear()
        self.full.clear()
        self.sql_down_until = self.world.broker.down_until = 0.0
        for actor in self.world.actors:
            actor.stalled_until = actor.sql_cut_until = 0.0
        for p in self.world.processes:
            if not p.gone:
                p.away(stalled=0.0, cut=0.0)
                p.sql_cut_until = 0.0
