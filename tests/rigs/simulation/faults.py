"""Faults of a plan, as they hit a simulated region when their time comes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import ResetCause
from crkafka_core.protocol import signals as sg
from crkafka_core.segments import owner
from tests.rigs.simulation.actors import Restarted
from tests.rigs.simulation.backup import Backup
from tests.rigs.simulation.broker import Client
from tests.rigs.simulation.copies import Copy
from tests.rigs.simulation.member import SimulatedMember
from tests.rigs.simulation.plan import ANSWERS, EDGE_FAULTS, PERSON, PROCESS_FAULTS, RENEWED, VISITS, Fault
from tests.rigs.simulation.scheduler import Owner
from tests.rigs.simulation.visitors import VISITORS

if TYPE_CHECKING:
    from tests.rigs.simulation.world import World

EPOCH = 1000.0
"""Simulated time begins here; faults count from it."""
PATIENCE = 3.0
"""Seconds for which a fault waits for its phase, or for what its victim does next."""
MOST_LOST = 100
"""Transactions between a backup and the moment at which it is put in place."""
RECREATED = "was made anew"
"""What a person reads who is told to forget a topic."""
WHENEVER = float("inf")
"""Some ask SQL seldom: their reply is lost when they do."""
OFTEN = 0.4
"""Chance of a call to fail while a client misbehaves."""
OF_SEEKS = frozenset({"seek fails", "seek is lost"})
"""They fail what nobody does without a reset."""


OF_KAFKA = frozenset({"kafka down", "no leader", "add partition", "retention", "cut log", RENEWED, "rebalance"})


@dataclass
class Armed:
    """A fault that hits whoever does a certain thing while it is there."""

    fault: Fault
    victim: Owner | None
    """None: whoever does it."""
    until: float
    hit: bool = False
    again: bool = False
    """It hit nobody in its first time."""


class Faults:
    """What is still to come, and what waits for its victim's next move."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.waiting = deque(world.plan.faults)
        self.ripe: list[Fault] = []
        self.armed: list[Armed] = []
        self.sql_down_until = 0.0
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
        if self.armed:
            self._arm_again()
        if self.ripe:
            phase = world.oracle.row.phase
            late = world.now - EPOCH - PATIENCE  # it comes all the same: a fault that never does tries nothing
            for fault in [f for f in self.ripe if not f.when or phase == f.when or f.at < late]:
                before = len(world.history.entries)
                if self.strike(fault):
                    self.ripe.remove(fault)
                    world.note_at(before, "fault", str(fault))

    def _arm_again(self) -> None:
        """What has hit nobody in its time, or whose victim has died, comes again: for another one, and for longer."""
        for armed in self.armed[:]:
            dead = armed.victim is not None and armed.victim.dead
            if dead or self.world.now >= armed.until:
                self.armed.remove(armed)
                if not armed.hit:
                    fault = armed.fault
                    self.ripe.append(replace(fault, who=fault.who + 1, value=min(1.0, fault.value + 0.1)))

    @property
    def pending(self) -> bool:
        """One is armed that has hit nobody yet, and soon will."""
        return not all(armed.hit or armed.until == WHENEVER for armed in self.armed)

    def hit(self, kind: str, who: Owner | None = None, phase: Phase | None = None) -> None:
        """A fault of this kind hits somebody, or all, in this phase of the region: the present one, unless it is told."""
        if self.over:
            return
        step = ""
        if isinstance(who, SimulatedMember):
            step = str(who.parts.loop.state.step) if who.parts is not None else "starting"
        self.world.history.pairs.add((str(phase or self.world.oracle.row.phase), step, kind))
        for armed in self.armed:
            if armed.fault.kind == kind and armed.victim in (None, who) and not armed.hit:
                armed.hit = True
                self.world.note("fault", f"{kind} hits {who.name if who is not None else 'all'}")
                return

    def strike(self, fault: Fault) -> bool:
        """It comes; False as long as there is nobody, or nothing, to whom it could happen."""
        world, kind = self.world, fault.kind
        length = world.limits.session_timeout * 2 * fault.value
        if kind in OF_KAFKA:
            return self.kafka(fault, length)
        if kind in PROCESS_FAULTS or kind in EDGE_FAULTS or kind in ANSWERS:
            return self.process(fault, length)
        if kind.startswith(("driver", "host", "writer")):
            return self.actor(fault, length)
        if kind in PERSON:
            world.person.ask(fault)
            if kind == "stop":
                world.later(3.0 * fault.value, lambda: world.person.ask(Fault(fault.at, "start")))
        elif kind in VISITS:
            world.visitors.append(VISITORS[kind](world, fault))
        elif kind == "restore":
            self.backups.append((self.transactions + 1 + int(MOST_LOST * fault.value**2), Backup(world)))
        elif kind in ("sql down", "lake fails"):
            self._arm(fault, None, length)
            if kind == "sql down":
                self.sql_down_until = world.now + length
        else:
            return self.region(fault, length)
        return True

    def _arm(self, fault: Fault, victim: Owner | None, length: float) -> None:
        again = fault not in self.world.plan.faults
        armed = Armed(fault, victim, self.world.now + length, again=again)
        self.armed.append(armed)
        if fault.kind in OF_SEEKS:
            self.world.later(1.0, lambda: self._bring_a_seek(armed))

    def _bring_a_seek(self, armed: Armed) -> None:
        """Without a reset nobody seeks."""
        if not armed.hit and not self.over:
            self.world.person.ask(replace(armed.fault, kind="reset"))

    def region(self, fault: Fault, length: float) -> bool:
        """What hits all at once."""
        world = self.world
        match fault.kind:
            case "clock step":
                world.clock_offset += (fault.value - 0.5) * 7200.0
            case "slow":
                world.scheduler.slow = 1.0 + 9.0 * fault.value
                world.later(length, world.at_usual_speed)
            case "stranger":
                self.stranger(length)
            case "copy":
                if owner.path_of(world.oracle.row.uid) not in world.files:
                    return False  # the storage does not yet say whose it is
                world.later(length, Copy(world).end)
            case "upgrade":
                if not world.upgrade():
                    return False
            case _:
                raise AssertionError(f"nobody knows the fault {fault.kind}")
        self.hit(fault.kind)
        return True

    def kafka(self, fault: Fault, length: float) -> bool:
        world, broker = self.world, self.world.broker
        topics, tps = sorted(broker.partitions), sorted(broker.logs)
        done = True
        match fault.kind:
            case "kafka down":
                broker.down_until = world.now + length
                self._arm(fault, None, length)
                return True
            case "no leader":
                broker.leaderless[tps[fault.who % len(tps)]] = world.now + length
            case "add partition":
                broker.add_partition(topics[0])
                world.later(fault.value, broker.rebalance)
            case "retention":
                done = broker.expire(tps[fault.who % len(tps)], fault.value)
            case "cut log":
                whole = [tp for tp in tps if tp not in broker.cuts]
                done = bool(whole)
                if whole:
                    broker.cut(whole[fault.who % len(whole)], fault.value**2)
            case "topic made anew":
                broker.renew(topics[fault.who % len(topics)])
                world.later(8.0 * fault.value, lambda: world.person.ask(replace(fault, kind="forget")))
            case "rebalance":
                broker.rebalance()
        if done:
            self.hit(fault.kind)
        return done

    def actor(self, fault: Fault, length: float) -> bool:
        """A driver, the host, or who writes a table: one that is alive."""
        world = self.world
        name, what = fault.kind.split()
        actors: dict[str, Sequence[Restarted]] = {
            "driver": world.drivers,
            "host": (world.host,),
            "writer": world.writers,
        }
        alive = [each for each in actors[name] if not each.dead]
        if not alive:
            return False
        victim = alive[fault.who % len(alive)]
        self.hit(fault.kind, victim)
        if what == "kill":
            victim.replace()
        else:
            victim.stalled_until = world.now + length
        return True

    def stranger(self, length: float) -> None:
        """Somebody else's consumer joins the group, and leaves it (SPEC G8)."""
        client = Client("somebody-else", None, stranger=True)
        self.strangers.append(client)
        self.world.broker.join(client)
        self.world.later(length, lambda: self.world.broker.remove(client))

    def _others(self, who: int) -> Owner:
        """Who else than a member asks SQL."""
        world = self.world
        others: list[Owner] = [world.person, *world.drivers, *world.writers, *(v for v in world.visitors if not v.gone)]
        return others[who // 2 % len(others)]

    def process(self, fault: Fault, length: float) -> bool:
        """What hits a member's process, or whoever asks SQL: now, or by what it does next."""
        world, kind = self.world, fault.kind
        if kind == "lose reply" and fault.who % 2:
            self._arm(fault, self._others(fault.who), WHENEVER)
            return True
        if kind == "question fails" and fault.who % 2:
            self._arm(fault, None, 2.0 + length / 2)
            return True
        running = world.processes
        if not running:
            return False
        p = running[fault.who % len(running)]
        match kind:
            case "kill before sql" | "kill after sql" | "lose reply":
                self._arm(fault, p, PATIENCE)
            case "cut sql":
                p.sql_cut_until = world.now + length
                self._arm(fault, p, length)
            case "cut kafka":
                p.away(cut=world.now + length)
                self._arm(fault, p, length)
            case "storage full":
                self._arm(fault, p, length)
            case _ if kind in EDGE_FAULTS or kind in ANSWERS:
                self._arm(fault, p, 2.0 + length / 2)
            case _:
                return self._at_once(fault, p, length)
        return True

    def _at_once(self, fault: Fault, p: SimulatedMember, length: float) -> bool:
        tasks = p.tasks
        if (fault.kind in ("trouble", "disturb") and p.parts is None) or (fault.kind == "hang" and not tasks):
            return False
        self.hit(fault.kind, p)
        match fault.kind:
            case "kill":
                p.kill()
            case "stall":
                p.away(stalled=self.world.now + length)
            case "hang":
                task = tasks[int(fault.value * 97) % len(tasks)]
                self.world.note("fault", f"{task.name} of {p.name} hangs")
                task.held_until = self.world.now + length
            case "duplicate":
                self.world.launch(p.operator)
            case "trouble" if p.parts is not None:
                p.post(sg.Trouble(p.parts.loop.state.epoch, "downstream failed", ResetCause.FAILURE))
                self.troubled = True
            case "disturb":
                p.post(sg.Disturbed("a callback ran in the same call"))
            case _:
                raise AssertionError(f"nobody knows the fault {fault.kind}")
        return True

    def _armed_for(self, who: Owner, kind: str) -> list[Armed]:
        now = self.world.now
        return [a for a in self.armed if a.fault.kind == kind and a.victim in (None, who) and now < a.until]

    def misbehaves(self, who: Owner, kind: str) -> bool:
        """Whether this call of his fails; who asks says whether that hits anybody."""
        if not self.armed or not (armed := self._armed_for(who, kind)):
            return False
        return self.world.rng.random() < OFTEN or any(a.again and not a.hit for a in armed)

    def strikes(self, who: Owner, kind: str) -> bool:
        """Whether this call of his fails, which hits him."""
        if not self.misbehaves(who, kind):
            return False
        self.hit(kind, who)
        return True

    def storage_fails(self, who: Owner) -> bool:
        if not self.armed or not self._armed_for(who, "storage full"):
            return False
        self.hit("storage full", who)
        return True

    def at_sql(self, who: Owner, kind: str) -> bool:
        """Whether this happens to his mutation: once for each fault."""
        if not any(a.fault.kind == kind and a.victim is who and not a.hit for a in self.armed):
            return False
        self.hit(kind, who)
        return True

    def after_transaction(self) -> None:
        """SQL may go back in time as soon as it has answered (SPEC G10)."""
        self.transactions += 1
        while self.backups and self.backups[0][0] <= self.transactions:
            self.restore()

    def restore(self) -> None:
        world, (_, backup) = self.world, self.backups.pop(0)
        world.note("fault", "a backup of SQL is put in place", self.transactions - backup.transactions)
        self.hit("restore")
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
        self.sql_down_until = world.broker.down_until = 0.0
        world.broker.leaderless.clear()
        world.at_usual_speed()
        for client in self.strangers:
            world.broker.remove(client)
        for each in world.owners:
            each.stalled_until = each.sql_cut_until = 0.0
            for task in each.tasks:
                task.held_until = 0.0
        for p in world.processes:
            p.away(stalled=0.0, cut=0.0)
