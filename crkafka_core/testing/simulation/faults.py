"""Faults of a plan, as they hit a simulated region when their time comes."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from crkafka_core.model.rows import ResetCause
from crkafka_core.protocol import signals as sg
from crkafka_core.segments import owner
from crkafka_core.testing.simulation.backup import Backup
from crkafka_core.testing.simulation.broker import Client
from crkafka_core.testing.simulation.copies import Copy
from crkafka_core.testing.simulation.plan import EDGE_FAULTS, PERSON, VISITS, Fault
from crkafka_core.testing.simulation.scheduler import Owner
from crkafka_core.testing.simulation.visitors import VISITORS

if TYPE_CHECKING:
    from crkafka_core.testing.simulation.world import World

EPOCH = 1000.0
"""Simulated time begins here; faults count from it."""
PATIENCE = 3.0
"""Seconds for which a fault waits for its phase."""
MOST_LOST = 100
"""Transactions between a backup and the moment at which it is put in place."""
MADE_ANEW = "was made anew"
"""What a person reads who is told to forget a topic."""
OFTEN = 0.4
"""Chance of a call to fail while a client misbehaves."""


OF_KAFKA = frozenset({"kafka down", "add partition", "retention", "cut log", "topic made anew", "rebalance"})


class Faults:
    """What is still to come, and what waits for its victim's next move."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.waiting = deque(world.plan.faults)
        self.ripe: list[Fault] = []
        self.armed: dict[str, str] = {}
        """Name of who runs SQL → what happens to his next mutation."""
        self.until: dict[tuple[str, str], float] = {}
        """(kind, process) → the end of a time in which something fails now and then."""
        self.sql_down_until = self.lake_fails_until = 0.0
        self.strangers: list[Client] = []
        self.transactions = 0
        self.backups: list[tuple[int, Backup]] = []
        """After so many transactions, what is put in place of SQL."""
        self.over = False
        self.troubled = False
        """A member was told that it failed; it, and then the control plane, hears of it some time after that."""

    def due(self) -> None:
        """Let come what is due."""
        world = self.world
        while self.waiting and self.waiting[0].at <= world.now - EPOCH:
            self.ripe.append(self.waiting.popleft())
        if self.ripe:
            phase = world.oracle.row.phase
            late = world.now - EPOCH - PATIENCE  # it strikes all the same: a fault that never does tries nothing
            for fault in [f for f in self.ripe if not f.when or phase == f.when or f.at < late]:
                self.ripe.remove(fault)
                world.note("fault", str(fault))
                self.strike(fault)

    def strike(self, fault: Fault) -> None:
        world, limits = self.world, self.world.limits
        short_or_long = limits.session_timeout * 2 * fault.value
        step = ""
        if fault.kind in PERSON:
            world.person.ask(fault)
            if fault.kind == "stop":
                world.later(3.0 * fault.value, lambda: world.person.ask(Fault(fault.at, "start")))
        elif fault.kind == "sql down":
            self.sql_down_until = world.now + short_or_long
        elif fault.kind == "lake fails":
            self.lake_fails_until = world.now + short_or_long
        elif fault.kind in OF_KAFKA:
            self.kafka(fault, short_or_long)
        elif fault.kind in ("driver stall", "driver kill", "host stall", "host kill"):
            self.driver_or_host(fault, short_or_long)
        elif fault.kind == "clock step":
            world.clock_offset += (fault.value - 0.5) * 7200.0
        elif fault.kind == "slow":
            world.scheduler.slow = 1.0 + 9.0 * fault.value
            world.later(short_or_long, world.at_usual_speed)
        elif fault.kind == "stranger":
            self.stranger(short_or_long)
        elif fault.kind in VISITS:
            world.visitors.append(VISITORS[fault.kind](world, fault))
        elif fault.kind == "copy":
            self.copy(short_or_long)
        elif fault.kind == "upgrade":
            world.upgrade()
        elif fault.kind == "restore":
            self.backups.append((self.transactions + 1 + int(MOST_LOST * fault.value**2), Backup(world)))
        elif fault.kind.startswith("writer"):
            self.writer(fault, short_or_long)
        elif fault.kind == "lose reply" and (others := self._others(fault.who)):
            self.armed[others.name] = fault.kind
        else:
            step = self.process(fault, short_or_long)
        world.history.pairs.add((str(world.oracle.row.phase), step, fault.kind))

    def kafka(self, fault: Fault, length: float) -> None:
        world, broker = self.world, self.world.broker
        topics, tps = sorted(broker.partitions), sorted(broker.logs)
        match fault.kind:
            case "kafka down":
                broker.down_until = world.now + length
            case "add partition":
                broker.add_partition(topics[0])
                world.later(fault.value, broker.rebalance)
            case "retention":
                broker.expire(tps[fault.who % len(tps)], fault.value)
            case "cut log":
                broker.cut(tps[fault.who % len(tps)], fault.value**2)
            case "topic made anew":
                broker.renew(topics[fault.who % len(topics)])
                world.later(8.0 * fault.value, lambda: world.person.ask(replace(fault, kind="forget")))
            case "rebalance":
                broker.rebalance()

    def driver_or_host(self, fault: Fault, length: float) -> None:
        of_driver = fault.kind.startswith("driver")
        victim = self.world.drivers[fault.who % len(self.world.drivers)] if of_driver else self.world.host
        if fault.kind.endswith("kill"):
            victim.replace()
        else:
            victim.stalled_until = self.world.now + length

    def stranger(self, length: float) -> None:
        """Somebody else's consumer joins the group, and leaves it (SPEC G8)."""
        client = Client("somebody-else", None, stranger=True)
        self.strangers.append(client)
        self.world.broker.join(client)
        self.world.later(length, lambda: self.world.broker.remove(client))

    def copy(self, length: float) -> None:
        """Of the control plane, once the storage says whose it is."""
        world = self.world
        if owner.path_of(world.oracle.row.uid) in world.files:
            copy = Copy(world)
            world.later(length, copy.end)

    def _others(self, who: int) -> Owner | None:
        """Who else than a member asks SQL, every other time."""
        world = self.world
        others: list[Owner] = [world.person, *world.drivers, *world.writers, *(v for v in world.visitors if not v.gone)]
        return others[who // 2 % len(others)] if who % 2 else None

    def writer(self, fault: Fault, length: float) -> None:
        if not self.world.writers:
            return
        writer = self.world.writers[fault.who % len(self.world.writers)]
        if fault.kind == "writer kill":
            writer.replace()
        else:
            writer.stalled_until = self.world.now + length

    def process(self, fault: Fault, length: float) -> str:
        """The step of the cut at which it hit its victim."""
        there = self.world.processes
        if not there:
            return ""
        p = there[fault.who % len(there)]
        step = str(p.parts.loop.state.step) if p.parts is not None else "starting"
        match fault.kind:
            case "kill":
                p.kill()
            case "kill before sql" | "kill after sql" | "lose reply":
                self.armed[p.name] = fault.kind
            case "stall":
                p.away(stalled=self.world.now + length)
            case "hang":
                tasks = [t for t in p.tasks if not t.done]
                if tasks:
                    task = tasks[int(fault.value * 97) % len(tasks)]
                    self.world.note("fault", f"{task.name} of {p.name} hangs")
                    task.held_until = self.world.now + length
            case "cut sql":
                p.sql_cut_until = self.world.now + length
            case "cut kafka":
                p.away(cut=self.world.now + length)
            case "duplicate":
                self.world.launch(p.operator)
            case "trouble":
                if p.parts is not None:
                    p.post(sg.Trouble(p.parts.loop.state.epoch, "downstream failed", ResetCause.FAILURE))
                    self.troubled = True
            case "disturb":
                p.post(sg.Disturbed("a callback ran in the same call"))
            case "storage full":
                self.until[fault.kind, p.name] = self.world.now + length
            case kind if kind in EDGE_FAULTS:
                self.until[kind, p.name] = self.world.now + 2.0 + length / 2
            case _:
                raise AssertionError(f"nobody knows the fault {fault.kind}")
        return step

    def strikes(self, who: Owner, kind: str) -> bool:
        """Whether this call of a misbehaving client fails."""
        if not self.until or self.world.now >= self.until.get((kind, who.name), 0.0):
            return False
        return self.world.rng.random() < OFTEN

    def storage_fails(self, who: Owner) -> bool:
        return bool(self.until) and self.world.now < self.until.get(("storage full", who.name), 0.0)

    def lake_fails(self) -> bool:
        return self.world.now < self.lake_fails_until and self.world.rng.random() < OFTEN

    def at_sql(self, who: Owner) -> str:
        """What happens to this mutation."""
        return self.armed.pop(who.name, "") if self.armed else ""

    def after_transaction(self) -> None:
        """SQL may go back in time as soon as it has answered (SPEC G10)."""
        self.transactions += 1
        while self.backups and self.backups[0][0] <= self.transactions:
            self.restore()

    def restore(self) -> None:
        world, (_, backup) = self.world, self.backups.pop(0)
        world.note("fault", "a backup of SQL is put in place", self.transactions - backup.transactions)
        backup.put_in_place(world)
        # Newer ones are of a state that is gone: to put one in place, too, would be no way back but two states of SQL.
        self.backups = [(at, other) for at, other in self.backups if other.transactions <= backup.transactions]
        ask = Fault(0.0, "go on")
        world.later(4.0 * world.rng.random(), lambda: world.person.ask(ask))

    def heal(self) -> None:
        """All faults end; what they broke is left as it is."""
        world = self.world
        while self.backups:
            self.restore()
        self.over = True
        self.waiting.clear()
        self.ripe.clear()
        self.armed.clear()
        self.until.clear()
        self.sql_down_until = self.lake_fails_until = world.broker.down_until = 0.0
        world.at_usual_speed()
        for client in self.strangers:
            world.broker.remove(client)
        for each in world.owners:
            each.stalled_until = each.sql_cut_until = 0.0
            for task in each.tasks:
                task.held_until = 0.0
        for p in world.processes:
            p.away(stalled=0.0, cut=0.0)
