"""The event thread: owns the Kafka consumer and the state machine; the only one that touches either (SPEC M1).

Each turn: take the events that came in, step the machine with each, carry its effects out; then poll, unless it rests for a cut (D1)
or the queue is full (M2). Which partitions flow is recomputed after every step from the machine's state and the pause marks (P3).
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Mapping, Sequence

from crkafka_core.kafka import errors
from crkafka_core.kafka.clients import Throttle
from crkafka_core.kafka.edge import Consumer, Kind, Polled
from crkafka_core.loop import THREADS, Runtime
from crkafka_core.member.kafka_troubles import KafkaTroubles
from crkafka_core.member.observer import Observer
from crkafka_core.member.reporter import Reporter
from crkafka_core.member.resolver import Resolver
from crkafka_core.member.submitter import Submitter
from crkafka_core.model.desired import Desired, Mark
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import ClientState
from crkafka_core.model.rows import ResetCause
from crkafka_core.protocol import machine, state
from crkafka_core.protocol import signals as sg
from crkafka_core.protocol.commit_metadata import CommitMetadata
from crkafka_core.segments.batch import Unreadable

_log = logging.getLogger(__name__)
_trouble_log = logging.getLogger(__name__ + ".kafka")
_trouble_log.addFilter(Throttle())  # the client reports one absent broker by several errors at once
FLOWING = 0.02
"""Seconds of one poll while records flow: how late an event can be noticed (docs/clients.md C-K2)."""
ENDS_EVERY = 1.0
"""Seconds between two looks at the ends of the held partitions, for the lag."""
GATHERING = 2.0
"""Seconds for which a new member waits for the others before it joins the group."""
TELL_EVERY = 60.0
"""Seconds between two events about records that could not be kept whole: a topic can be full of them."""
FULL = 5.0
"""Seconds without a poll while the queue is full. Such a poll pauses what flows, which throws away what the client has fetched ahead;
but a rebalance waits for a poll of each member, also of one whose queue is not emptied, and that cut waits for a settled group."""
MOMENT = 1.0
"""Seconds for which a commit is waited for on which nothing depends: of the head after a reset, and of a cut behind its mark."""
RESTING = 0.05
"""Seconds of one poll while everything is paused: throttled, membership is kept (SPEC M8)."""

_OUTCOMES = ((errors.GroupRebalanced, sg.Outcome.REBALANCED), (errors.KafkaFailed, sg.Outcome.RESTART))
"""What follows from a commit that failed; from all other errors `ABORT` (SPEC D2)."""


class EventLoop:
    """Made and run on one thread. `post` may be called from any."""

    def __init__(
        self,
        *,
        chunk: int,
        poll_interval: float,
        commit_at_drain: bool,
        uid: str,
        name: str,
        runtime: Runtime = THREADS,
    ) -> None:
        self._runtime = runtime
        self.inbox: queue.SimpleQueue[sg.Event | None] = queue.SimpleQueue()
        self.state = state.State(commit_at_drain=commit_at_drain)
        self.exit: sg.Exit | None = None
        self.progress = self._runtime.now()
        self.busy_until = 0.0
        self._chunk, self._poll_interval = chunk, poll_interval
        self._uid, self._name = uid, name
        self._made_at = self._polled_at = self._runtime.now()
        self._subscribed = False
        self.high: dict[TP, int] = {}
        """High watermarks of held partitions, for the lag; replaced as a whole."""
        self._high_at = 0.0
        self._landed: dict[TP, int] | None = None
        """What declared tables have acknowledged, where they were behind at the last cut or start; None without tables (SPEC S2)."""
        self.rebalances = 0
        self.troubles = KafkaTroubles(runtime, lambda: self.state.held is not None)
        self.dropped = 0
        """Records that were fetched and not handed out: they are fetched again, or are another member's by now."""
        self.unreadable = 0
        """Records of which a part is null, since it cannot be kept (SPEC X9)."""
        self._unreadable_event_at = -TELL_EVERY
        self.cuts = 0
        self.ends: dict[TP, int] = {}
        """Ends of partitions as the consumer met them, under the current assignment (SPEC V3)."""
        self._reached: dict[str, tuple[sg.Reach, Desired]] = {}
        """Token of a bounded run → the last report of it, and the state of SQL that it was made for."""

    def post(self, event: sg.Event | None) -> None:
        """Queue an event; None only wakes the thread."""
        self.inbox.put(event)

    def standstill(self) -> float:
        """Seconds since the last turn began, without waits that have a deadline of their own."""
        now = self._runtime.now()
        return max(0.0, now - max(self.progress, self.busy_until))

    def begin(
        self,
        consumer: Consumer,
        submitter: Submitter,
        reporter: Reporter,
        resolver: Resolver,
        observer: Observer,
        subscribe: Callable[[Consumer], None],
        nudge: Callable[[], None],
    ) -> None:
        """Before the first turn. `nudge` makes the group rebalance, without waiting for it."""
        self._subscribe, self._nudge, self._consumer = subscribe, nudge, consumer
        self._submitter, self._reporter, self._resolver, self._observer = submitter, reporter, resolver, observer

    def turn(self, patience: float = RESTING) -> bool:
        """Handle the events that came in, then poll once; False once the machine has exited."""
        self.progress = self._runtime.now()
        self._hear(None if self._may_poll() else patience)
        if self.exit is None and not self._subscribed and self._gathered():
            self._subscribe(self._consumer)
            self._subscribed = True
        if self.exit is None and self._may_poll():
            self._poll()
        self._report_reached()
        if why := self.troubles.refused():
            self._reporter.do(sg.Halt(self.state.epoch, why))
        return self.exit is None

    def _report_reached(self) -> None:
        """Report what is reached of bounded runs: submitted up to it, or met the end with nothing left in the queue (SPEC V3)."""
        d = self.state.desired
        if d is None or not d.aims or not self.state.submits:
            return
        nexts, idle = self._submitter.nexts(), self._submitter.idle
        met = self.ends if idle else {}
        for aim in d.aims:
            reached = frozenset(tp for tp, end in aim.ends if tp in nexts and max(nexts[tp], met.get(tp, -1)) >= end)
            reach = sg.Reach(aim.token, aim.at, self.state.epoch, reached)
            if reached and reached != aim.reached and (reach, d) != self._reached.get(aim.token):
                self._reached[aim.token] = reach, d
                self._reporter.do(reach)

    def _gathered(self) -> bool:
        """Members that start together join together: of one that comes later the others hear by heartbeat only (docs/clients.md C-R1)."""
        d = self.state.desired
        return d is not None and (d.assembled or self._runtime.now() - self._made_at > GATHERING)

    def _may_poll(self) -> bool:
        if not self._subscribed or not self.state.polls:
            return False
        if not self._submitter.queue.full:
            return True
        return self._runtime.now() - self._polled_at > FULL

    def _hear(self, patience: float | None) -> None:
        """Handle all events in the inbox; with patience, wait for the first."""
        try:
            event = self.inbox.get_nowait() if patience is None else self.inbox.get(timeout=patience)
            for _ in range(self.inbox.qsize()):  # what comes of these waits for the next turn: polling must not starve
                self._step(event)
                event = self.inbox.get_nowait()
            self._step(event)
        except queue.Empty:
            pass

    def _step(self, event: sg.Event | None) -> None:
        while event is not None:
            self.state, effects = machine.step(self.state, event)
            event = None
            for effect in effects:
                event = self._carry_out(effect) or event

    # Polling

    def _poll(self) -> None:
        flowing = self._flow(keep=self._submitter.queue.full)
        polled = self._consumer.poll(self._chunk, FLOWING if flowing else RESTING)
        self._polled_at = self._runtime.now()
        if self._polled_at - self._high_at > ENDS_EVERY:
            self._high_at, self.high = self._polled_at, self._consumer.known_ends()
        self.dropped += polled.dropped
        if polled.batch is not None and polled.batch.unreadable:
            self._warn_of_unreadable(polled.batch.unreadable)
        for rebalance in polled.rebalances:
            self.ends = {}
            assigned = rebalance.kind is Kind.ASSIGNED
            self.troubles.rebalanced(assigned=assigned)
            if assigned:
                self.rebalances += 1
                self._step(sg.Assigned(rebalance.partitions, rebalance.generation))
            else:
                self._step(sg.Revoked(f"partitions {rebalance.kind}"))
        self._errors(polled)
        for unreadable in self.troubles.polled(polled):
            self._reporter.do(sg.Tell("unreadable", str(unreadable)))
        if polled.disturbed and not polled.rebalances:
            self._step(sg.Disturbed("a poll failed"))
        if self.state.disturbed:
            self.ends = {}  # records may be gone until they are fetched again: no end was met behind them
        if self.state.started != self.state.stamp:
            return
        if not self.state.disturbed:
            self.ends.update(polled.ends)
        if polled.batch is not None:
            if self.state.client in (ClientState.SUBSCRIBED, ClientState.RESET_COMPLETE):
                self._step(sg.Fetched())
            self._submitter.put(polled.batch)

    def _warn_of_unreadable(self, records: Sequence[Unreadable]) -> None:
        """Write each to the log, and one a minute, with its offset, to the event log (SPEC X9)."""
        self.unreadable += len(records)
        for record in records[:10]:
            _log.warning("a part of a record is null: %s", record)
        if self._runtime.now() - self._unreadable_event_at >= TELL_EVERY:
            self._unreadable_event_at = self._runtime.now()
            self._reporter.do(
                sg.Tell("unreadable", f"a part of a record is null: {records[0]} ({self.unreadable} so far)")
            )

    def _errors(self, polled: Polled) -> None:
        """Only a client that is broken ends this process: all else is waited for (SPEC X11)."""
        for error in polled.errors:
            match error:
                case errors.Fenced():
                    self._step(sg.Fenced())
                case errors.OffsetGone():
                    self._step(sg.Trouble(self.state.epoch, str(error), ResetCause.OFFSET_GONE))
                case errors.KafkaFailed():
                    self._step(sg.Broken(str(error)))
                case _:
                    if isinstance(error, errors.KafkaUnavailable | errors.NotAllowed):
                        self.troubles.note(error)
                    _trouble_log.warning("%s", error)
        for error in polled.troubles.values():
            _trouble_log.warning("%s", error)

    def _flow(self, *, keep: bool) -> bool:
        """Set which partitions run: none while the queue is full and membership is to be kept, else all without a reason against it."""
        wanted: set[TP] = set()
        if self.state.fetches and not keep and self.state.held is not None:
            marks = self._marks()
            wanted = {tp for tp in self.state.held if not any(m.pauses(tp, self._name) for m in marks)}
        self._consumer.flow(wanted)
        return bool(wanted)

    def _marks(self) -> frozenset[Mark]:
        return self.state.desired.marks if self.state.desired is not None else frozenset()

    def reading(self) -> dict[TP, int] | None:
        """Where the partitions stand that should give records now: submitted so far, or the end that was met; −1 without a start. One of
        which records wait in the queue has given them. None: a cut or a full queue holds up all of them, silent or not."""
        if not self.state.fetches:
            return {}
        if not self.state.submits or self._submitter.queue.full:
            return None
        marks, waiting = self._marks(), self._submitter.waiting()
        nexts = dict.fromkeys(self.state.leaderless, -1) | self._submitter.nexts()
        return {
            tp: max(offset, self.ends.get(tp, -1))
            for tp, offset in nexts.items()
            if tp not in waiting and not any(m.pauses(tp, self._name) for m in marks)
        }

    # Effects

    def _carry_out(self, effect: sg.Effect) -> sg.Event | None:
        """Carry one effect out; the event that follows at once, if any."""
        match effect:
            case sg.CloseGate():
                self._submitter.close_gate()
            case sg.OpenGate(stamp, number):
                self._submitter.open_gate(stamp, number)
            case sg.Clear(stamp, drop):
                self._submitter.clear(stamp, drop=drop)
                self.ends = {}
            case sg.Requeue(stamp):
                self._submitter.clear(stamp, drop=False)
                return self._sought(stamp, self._submitter.nexts(), self._submitter.leader_epochs())
            case sg.Seek(stamp, offsets, leader_epochs, landed):
                self._landed = None if landed is None else dict(landed)
                self._submitter.place(stamp, offsets, leader_epochs)
                return self._sought(stamp, offsets, leader_epochs)
            case sg.Resolve():
                self._resolver.ask(effect)
            case sg.Save(cut, number):
                self._save(cut, number)
                self._reporter.do(effect)
            case sg.Commit(cut, merged):
                self._commit_cut(cut, merged=merged)
            case sg.CommitStarts():
                self._commit_starts(effect)
            case sg.ForceRebalance(why):
                _log.warning("%s: the group is made to rebalance", why)
                self._nudge()
            case sg.Merged(cut):
                self.cuts += 1
                self._submitter.merged(cut)
            case sg.Refresh():
                self._observer.kick()
            case sg.Exit():
                self.exit = effect
            case _:
                self._reporter.do(effect)
        return None

    def _save(self, cut: int, number: int) -> None:
        landed = self.state.cut.landed if self.state.cut is not None else None
        self._landed = None if landed is None else dict(landed)
        self._submitter.save(cut, number)

    def _sought(self, stamp: sg.Stamp, offsets: Mapping[TP, int], leader_epochs: Mapping[TP, int]) -> sg.Event | None:
        """One that failed for any partition is tried again, a turn later; nothing is submitted before (SPEC M5)."""
        self.ends = {}  # what was met may not be submitted yet: it is met again (SPEC V3)
        try:
            self._consumer.seek(offsets, leader_epochs)
        except CrkafkaError as error:
            _trouble_log.warning("%s", error)
            self.troubles.note(error)
            self.post(sg.NotSought(stamp))
            return None
        return sg.Sought(stamp)

    def _commit_cut(self, cut: int, *, merged: bool) -> None:
        """Commit what the cut has taken; the machine decides what follows from a failure (SPEC D2, D5)."""
        taken = self._submitter.taken
        assert taken is not None and taken.cut == cut
        offsets = {tp: to for tp, (_, to, _) in taken.offsets.items()}
        metadata = {
            tp: self._commit_metadata(cut, tp, to if merged else since, since)
            for tp, (since, to, _) in taken.offsets.items()
        }
        # Only a member that stops for the cut waits for the outcome; one that goes on has other cuts to take part in (SPEC D2, D5).
        patience = None if self.state.step is state.Step.SAVING else MOMENT
        # A wait with a deadline of its own is progress (SPEC G3).
        self.busy_until = self._runtime.now() + self._poll_interval
        outcome, why = sg.Outcome.DONE, ""
        try:
            self._consumer.commit(offsets, metadata, taken.leader_epochs, patience)
            self.troubles.commit_ended(None)
        except errors.Fenced:
            self.post(sg.Fenced())  # SQL decides which of the two stays (SPEC R7)
            return
        except CrkafkaError as error:
            outcome, why = next((o for kind, o in _OUTCOMES if isinstance(error, kind)), sg.Outcome.ABORT), str(error)
            if outcome is sg.Outcome.ABORT and (lasting := self.troubles.commit_ended(error)):
                self._reporter.do(sg.Halt(self.state.epoch, lasting))
            _log.warning("committing checkpoint %s to Kafka: %s", cut, why)
        finally:
            self.busy_until = 0.0
        self.post(sg.Committed(cut, outcome, why))

    def _commit_metadata(self, checkpoint: int, tp: TP, merged: int, before: int) -> str:
        """`before`: where the head left off when it was asked what the tables have; what was merged since is in none of them yet."""
        in_tables = None if self._landed is None else self._landed.get(tp, before)
        return CommitMetadata(self._uid, checkpoint, merged, None if in_tables == merged else in_tables).text()

    def _commit_starts(self, starts: sg.CommitStarts) -> None:
        """A commit of the head after a reset. Its failure is a warning: SQL has the truth (SPEC D2)."""
        metadata = {tp: self._commit_metadata(starts.base, tp, at, at) for tp, at in starts.offsets.items()}
        try:
            self._consumer.commit(starts.offsets, metadata, starts.leader_epochs, patience=MOMENT)
            self.troubles.commit_ended(None)
        except CrkafkaError as error:
            _log.warning("committing checkpoint %s to Kafka: %s", starts.base, error)
