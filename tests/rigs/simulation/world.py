"""A whole region in one thread on simulated time: real members, host and drivers over simulated edges."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from crkafka_core.config import RegionConfig
from crkafka_core.control import Store
from crkafka_core.model import limits as stored_limits
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import life
from crkafka_core.protocol import SPOKEN
from tests.rigs.simulation.actors import Coordinator, DriverProcess, Host, Person, Producer, Restarted
from tests.rigs.simulation.broker import Broker
from tests.rigs.simulation.configuration import LIMITS, configured
from tests.rigs.simulation.faults import EPOCH, Faults
from tests.rigs.simulation.history import Heard, History, Violation
from tests.rigs.simulation.lake import Lake
from tests.rigs.simulation.member import SimulatedMember
from tests.rigs.simulation.member_epochs import EpochBroker
from tests.rigs.simulation.oracle import Oracle
from tests.rigs.simulation.plan import Fault, Plan
from tests.rigs.simulation.progress import Progress
from tests.rigs.simulation.scheduler import Owner, Scheduler
from tests.rigs.simulation.storage import Disk
from tests.rigs.simulation.tables import TableActor, judge, writers
from tests.rigs.simulation.visitors import Visitor

GRACE = 4.0
"""Simulated seconds for which the end of the faults waits for one that is armed and has hit nobody."""
SINCE_1970 = 1_700_000_000.0
"""When simulated time began, by the database's clock."""

Stores = Callable[[Callable[[], float]], Store]
"""Makes an empty store that tells simulated time."""


class World:
    def __init__(self, plan: Plan, stores: Stores) -> None:
        self.plan = plan
        self.limits = LIMITS
        self.region = "sim"
        self.rng = Random(plan.seed)
        self.scheduler = Scheduler(self.rng, EPOCH)
        self.scheduler.sluggish = plan.sluggish
        self.clock_offset = 0.0
        """How far the database's clock is off."""
        self.history = History(plan.seed, tuple(map(str, plan.faults)))
        self.failure: Violation | None = None
        self.paused: set[tuple[str, str, str]] = set()
        """Kind, what, and of which member alone."""
        self.ever_paused: set[TP] = set()
        self.launches = self.names = 0
        self._stores = stores
        self.store = self.another_store()
        self.spoken = SPOKEN - any(fault.kind == "upgrade" for fault in plan.faults)
        """By programs that are started now."""
        self.config = configured(plan)
        self.wanted = plan.members
        """Members, as a person said last."""
        self.disk: Disk = {}
        self.files: dict[str, bytes] = {}
        """Small files on the disk that are not segments."""
        made = EpochBroker if plan.member_epochs else Broker
        self.broker = made(self.limits.session_timeout, 3 * self.limits.drain_timeout, lambda: self.now)
        self._declare()
        self.oracle = Oracle(self.store, self.region, self.broker, self.disk)
        self.first_epoch = self.oracle.row.epoch + 1
        self.members: list[SimulatedMember] = []
        self.incarnations: dict[str, SimulatedMember] = {}
        self.owners: list[Owner] = []
        self.faults = Faults(self)
        self.coordinator, self.person, self.producer = Coordinator(self), Person(self), Producer(self)
        self.host = Host(self)
        self.drivers = [DriverProcess(self, 1), DriverProcess(self, 2)]
        self.lakes = [Lake(f"table{i}") for i in range(plan.tables)]
        self.visitors: list[Visitor] = []
        self.writers: list[TableActor] = writers(self)

    def _declare(self) -> None:
        """The region in SQL, and its topics in Kafka."""
        plan = self.plan
        row = Region(
            name=self.region,
            uid=f"uid-{plan.seed}",
            region_index=0,
            members_wanted=plan.members,
            limits_json=stored_limits.dump(self.limits),
            config_json=self.config.to_json(),
            period=plan.period or 0.0,
        )
        tables = tuple(Table(self.region, f"table{i}", "delta", f"lake/table{i}") for i in range(plan.tables))
        life.declare(self.store, row, tables)
        self.store.run(self.region, lambda tx: tx.set_region(protocol=self.spoken))
        for i, count in enumerate(plan.partitions):
            self.broker.create(f"t{i}", count)

    @property
    def now(self) -> float:
        return self.scheduler.now

    @property
    def processes(self) -> list[SimulatedMember]:
        return [p for p in self.members if not p.dead]

    def unique(self) -> str:
        self.names += 1
        return f"{self.names:012x}".ljust(32, "0")

    def lake(self, name: str) -> Lake:
        return next(lake for lake in self.lakes if lake.name == name)

    def another_store(self) -> Store:
        """Empty, on the same clock."""
        return self._stores(self._clock)

    def _clock(self) -> float:
        return SINCE_1970 + self.now + self.clock_offset

    # What happens to processes

    def launch(self, operator: str) -> SimulatedMember:
        self.launches += 1
        process = SimulatedMember(self, operator, self.launches)
        self.members.append(process)
        self.owners.append(process)
        self.note(process.name, "launched")
        return process

    def kill(self, owner: Owner) -> None:
        if isinstance(owner, SimulatedMember):
            owner.kill()
        else:
            self.scheduler.kill(owner)

    def configure(self, config: RegionConfig) -> None:
        """Members that are started from now on have it; those that run are ended one by one, and started anew."""
        self.config = config
        for p in self.processes:
            self.later(3.0 * self.rng.random(), p.terminate)

    def upgrade(self) -> bool:
        """A newer program is installed, and says `init`; what runs is started anew with it, one after the other. False: it is there."""
        if self.spoken == SPOKEN:
            return False
        self.spoken = SPOKEN
        for actor in (self.person, self.host):
            self.later(2.0 * self.rng.random(), partial(setattr, actor.plane, "spoken", SPOKEN))
        self.later(2.0, partial(self.person.ask, Fault(0.0, "init")))
        running: list[Restarted] = [*self.drivers, *self.writers]
        for each in running:
            self.later(6.0 * self.rng.random(), each.replace)
        for p in self.processes:
            self.later(6.0 * self.rng.random(), p.terminate)
        return True

    def later(self, after: float, work: Callable[[], None]) -> None:
        def wait() -> None:
            self.scheduler.sleep(after)
            work()

        self.scheduler.spawn(self.coordinator, "later", wait)

    def at_usual_speed(self) -> None:
        self.scheduler.slow = 1.0

    # SQL

    def sql_is_down(self, who: Owner) -> bool:
        now = self.scheduler.now
        everybody = now < self.faults.sql_down_until
        if everybody or now < who.sql_cut_until:
            self.faults.hit("sql down" if everybody else "cut sql", who)
            return True
        return False

    def after_sql(self, who: Owner, what: str, before: Region, done: bool) -> None:
        """The oracle looks after each mutation, whoever ran it, and whether or not it was refused; at tables when one was written."""
        if who.fault:
            self.faults.hit(who.fault, who, before.phase)
        self.judged(self.oracle.judge)
        if done and what.startswith("permits.finish"):
            self.judged(lambda: judge(self))
        if done and what.startswith("_retire"):
            self.judged(self.oracle.retires)
        self.noted(who, what, before)
        self.faults.after_transaction()

    def noted(self, who: Owner, what: str, before: Region) -> None:
        row = self.oracle.row
        if row is before:
            return
        if row.head > before.head:
            self.history.merges.append(self.now - EPOCH)
        if what != "members.renew":
            self.note(who.name, f"sql: {what}", f"{row.phase} epoch {row.epoch} head {row.head} cut {row.open_cut}")
        if row.version != before.version:
            for owner in self.owners:
                if not owner.dead:
                    self.scheduler.look(owner)

    # The history, and what ends it

    def note(self, who: str, what: str, detail: object = None) -> None:
        """An exception is noted in words: it holds its frames, and by them all of this world."""
        if isinstance(detail, Exception):
            detail = str(detail)
        self.history.entries.append((self.now - EPOCH, who, what, detail))

    def note_at(self, place: int, who: str, what: str, heard: Heard | None = None) -> None:
        self.history.entries.insert(place, (self.now - EPOCH, who, what, heard))

    def changes(self, who: Owner, what: str) -> None:
        """T3: of what is beside SQL, a copy of it changes nothing."""
        if who.copy:
            self.fail(Violation("T3", f"{who.name} changes {what}"))

    def fail(self, violation: Violation) -> None:
        """The first one counts; the hub raises it, whatever the code does in which it was found."""
        if self.failure is None:
            self.failure = violation

    def judged(self, judge: Callable[[], None]) -> None:
        """In the midst of the code that is judged, which would catch what is raised."""
        try:
            judge()
        except Violation as violation:
            self.fail(violation)

    def crash(self, error: Exception) -> None:
        """A refusal nobody expected, a pair that no table has: with the seed's history, it can be read."""
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        self.fail(Violation("machine", f"{type(error).__name__}: {error} ({where})"))

    # The schedule

    def run(self) -> History:
        """Chaos, then progress without help, then a clean end."""
        history, progress = self.history, Progress(self)
        try:
            self.person.ask(Fault(0.0, "start"))
            healed, scheduler = EPOCH + self.plan.chaos, self.scheduler
            while scheduler.now < healed or (self.faults.pending and scheduler.now < healed + GRACE):
                self.step()
            progress.run()
        except Violation as violation:
            history.violation = violation
        except Exception as error:
            self.crash(error)
            history.violation = self.failure
        history.cuts, history.stops = self.oracle.cuts, tuple(self.oracle.stops)
        history.picks, history.seconds = self.scheduler.steps, self.now - EPOCH
        return history

    def step(self) -> None:
        self.scheduler.step()
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        self.scheduler.close(self.owners)
        self.store.close()
