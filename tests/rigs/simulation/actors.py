"""Who else moves in a simulated region: its host and drivers (the real ones), a person, producers, the coordinator of the group."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from crkafka_core.config import RegionConfig
from crkafka_core.control import Tx
from crkafka_core.hosts.processes import ProcessHost
from crkafka_core.kafka.edge import Admin
from crkafka_core.member.exit_codes import REFUSED
from crkafka_core.model.errors import CrkafkaError, DataLoss, Refused, ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Table
from crkafka_core.model.rows import Region as RegionRow
from crkafka_core.plane import life, pauses, resets, starts, tables
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.protocol import SPOKEN
from crkafka_core.region.driver import Driver
from crkafka_core.region.region import Region
from crkafka_core.segments.storage import Storage
from tests.rigs.simulation.configuration import changes, configured
from tests.rigs.simulation.kafka import SimulatedAdmin
from tests.rigs.simulation.member import launcher
from tests.rigs.simulation.plan import PERSON
from tests.rigs.simulation.plane import SimulatedPlane
from tests.rigs.simulation.scheduler import Owner, SimulatedRuntime
from tests.rigs.simulation.storage import SimulatedStorage

if TYPE_CHECKING:
    from tests.rigs.simulation.plan import Fault
    from tests.rigs.simulation.world import World

STABLE = 3.0
"""The host's, on the shorter scale of `LIMITS`."""
RETIRE_EVERY = 2.0
"""Seconds between two retirements by a driver."""


class Actor(Owner):
    """Somebody with a process of his own, who reaches SQL or does not."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(name)
        self.world = world
        self.plane: ControlPlane = SimulatedPlane(world, self)
        self.runtime = SimulatedRuntime(world.scheduler, self, world.unique)
        world.owners.append(self)


class SimulatedRegion(Region):
    """The facade, as a driver's process has it."""

    def __init__(self, actor: Actor, config: RegionConfig | None = None) -> None:
        super().__init__(config or actor.world.config, actor.plane, actor.runtime)
        self._actor = actor

    def init(self, *, configure: bool = True, again: bool = False) -> RegionRow:
        """By an older program it raises no protocol, as the code that runs here would."""
        if self.plane.spoken != SPOKEN:
            return self.plane.read(lambda _, row: row)
        return super().init(configure=configure, again=again)

    def storage(self) -> Storage:
        return SimulatedStorage(self._actor.world, self._actor)

    def admin(self) -> Admin:
        return SimulatedAdmin(self._actor.world, self._actor)


class Restarted(Actor):
    """Dies, and somebody starts another one in its place."""

    def replace(self) -> None:
        """It is killed; the other one comes after a while."""
        if not self.dead:
            self.world.scheduler.kill(self)
            self.world.later(3.0 * self.world.rng.random(), self.another)

    def another(self) -> None:
        raise NotImplementedError


class Host(Restarted):
    """The real host of local processes; what it starts are simulated ones."""

    def __init__(self, world: World, *, again: bool = False) -> None:
        super().__init__(world, "host")
        self._start(again=again)

    def _start(self, *, again: bool) -> None:
        world = self.world
        self.host = ProcessHost(world.config, self.plane, launch=launcher(world), runtime=self.runtime, stable=STABLE)
        if again:
            world.note(self.name, "is started anew")
            world.scheduler.spawn(self, "init", partial(self._begin, self.host))
        else:
            self.host.begin()

    def _begin(self, host: ProcessHost) -> None:
        """As `crkafka host` does, which ends where that is refused, and is started anew."""
        while True:
            try:
                SimulatedRegion(self).init()
                host.begin()
                return
            except CrkafkaError:
                self.world.scheduler.sleep(1.0)

    def replace(self) -> None:
        """Its members end with it (fault 85)."""
        if not self.dead:
            for member in self.host.running().values():
                self.world.later(0.5 * self.world.rng.random(), member.kill)
        super().replace()

    def another(self) -> None:
        self.world.host = Host(self.world, again=True)

    def supervise(self) -> None:
        """A host that will start none of its members any more ends with 1, and is started anew; here once the duplicates are gone too."""
        if self.host.given_up() and all(member.dead for member in self.world.members):
            self.host.stop_starting()
            self._start(again=True)
        if not self.dead and self._outdated():
            self.replace()

    def _outdated(self) -> bool:
        """A member was started just before the configuration changed, and refused: somebody starts its host with the new one."""
        latest = {member.operator: member for member in self.world.members}
        return any(m.code == REFUSED and m.config is not self.world.config for m in latest.values())


class DriverProcess(Restarted):
    """The real driver: opens the cuts that are due, and retires."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, f"driver-{number}")
        self.number = number
        self.runtime.start(Driver(SimulatedRegion(self), retire_every=RETIRE_EVERY))

    def another(self) -> None:
        self.world.drivers[self.number - 1] = DriverProcess(self.world, self.number)


class Person(Actor):
    """Asks for what the plan's faults say, until the region has said yes or no."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "person")
        self.asks: list[Fault] = []
        self.skips: dict[Fault, tuple[TP, int, int]] = {}
        """What is given up, by the ask: partition, first and last offset."""
        self.region = SimulatedRegion(self)
        world.scheduler.spawn(self, "person", self._live)

    def ask(self, what: Fault) -> None:
        self.asks.append(what)
        self.world.scheduler.look(self)

    def _live(self) -> None:
        while True:
            self.world.scheduler.idle(3600.0, lambda: bool(self.asks))
            if self.asks:
                self._ask(self.asks[0])

    def _ask(self, ask: Fault) -> None:
        self.fault = ask.kind if ask.kind in PERSON else ""
        try:
            self.do(ask)
        except ServiceUnavailable:
            return
        except CrkafkaError as refused:
            self.world.note(self.name, f"{ask.kind} refused", refused)
            if self.plane.spoken < self.world.spoken:
                self.world.scheduler.sleep(0.5)  # he takes the new program, and asks again
                return
        if ask in self.asks:
            self.asks.remove(ask)

    def do(self, ask: Fault) -> None:
        match ask.kind:
            case "rewind":
                self._rewind(ask)
            case "initial":
                self.plane.do(lambda tx: resets.request(tx, cause="a person", by="person", target=0))
            case "reset":
                self.plane.do(lambda tx: resets.request(tx, cause="a person", by="person"))
            case "scale":
                self.plane.do(lambda tx: life.scale(tx, 1 + int(ask.value * 4), by="person"))
                self.world.wanted = 1 + int(ask.value * 4)
            case "stop":
                self.plane.do(lambda tx: life.stop(tx, token=f"stop {ask.at}", by="person"))
            case "start":
                self._start("")
            case "go on":
                self._start("rewind")
            case "init":
                SimulatedRegion(self).init()
            case "configure" if self.plane.spoken == SPOKEN:
                self._configure(ask)
            case "skip":
                self._skip(ask)
            case "forget":
                self._forget()
            case "undeclare":
                self._undeclare(ask)
            case "declare":
                name = self.world.lakes[ask.who % len(self.world.lakes)].name
                self.plane.do(partial(self._declare, name=name))
            case "pause":
                self._pause(ask)
            case "resume":
                for kind, what, member in sorted(self.world.paused):
                    self.plane.do(partial(pauses.resume, kind=kind, what=what, member=member, by="person"))
                self.world.paused.clear()

    def _configure(self, ask: Fault) -> None:
        config, before = configured(self.world.plan, **changes(self.world.plan, ask.value)), self.world.oracle.row
        SimulatedRegion(self, config).init()
        self.world.faults.hit(ask.kind, self, before.phase)
        self.world.configure(config)

    def _rewind(self, ask: Fault) -> None:
        live = self.plane.read(lambda r, region: r.select(Checkpoint, ("status", "=", CheckpointStatus.MERGED)))
        if live:
            target = live[int(ask.value * len(live))].id
            self.world.note(self.name, f"rewinds to {target}")
            self.plane.do(lambda tx: resets.request(tx, cause="a person", by="person", target=target))

    def _pause(self, ask: Fault) -> None:
        """A partition, for whoever holds it or for one member alone; a topic, by its name or by a pattern; or a member (SPEC P1, P2)."""
        world, tps = self.world, sorted(self.world.broker.all())
        tp, member = tps[int(ask.value * len(tps))], world.config.member_name(ask.who % 2)
        kind, what, where = (
            ("partition", str(tp), ""),
            ("partition", str(tp), ""),
            ("partition", str(tp), member),
            ("topic", tp.topic, ""),
            ("pattern", f"^{tp.topic}$", ""),
            ("member", member, ""),
        )[ask.who % 6]
        world.paused.add((kind, what, where))
        world.ever_paused |= {tp} if kind == "partition" else set(tps)
        self.plane.do(lambda tx: pauses.pause(tx, kind, what, by="person", member=where))

    def _skip(self, ask: Fault) -> None:
        """Some of what comes next in a partition, as a person does who is told that no client can read it (SPEC X9)."""
        tps = sorted(self.world.oracle.known)
        if not tps:
            return
        if ask not in self.skips:
            tp = tps[ask.who % len(tps)]
            ids = {tp: self.world.broker.ids[tp.topic]}
            first = self.plane.read(lambda reader, row: starts.lookup(reader, row, ids)).offsets.get(tp)
            if (
                first is None
            ):  # SQL does not know it: a backup from before its start is in place, or its topic was made anew
                return
            self.skips[ask] = tp, first, min(first + int(3 * ask.value), self.world.broker.ends[tp] - 1)
        tp, first, last = self.skips[ask]  # asked again, he says the same
        if last >= first:
            oracle, token = self.world.oracle, f"skip {ask.at} of {ask.who}"
            oracle.skips.add((tp, first, last + 1))
            self.region.skip(tp, first, last, by="person", token=token)
            if (done := self.plane.read(lambda reader, row: resets.of_token(reader, token))) is not None:
                oracle.given_up[done.target, tp] = done.epoch, last + 1

    def _forget(self) -> None:
        """The topics that `check` tells him were made anew; then he starts what that has stopped, or will have."""
        known = self.plane.read(lambda reader, _: starts.known(reader))
        for topic in sorted({tp.topic for tp, i in known.items() if i.topic_id != self.world.broker.ids[tp.topic]}):
            self.region.forget(topic, by="person")
        if self.plane.read(lambda _, row: row.phase) is Phase.STOPPED:
            self._start("")

    def _undeclare(self, ask: Fault) -> None:
        """And declare it again where it is, some time after that (SPEC X4)."""
        if not self.world.lakes:
            return
        table = self.world.lakes[ask.who % len(self.world.lakes)].name
        self.plane.do(lambda tx: tables.undeclare(tx, table, by="person"))
        self.world.later(6.0 * ask.value, lambda: self.ask(replace(ask, kind="declare")))

    def _declare(self, tx: Tx, name: str) -> None:
        """It counts once SQL has it, also before the person hears of it."""
        table = tables.declare(tx, name, "delta", f"lake/{name}", by="person")
        self.world.oracle.declared.add((name, table.rewind_epoch))

    def _start(self, restored: Literal["", "rewind"]) -> None:
        if restored:  # the backup may be older than the configuration (docs/operations.md)
            SimulatedRegion(self).init()
        try:
            self.region.start(by="person", restored=restored)
        except (
            Refused
        ) as refused:  # what would be taken from the tables cannot be given again: they are kept as they are
            if not isinstance(refused, DataLoss) and "whose segments are gone" not in refused.message:
                raise
            for table in self.plane.read(lambda reader, _: reader.select(Table)):
                self.plane.do(partial(tables.undeclare, name=table.name, by="person"))
            self.region.start(by="person", restored=restored)


class Producer(Actor):
    """Appends uniquely numbered records, with holes now and then."""

    EVERY = 0.12

    def __init__(self, world: World) -> None:
        super().__init__(world, "producer")
        self.stopped = False
        world.scheduler.spawn(self, "producer", self._live)

    def _live(self) -> None:
        rng, broker = self.world.rng, self.world.broker
        while True:
            self.world.scheduler.sleep(rng.expovariate(1 / self.EVERY))
            if self.stopped:
                return
            tp = rng.choice(sorted(broker.logs))
            for _ in range(rng.randint(1, 4)):
                broker.produce(tp, hole=rng.choice((0, 0, 0, 0, 1, 2)))


class Coordinator(Actor):
    """Ends sessions and rebalances that are over; runs whenever simulated time goes on."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "coordinator")
        world.scheduler.spawn(self, "coordinator", self._live)

    def _live(self) -> None:
        while True:
            self.world.scheduler.sleep(0.1)
            self.world.broker.tick(self.world.now)
            self.world.faults.due()
