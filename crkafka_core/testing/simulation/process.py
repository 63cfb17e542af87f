"""A simulated member process: the real state machine, fed and obeyed by a small copy of the member's threads.

Each thread moves on its own: `event` (Kafka, the machine and its effects), `submit` (permits, the open segment), `report` (mutations
of SQL, in order), `observe` (the desired state), `guard` (lease, watchdog). What is between two moves, anything else may happen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from crkafka_core.model.errors import CrkafkaError, ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.plane import members, view
from crkafka_core.protocol import signals as sg
from crkafka_core.protocol.machine import State, step
from crkafka_core.protocol.signals import ExitKind, Outcome, Stamp
from crkafka_core.testing.simulation.broker import Client, FencedInstance, Record
from crkafka_core.testing.simulation.history import Violation
from crkafka_core.testing.simulation.stage import Stage
from crkafka_core.testing.simulation.storage import save
from crkafka_core.testing.simulation.watch import Watch

if TYPE_CHECKING:
    from crkafka_core.testing.simulation.world import World

QUEUE = 6
"""Batches that a queue holds (SPEC M2)."""


@dataclass(frozen=True)
class Batch:
    """Records of one partition in the queue, under the serial of their stamp (SPEC M4)."""

    serial: int
    tp: TP
    records: tuple[Record, ...]


class Process:
    """One incarnation of one operator name."""

    def __init__(self, world: World, name: str, number: int) -> None:
        self.world = world
        self.name = name
        self.incarnation = f"{name}#{number}"
        self.stage = Stage.LAUNCHING
        self.gone = False
        self.launch = 0
        self.state = State(commit_at_drain=world.plan.commit_at_drain)
        self.inbox: deque[sg.Event] = deque()
        self.effects: deque[sg.Effect] = deque()
        self.outbox: deque[Any] = deque()
        self.question: Any = None
        """The newest start that was asked for; older ones are answered with no."""
        self.replies: deque[sg.Event] = deque()
        """What SQL has answered, on its way to the event thread."""
        self.answer: sg.Event | None = None
        self.saving: int | None = None
        self.ended: ExitKind | None = None
        self.client = Client(name, f"static-{name}" if world.plan.static else None)
        self.stalled_until = 0.0
        self.sql_cut_until = 0.0
        self.kafka_cut_until = 0.0
        # the queue, the gate, the offset manager, the open segment
        self.queue: deque[Batch] = deque()
        self.serial = 0
        self.gate: Stamp | None = None
        self.permit: Batch | None = None
        self.close_waits = False
        self.next: dict[TP, int] = {}
        self.start: dict[TP, int] = {}
        self.frontier: dict[TP, int] = {}
        self.segment: list[tuple[TP, Record]] = []
        self.segments = 0
        self.drained = False
        """Saved for a cut, and neither merged nor reset since."""
        self.first: set[TP] = set()
        """Partitions of which nothing was submitted since the last seek."""
        self.fetched = False
        self.counted = 0
        # observation and lease
        self.look = True
        self.seen = -1
        self.lease_until = 0.0
        self.lease_told = False
        self.renew_at = 0.0
        self.watch = Watch(world, self.name)

    # Whether it moves, and whom it reaches

    def moves(self) -> bool:
        return self.world.now >= self.stalled_until

    def reaches_kafka(self) -> bool:
        return self.world.now >= self.client.away_until

    def away(self, *, stalled: float | None = None, cut: float | None = None) -> None:
        """It does not run, or does not reach Kafka, before this time."""
        self.stalled_until = self.stalled_until if stalled is None else stalled
        self.kafka_cut_until = self.kafka_cut_until if cut is None else cut
        self.client.away_until = max(self.stalled_until, self.kafka_cut_until)
        self.world.broker.calm = False

    def note(self, what: str, detail: object = None) -> None:
        self.world.note(self.incarnation, what, detail)

    def kill(self) -> None:
        """kill -9: everything that is not in SQL, Kafka or the storage is gone."""
        self.note("killed")
        self.vanish()

    def vanish(self) -> None:
        """It is no more; SQL and Kafka may not know yet."""
        self.stage, self.gone = Stage.GONE, True
        self.away(stalled=inf)
        self.world.fewer = True

    def sql(self, work: Callable[[Any], Any], what: str) -> Any:
        return self.world.sql(self, work, what)

    # The event thread

    def event(self) -> None:
        if self.stage is not Stage.RUNNING:
            return
        if self.effects:
            self.perform(self.effects.popleft())
        elif self.inbox:
            self.hear(self.inbox.popleft())
        elif self.state.polls and self.state.client != "INITIALIZED":
            self.poll()

    def hear(self, event: sg.Event) -> None:
        before = self.state
        self.state, effects = step(before, event)
        self.effects.extend(effects)
        self.world.note_machine(self, event, before, effects)

    def poll(self) -> None:
        world = self.world
        if world.broker.down or not self.reaches_kafka():
            return
        try:
            brought = world.broker.poll(self.client, world.rng.random())
        except FencedInstance:
            self.hear(sg.Fenced())
            return
        if brought in ("revoked", "lost"):
            self.hear(sg.Revoked(f"partitions {brought}"))
        elif brought == "assigned":
            assert self.client.holds is not None
            self.hear(sg.Assigned(self.client.holds, self.client.generation))
        elif brought == "records" and self.state.fetches and len(self.queue) < QUEUE and self.frontier:
            self.fetch()

    def fetch(self) -> None:
        rng, broker = self.world.rng, self.world.broker
        for tp in rng.sample(sorted(self.frontier), len(self.frontier)):
            if self.world.paused(self.state, self.name, tp):
                continue
            found = broker.fetch(tp, self.frontier[tp], rng.randint(1, 4))
            if found:
                if not self.fetched:
                    self.fetched = True
                    self.hear(sg.Fetched())
                self.queue.append(Batch(self.serial, tp, tuple(found)))
                self.frontier[tp] = found[-1][0] + 1
                return

    def perform(self, effect: sg.Effect) -> None:
        match effect:
            case sg.CloseGate():
                self.gate = None
                if self.permit is None:
                    self.inbox.append(sg.GateClosed())
                else:
                    self.close_waits = True
            case sg.OpenGate(stamp):
                self.gate = stamp
            case sg.Clear(stamp, drop):
                self.queue.clear()
                self.serial, self.frontier, self.fetched = stamp.serial, {}, False
                if drop:
                    self.drained, self.saving = False, None
                    self.segment, self.next, self.start, self.counted = [], {}, {}, 0
            case sg.Requeue(stamp):
                self.queue.clear()
                self.serial, self.frontier = stamp.serial, dict(self.next)
            case sg.Seek(stamp, offsets):
                if self.segment:
                    raise Violation(
                        "M3", f"{self.incarnation} seeks while its open segment holds {len(self.segment)} tuples"
                    )
                self.world.oracle.sought(self, stamp, offsets)
                self.next, self.start, self.frontier, self.first = (
                    dict(offsets),
                    dict(offsets),
                    dict(offsets),
                    set(offsets),
                )
            case sg.Commit(cut, _):
                self.inbox.append(sg.Committed(cut, self.commit(self.next)))
            case sg.CommitStarts(offsets, _):
                self.commit(offsets)
            case sg.Save(cut):
                if self.permit is not None or self.gate is not None:
                    raise Violation("D1", f"{self.incarnation} saves for cut {cut} while a permit is given or held")
                self.saving = cut
            case sg.Resolve():
                if self.question is not None:
                    self.inbox.append(sg.NotStarted(self.question.stamp))
                self.question = effect
            case sg.ForceRebalance():
                self.world.broker.rebalance()
            case sg.Merged():
                self.start, self.counted, self.drained = dict(self.next), 0, False
                if not self.state.commit_at_drain:
                    self.commit(self.next)
            case sg.Refresh():
                self.look = True
            case sg.Exit(kind, why):
                self.note(f"exits {kind}", why)
                self.ended, self.stage, self.gate = kind, Stage.ENDING, None
                if kind is ExitKind.CLEAN:
                    self.outbox.append(effect)
                else:
                    self.outbox.clear()
                    if kind is ExitKind.FAILED:
                        self.outbox.append(effect)
            case _:
                self.outbox.append(effect)

    def commit(self, offsets: dict[TP, int] | Any) -> Outcome:
        if self.world.broker.down or not self.reaches_kafka():
            return Outcome.ABORT
        outcome = self.world.broker.commit(self.client, offsets)
        if outcome is Outcome.DONE:
            self.world.oracle.committed(self, offsets)
        return outcome

    def save(self, cut: int) -> None:
        if self.world.faults.storage_fails(self):
            self.note("cannot write its segment")
            self.inbox.append(sg.Trouble(self.state.epoch, "the storage is full", counted=False))
            return
        self.segments += 1
        self.drained = True
        path = f"{self.state.epoch}/{self.incarnation}/{self.state.base}/{self.segments}"
        saved = save(self.world.storage, path, self.segment, self.start, self.next)
        self.segment = []
        self.inbox.append(sg.Saved(cut, saved))

    # The process thread

    def submit(self) -> None:
        if self.saving is not None:
            cut, self.saving = self.saving, None
            self.save(cut)
        elif self.permit is not None:
            batch, self.permit = self.permit, None
            if batch.serial == self.serial:
                self.write(batch)
            if self.close_waits:
                self.close_waits = False
                self.inbox.append(sg.GateClosed())
        elif self.gate is not None and self.queue and not self.full():
            self.permit = self.queue.popleft()

    def full(self) -> bool:
        count = self.world.plan.trigger_count
        return bool(count) and self.counted >= count

    def write(self, batch: Batch) -> None:
        """One critical section: compare, write, record the offset (SPEC M4)."""
        for place, record in enumerate(batch.records):
            if batch.tp not in self.next or record[0] < self.next[batch.tp]:
                continue
            self.world.oracle.submitted(self, batch.tp, record)
            self.first.discard(batch.tp)
            self.segment.append((batch.tp, record))
            self.next[batch.tp] = record[0] + 1
            self.counted += 1
            if self.full():
                rest = batch.records[place + 1 :]
                if rest:
                    self.queue.appendleft(Batch(batch.serial, batch.tp, rest))
                self.inbox.append(sg.Triggered(self.state.epoch, self.state.base))
                return

    # Observing, and the lease

    def observe(self) -> None:
        if self.stage is not Stage.RUNNING:
            return
        if not self.look and self.world.oracle.row.version == self.seen:
            return
        try:
            desired = self.world.ask(
                self,
                lambda r, region: view.desired(r, region, members.all_of(r, region.name), self.name, self.incarnation),
            )
        except ServiceUnavailable:
            return
        self.look, self.seen = False, desired.version
        self.inbox.append(sg.Observed(desired))

    def guard(self) -> None:
        """Renew, tell of a lease that ends, watch the others, advance the region (SPEC G4, G7)."""
        if self.stage is not Stage.RUNNING:
            return
        now, limits = self.world.now, self.world.limits
        if now >= self.renew_at:
            try:
                self.sql(lambda tx: members.renew(tx, self.name, self.incarnation), "renew")
                self.renew_at, self.lease_until = now + limits.renew_every, now + limits.session_timeout
            except ServiceUnavailable:
                pass
            except CrkafkaError:
                self.look, self.renew_at = True, now + limits.renew_every
        held = now < self.lease_until
        if held != self.lease_told:
            self.lease_told = held
            self.inbox.append(sg.Lease(held))
        if now > self.lease_until + limits.isolation_timeout:
            self.inbox.append(sg.Broken("cut off from the control plane"))
        self.watch.look(self)
