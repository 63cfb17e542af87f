"""A whole region in one thread on simulated time: a seeded scheduler picks who moves next (FAULTS, simulation)."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from crkafka_core.control import Store
from crkafka_core.model.errors import CrkafkaError, ServiceUnavailable
from crkafka_core.model.limits import Limits
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import limits as stored_limits
from crkafka_core.plane import regions, resets
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.protocol.machine import State
from crkafka_core.testing.simulation.actors import Actor, Driver, Host, Person, Producer, Retirer
from crkafka_core.testing.simulation.broker import Broker
from crkafka_core.testing.simulation.faults import EPOCH, Faults
from crkafka_core.testing.simulation.history import History, Violation
from crkafka_core.testing.simulation.oracle import Oracle
from crkafka_core.testing.simulation.plan import Plan
from crkafka_core.testing.simulation.process import Process
from crkafka_core.testing.simulation.reporter import report
from crkafka_core.testing.simulation.resolver import resolve
from crkafka_core.testing.simulation.stage import Stage
from crkafka_core.testing.simulation.storage import Storage
from crkafka_core.testing.simulation.tables import Lake, Writer

LIMITS = Limits(
    session_timeout=5.0, isolation_timeout=3.0, start_grace=3.0, settle_timeout=15.0, drain_timeout=12.0, reset_timeout=12.0,
    stale_generation=3.0, unheld_timeout=3.0, backoff_cap=2.0, backoff_base=0.1, driver_lease=4.0, retain=3,
)  # fmt: skip
"""Real proportions, on a shorter scale."""

PACE = 1 / 0.012
"""Mean number of moves in a simulated second."""

BUSY = 0.6
"""Share of the picks that go to a thread which has something to do."""

LIVE_WITHIN = 90.0
"""Simulated seconds in which a cut completes once the faults are over (I10)."""

Stores = Callable[[Callable[[], float]], Store]
"""Makes an empty store that tells simulated time."""


class World:
    """One schedule."""

    def __init__(self, plan: Plan, stores: Stores) -> None:
        self.plan = plan
        self.limits = LIMITS
        self.region = "sim"
        self.rng = Random(plan.seed)
        self.chance = self.rng.random
        self.now = EPOCH
        self.history = History(plan.seed, tuple(map(str, plan.faults)))
        self.picks = 0
        self.first_epoch = 0
        self.launches = 0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.store = stores(lambda: self.now)
        self.plane = ControlPlane(self.store, self.region)
        limits = stored_limits.dump(self.limits)
        row = Region(
            name=self.region, uid=f"uid-{plan.seed}", region_index=0, members_wanted=plan.members, limits_json=limits
        )
        tables = tuple(Table(self.region, f"table{i}", "delta", f"lake/table{i}") for i in range(plan.tables))
        regions.declare(self.store, row, tables)
        self.storage: Storage = {}
        self.broker = Broker(self.limits.session_timeout, 3 * self.limits.drain_timeout, lambda: self.now)
        for i, count in enumerate(plan.partitions):
            self.broker.create(f"t{i}", count)
        self.oracle = Oracle(self.store, self.region, self.broker, self.storage)
        self.processes: list[Process] = []
        self.fewer = False
        """One of the processes has gone."""
        self.host, self.person, self.producer, self.retirer = Host(self), Person(self), Producer(self), Retirer(self)
        self.drivers = [Driver(self, 1), Driver(self, 2)]
        self.lakes = [Lake(f"table{i}") for i in range(plan.tables)]
        self.writers = [Writer(self, lake, n) for lake in self.lakes for n in (1, 2)]
        self.actors: list[Actor] = [self.host, self.person, self.producer, self.retirer, *self.drivers, *self.writers]
        self.faults = Faults(self)
        self.moves: list[tuple[Actor | Process, Callable[[], None]]] = []
        self.arrange()

    # Who moves

    def arrange(self) -> None:
        """Who may be picked, more often the more often."""
        self.processes, self.fewer = [p for p in self.processes if not p.gone], False
        frequent = [self.host, self.host, self.producer, *self.drivers, *self.writers]
        others = [*frequent, *frequent, self.person, self.person, self.person, self.retirer]
        self.moves = [(a, a.move) for a in others]  # type: ignore[attr-defined]
        for p in self.processes:
            threads = (
                (p.event, 5),
                (p.submit, 2),
                (partial(report, p), 3),
                (partial(resolve, p), 2),
                (p.observe, 2),
                (p.guard, 2),
            )
            self.moves += [(p, move) for move, often in threads for _ in range(often)]

    def busy(self, p: Process) -> None:
        """One of a process's threads that have something to do, so that few picks are wasted."""
        if not p.moves():
            return
        ready: list[Callable[[Process], None]] = []
        if p.effects or p.inbox:
            ready.append(Process.event)
        if p.saving is not None or p.permit is not None or (p.gate is not None and p.queue):
            ready.append(Process.submit)
        if p.outbox or p.replies or p.stage is not Stage.RUNNING:
            ready.append(report)
        if p.question is not None or p.answer is not None:
            ready.append(resolve)
        if self.now >= p.renew_at:
            ready.append(Process.guard)
        if p.seen != self.oracle.row.version or p.look:
            ready.append(Process.observe)
        if ready:
            ready[int(self.chance() * len(ready))](p)

    def launch(self, name: str) -> None:
        self.launches += 1
        process = Process(self, name, self.launches)
        self.processes.append(process)
        self.note(process.incarnation, "launched")
        self.arrange()

    def later(self, after: float, work: Callable[[], None]) -> None:
        self.timers.append((self.now + after, work))

    def pick(self) -> None:
        """One move of one of them."""
        self.picks += 1
        self.now += self.rng.expovariate(PACE)
        if self.faults.waiting or self.faults.ripe:
            self.faults.due()
        if self.timers:
            due = [work for at, work in self.timers if at <= self.now]
            self.timers = [t for t in self.timers if t[0] > self.now]
            for work in due:
                work()
        self.broker.tick(self.now)
        if self.processes and self.chance() < BUSY:
            self.busy(self.processes[int(self.chance() * len(self.processes))])
        else:
            who, move = self.moves[int(self.chance() * len(self.moves))]
            if who.moves():
                move()
        if self.fewer:
            self.arrange()

    # SQL

    def sql_is_down(self, who: Any) -> bool:
        return self.now < self.faults.sql_down_until or self.now < who.sql_cut_until

    def ask(self, who: Any, question: Callable[..., Any]) -> Any:
        """A question to SQL, as somebody who may not reach it."""
        if self.sql_is_down(who):
            raise ServiceUnavailable("The control plane is not there.")
        return self.plane.read(question)

    def sql(self, who: Any, work: Callable[..., Any], what: str) -> Any:
        """A mutation: it may fail before, its reply may be lost, and who asked may die before or after."""
        if self.sql_is_down(who):
            raise ServiceUnavailable("The control plane is not there.")
        fault = self.faults.at_sql(who)
        if fault == "kill before sql":
            who.kill()
            raise ServiceUnavailable("Killed.")
        before = self.oracle.row
        try:
            result = self.plane.do(work)
        except CrkafkaError as refused:
            self.note(who.incarnation, f"sql: {what}: refused", refused)
            raise
        finally:
            self.oracle.after(what)
        self.noted(who, what, before)
        if fault == "kill after sql":
            who.kill()
        if fault:
            raise ServiceUnavailable("The outcome is unknown.")
        return result

    def noted(self, who: Any, what: str, before: Region) -> None:
        row = self.oracle.row
        if row.head > before.head and what != "start":
            self.history.merges.append(self.now - EPOCH)
        if row is not before and what not in ("renew",):
            self.note(
                who.incarnation, f"sql: {what}", f"{row.phase} epoch {row.epoch} head {row.head} cut {row.open_cut}"
            )

    def paused(self, state: State, name: str, tp: TP) -> bool:
        d = state.desired
        return d is not None and any(m.kind == "partition" and m.what == str(tp) for m in d.marks)

    # The history

    def note(self, who: str, what: str, detail: object = None) -> None:
        """An exception is noted in words: it holds its frames, and by them all of this world."""
        if isinstance(detail, Exception):
            detail = str(detail)
        self.history.entries.append((self.now - EPOCH, who, what, detail))

    def note_machine(self, p: Process, event: Any, before: State, effects: list[Any]) -> None:
        self.history.entries.append(
            (self.now - EPOCH, p.incarnation, f"hears {type(event).__name__}", _Heard(event, p.state, effects))
        )

    # The schedule

    def run(self) -> History:
        """Chaos, then healing, then a clean end."""
        history = self.history
        try:
            self.person.sql(lambda tx: resets.start(tx, by="person"), "start")
            self.first_epoch = self.oracle.row.epoch
            healed = EPOCH + self.plan.chaos
            while self.now < healed:
                self.pick()
            self.heal()
            self.end()
        except Violation as violation:
            history.violation = violation
        except (
            Exception
        ) as error:  # a refusal nobody expected, a pair that no table has: with the seed's history, it can be read
            place = traceback.extract_tb(error.__traceback__)[-1]
            history.violation = Violation(
                "machine", f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
            )
        history.cuts, history.stops = self.oracle.cuts, tuple(self.oracle.stops)
        history.picks, history.seconds = self.picks, self.now - EPOCH
        return history

    def until(self, done: Callable[[], bool], within: float, what: str) -> None:
        end = self.now + within
        while not done():
            if self.now > end:
                raise Violation("I10", f"{what} took more than {within:.0f} simulated seconds; {self.oracle.row}")
            for _ in range(8):
                self.pick()

    def heal(self) -> None:
        """I10: once the faults are over, a cut completes; a region that was STOPPED is started by a person."""
        self.note("world", "faults are over")
        self.history.healed_at, self.history.resets = self.now - EPOCH, self.oracle.row.epoch - self.first_epoch
        self.faults.heal()
        self.broker.rebalance()
        cuts = self.oracle.cuts
        for _ in range(3):
            self.person.asks.clear()
            if self.oracle.row.phase in (Phase.STOPPED, Phase.IDLE) or self.oracle.row.wanted == "stop":
                self.person.sql(lambda tx: resets.start(tx, by="person"), "start")
            self.until(lambda: self.oracle.cuts > cuts or self.oracle.row.phase is Phase.STOPPED, LIVE_WITHIN, "a cut")
            if self.oracle.cuts > cuts:
                return
        raise Violation("I10", f"the region is stopped again and again: {self.oracle.row.stop_reason}")

    def end(self) -> None:
        """A clean stop with a last cut; then what Kafka has committed is what the head says (I12)."""
        self.note("world", "a clean end")
        self.producer.stopped = True
        self.until(lambda: self.oracle.row.phase is Phase.RUNNING, LIVE_WITHIN, "running")
        cuts = self.oracle.cuts
        self.person.sql(lambda tx: regions.stop(tx, token="the last", by="person"), "stop")
        self.until(lambda: self.oracle.row.phase is Phase.IDLE and not self.processes, LIVE_WITHIN, "stopping")
        self.history.tuples = self.oracle.final()
        for writer in self.writers:
            writer.judge()
        if (
            self.oracle.cuts > cuts
            and self.plan.commit_at_drain
            and self.broker.committed != self.oracle.merged[self.oracle.row.head]
        ):
            raise Violation(
                "I12", f"committed {self.broker.committed}, merged {self.oracle.merged[self.oracle.row.head]}"
            )


class _Heard:
    """What the machine heard and answered, formatted when it is read."""

    __slots__ = ("effects", "event", "state")

    def __init__(self, event: Any, state: State, effects: list[Any]) -> None:
        self.event, self.state, self.effects = event, state, effects

    def __str__(self) -> str:
        s, e = self.state, self.event
        what = ""
        if hasattr(e, "desired"):
            d = e.desired
            what = f"{d.phase} epoch {d.epoch} head {d.head} cut {d.cut.id if d.cut else 0}{'' if d.registered else ' not registered'}: "
        elif hasattr(e, "held"):
            what = f"{e.held if isinstance(e.held, bool) else sorted(map(str, e.held))}: "
        does = ", ".join(type(x).__name__ for x in self.effects) or "nothing"
        return f"{what}{does}  [{s.client} {s.epoch}/{s.base}/{s.serial} gate {s.gate} step {s.step}]"
