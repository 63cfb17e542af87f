"""The process thread: takes batches, holds the permit, writes them to the open segment, then records offsets (SPEC M1, M4).

`turn` runs on the process thread, `_close` on the closing thread; all other methods are called by the event thread. The permit is held
from the moment a batch is taken until its offsets are recorded; comparing the stamp, writing and recording are one critical section. A
cut takes its offsets and segments between two of them, under the lock: nothing waits for it but the batch that is next (SPEC D5).
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from crkafka_core.loop import THREADS, Loop, Runtime
from crkafka_core.member.message_queue import MessageQueue
from crkafka_core.member.offsets import OffsetManager
from crkafka_core.member.open_segments import Handed, OpenSegments
from crkafka_core.model.errors import CrkafkaError, ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import ResetCause
from crkafka_core.model.segment import ClosedSegment
from crkafka_core.protocol import signals as sg
from crkafka_core.segments.batch import Batch

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Taken:
    """What a member contributes to a cut: what was submitted before its mark, as one value (SPEC D5)."""

    cut: int
    epoch: int
    offsets: Mapping[TP, tuple[int, int, int]]
    """(from, to, rows) of each partition."""
    leader_epochs: Mapping[TP, int]
    since: float | None = None
    """Since when the gate is shut for the cut; None where permits are given all the time."""
    segments: tuple[ClosedSegment, ...] = ()
    """Once they are closed."""
    drain_ms: int = 0


class Closer(Loop):
    """The closing thread: flushes what a cut has taken, while the process thread goes on (SPEC D5)."""

    def __init__(self, runtime: Runtime = THREADS) -> None:
        super().__init__("closer", runtime)
        self.todo: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._since: float | None = None

    def do(self, work: Callable[[], None]) -> None:
        self.todo.put(work)

    def end(self) -> None:
        self.todo.put(None)

    def busy_for(self, now: float) -> float:
        """Seconds since the present piece of work began; 0 when idle."""
        since = self._since
        return 0.0 if since is None else now - since

    def turn(self, patience: float | None = None) -> bool:
        try:
            work = self.todo.get(timeout=patience)
        except queue.Empty:
            return True
        if work is None:
            return False
        self._since = self._runtime.now()
        work()
        self._since = None
        return True


class Submitter(Loop):
    """See the module. `post` hands events to the state machine; None wakes the event thread when a full queue has room again."""

    def __init__(
        self,
        queue: MessageQueue,
        segments: OpenSegments,
        post: Callable[[sg.Event | None], None],
        *,
        trigger: int = 0,
        runtime: Runtime = THREADS,
    ) -> None:
        super().__init__("process", runtime)
        self.queue = queue
        self.offsets = OffsetManager()
        self.drain_ms = 0
        """From closing the gate for a cut until its segments were safe (SPEC D3); 0 where it stays open."""
        self.drain_ms_max = 0
        self.pauses: deque[float] = deque(maxlen=100)
        """Milliseconds without permits, of the last cuts: from closing the gate to opening it again, or while a mark was taken."""
        self.taken: Taken | None = None
        self.closer = Closer(runtime)
        self._merged_since_close = False
        self.submitted = 0
        """Tuples since the start of the process, for the metrics."""
        self.progress = self._runtime.now()
        """When this thread last came round; the watchdog looks at it."""
        self._segments = segments
        self._post = post
        self._trigger = trigger
        self._changed = threading.Condition()
        self._stamp = sg.Stamp(0, -1, 0)
        self._number = 0
        self._open = self._holder = self._closing = False
        self._closing_since: float | None = None
        """Since when a cut, or a reset, keeps the gate shut; None while it is open, and before it was."""
        self._counted = 0
        self._broken = False
        self._mark: tuple[int, int, float | None] | None = None  # (cut, number behind it, since when the gate is shut)
        self._dropping_since: float | None = None
        self._drop = False
        self._over = False
        self._task: Callable[[], None] | None = None

    # On the event thread

    def put(self, batch: Batch) -> None:
        with self._changed:
            self.queue.put(self._stamp.serial, batch)
            self._changed.notify()

    def open_gate(self, stamp: sg.Stamp, number: int) -> None:
        """Give permits; what is written from now on bears this number (SPEC C8)."""
        with self._changed:
            if self._merged_since_close and self._closing_since is not None:
                self.pauses.append(round((self._runtime.now() - self._closing_since) * 1000, 1))
            self._stamp, self._number, self._open, self._closing_since = stamp, number, True, None
            self._changed.notify()

    def close_gate(self) -> None:
        """Give no more permits; `GateClosed` is posted as soon as the holder is out."""
        with self._changed:
            self._open, self._closing, self._closing_since = False, True, self._runtime.now()
            self._merged_since_close = False
            if not self._holder:
                self._closed()

    def clear(self, stamp: sg.Stamp, *, drop: bool) -> None:
        """Empty the queue; from now on another stamp counts. `drop` also drops the open segments. To drop them can take long, so the
        process thread does it, before anything else. What was closed for a cut that was aborted, or still is being closed, is never used
        (SPEC D4)."""
        with self._changed:
            self._stamp = stamp
            self.queue.clear()
            if drop:
                self._mark, self._closing_since = None, None
                self._counted, self._broken = 0, False
                self._drop = True
                self.offsets.place({})
                self._changed.notify()

    def place(self, stamp: sg.Stamp, offsets: Mapping[TP, int], leader_epochs: Mapping[TP, int] | None = None) -> None:
        """These partitions are held and start here."""
        with self._changed:
            self._stamp = stamp
            self.offsets.place(offsets, leader_epochs)

    def save(self, cut: int, number: int) -> None:
        """Take offsets and segments for this cut, now or behind the batch that is being written; `Saved` is posted once they are closed.
        What is written after that bears `number`: nothing, where the gate is shut until the merge (SPEC C8, D5)."""
        with self._changed:
            since = None
            if not self._open:
                if self._closing_since is None or self._merged_since_close:  # it was shut before: nothing to wait for
                    self._closing_since, self._merged_since_close = self._runtime.now(), False
                since = self._closing_since
            self._mark = cut, number, since
            if not self._holder:
                self._take_mark()

    def merged(self, base: int) -> None:
        """The cut became the head: the count restarts, the queue stays (SPEC D1)."""
        with self._changed:
            self._stamp = sg.Stamp(self._stamp.epoch, base, self._stamp.serial)
            self._counted = 0
            self._merged_since_close = True

    def nexts(self) -> dict[TP, int]:
        with self._changed:
            return dict(self.offsets.next)

    def leader_epochs(self) -> dict[TP, int]:
        """Of the records before `nexts`, where they are known."""
        with self._changed:
            return dict(self.offsets.leader_epochs)

    @property
    def idle(self) -> bool:
        """All that was fetched is submitted."""
        with self._changed:
            return not self._holder and len(self.queue) == 0

    def waiting(self) -> frozenset[TP]:
        """Of which partitions records are in the queue."""
        with self._changed:
            return self.queue.tps

    def end(self) -> None:
        """End the threads and drop what is open."""
        self.closer.end()
        with self._changed:
            self._over = True
            self._changed.notify()
        if self._runtime.ended(self, 5.0):
            self._drop_segments()

    def stuck_for(self, now: float) -> float:
        """Seconds for which a permit holder has not come round; 0 when idle."""
        return now - self.progress if self._holder else 0.0

    def tidying_for(self, now: float) -> float:
        """Seconds for which segments have been closing for a cut, or dropped; 0 when none are. A cut's deadline is theirs (SPEC D4, G3)."""
        since = self._dropping_since
        return max(self.closer.busy_for(now), 0.0 if since is None else now - since)

    # On the process thread

    def turn(self, patience: float = 1.0) -> bool:
        """Take something to do, or do what was taken: until then the permit is held."""
        task, self._task = self._task, None
        if task is not None:
            task()
            return True
        with self._changed:
            if patience > 0:
                self._changed.wait_for(self._ready, timeout=patience)
            self.progress = self._runtime.now()
            if self._over:
                return False
            self._task = self._take()
        return True

    def _take(self) -> Callable[[], None] | None:
        """Under the lock: what to do next, if anything."""
        if self._drop:
            self._drop, self._dropping_since = False, self.progress
            return self._drop_segments
        if not self._gives_permits() or not len(self.queue):
            return None
        self._holder = True
        crowded = not self.queue.roomy
        serial, batch = self.queue.take()
        if crowded and self.queue.roomy:
            self._post(None)
        return partial(self._submit, serial, batch)

    def _take_mark(self) -> None:
        """Under the lock, between two batches: what comes next is behind the mark."""
        if self._mark is None:
            return
        (cut, number, since), self._mark = self._mark, None
        begun = self._runtime.now()
        none = self._drop or self._dropping_since is not None  # nothing is written yet of this epoch
        handed = Handed() if none else self._segments.hand_over()
        offsets, leader_epochs = self.offsets.take(), dict(self.offsets.leader_epochs)
        self.taken = Taken(cut, self._stamp.epoch, offsets, leader_epochs, since)
        self._number = number
        self.closer.do(partial(self._close, self.taken, handed))
        if self._open:
            self.pauses.append(round((self._runtime.now() - begun) * 1000, 1))

    def _ready(self) -> bool:
        return self._over or self._drop or (self._gives_permits() and len(self.queue) > 0)

    def _gives_permits(self) -> bool:
        return self._open and not self._broken and not (self._trigger and self._counted >= self._trigger)

    def _submit(self, serial: int, batch: Batch) -> None:
        stamp = self._stamp
        try:
            if serial == stamp.serial:
                self._write(batch, stamp)
        except Exception as error:
            self._break(stamp, _sentence(error, "writing a segment"), error)
        with self._changed:
            self._holder = False
            self._take_mark()
            if self._closing:
                self._closed()

    def _write(self, batch: Batch, stamp: sg.Stamp) -> None:
        """Only what is assigned and not below the next offset is submitted (SPEC M3)."""
        batch = batch.only(self.offsets.next)
        self.offsets.refuse_cuts(batch)
        batch = batch.skip_below(self.offsets.next)
        if self._trigger:
            batch, rest = batch.head(self._trigger - self._counted)
            if rest.runs:
                with self._changed:
                    if self._stamp.serial == stamp.serial:
                        self.queue.put_back(stamp.serial, rest)
        if not batch.runs:
            return
        self.offsets.refuse_holes(batch)
        self._segments.write(batch, stamp.epoch, self._number, self.offsets.next)
        for run in batch.runs:
            self.offsets.record(run)
        self.submitted += batch.rows
        self._counted += batch.rows
        if self._trigger and self._counted >= self._trigger:
            self._post(sg.Triggered(stamp.epoch, stamp.base))

    def _break(self, stamp: sg.Stamp, why: str, error: Exception) -> None:
        """What was written cannot be trusted: nothing more until the reset that this asks for (SPEC X3). The storage's errors count for
        nothing; any other is this member's own failure (SPEC X6)."""
        self._broken = True
        away = isinstance(error, ServiceUnavailable | OSError)
        self._post(sg.Trouble(stamp.epoch, why, ResetCause.UNAVAILABLE if away else ResetCause.FAILURE))

    def _break_save(self, epoch: int, why: str, error: Exception) -> None:
        """As `_break`, unless the cut is over: then nothing of it counts any more."""
        with self._changed:
            if epoch == self._stamp.epoch and not self._drop:
                self._break(self._stamp, why, error)

    def _drop_segments(self) -> None:
        try:
            self._segments.drop()
        except Exception:  # files that stay are orphans, and are collected (SPEC T3)
            _log.exception("dropping open segments failed")
        self._dropping_since = None

    def _close(self, taken: Taken, handed: Handed) -> None:
        """On the closing thread: flush what the cut has taken. Once the cut is over, nothing of it counts any more."""
        try:
            segments = self._segments.close(handed)
        except Exception as error:
            self._break_save(taken.epoch, _sentence(error, "closing a segment"), error)
            return
        with self._changed:
            if taken.epoch != self._stamp.epoch or self._drop:
                return
            self.drain_ms = 0 if taken.since is None else round((self._runtime.now() - taken.since) * 1000)
            self.drain_ms_max = max(self.drain_ms, self.drain_ms_max)
            self._post(sg.Saved(taken.cut, replace(taken, segments=segments, drain_ms=self.drain_ms)))

    def _closed(self) -> None:
        self._closing = False
        self._post(sg.GateClosed())


def _sentence(error: Exception, doing: str) -> str:
    """An error of ours speaks for itself; of any other the log has the traceback."""
    if isinstance(error, CrkafkaError):
        return str(error)
    _log.exception("%s failed", doing)
    return f"{type(error).__name__} while {doing}: {error}"
