"""The process thread: who touches the open segments, and what an aborted cut leaves behind (SPEC M1, M4, D4)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from crkafka_core.loop import Threads, Turns
from crkafka_core.member.message_queue import MessageQueue
from crkafka_core.member.open_segments import Handed
from crkafka_core.member.submitter import Closer, Submitter
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import ResetCause
from crkafka_core.model.segment import ClosedSegment
from crkafka_core.protocol import signals as sg
from crkafka_core.segments.errors import SegmentExists, StorageUnavailable
from tests.rigs.landing import records
from tests.rigs.until import until

P0 = TP("t", 0)


class SlowSegments:
    """Segments whose closing takes until it is let go, and writing where a test wants it so; notes which thread did what."""

    def __init__(self) -> None:
        self.go, self.closing = threading.Event(), threading.Event()
        self.writing, self.written = threading.Event(), threading.Event()
        self.written.set()
        self.numbers: list[int] = []
        self.calls: list[tuple[str, str]] = []
        self.fails = False
        self.error: Exception = StorageUnavailable("full")

    def _note(self, what: str) -> None:
        self.calls.append((what, threading.current_thread().name))

    def write(self, batch: Any, epoch: int, number: int, nexts: Mapping[TP, int]) -> None:
        self._note("write")
        if self.fails:
            raise self.error
        self.writing.set()
        self.written.wait(10)
        self.numbers.append(number)

    def hand_over(self) -> Handed:
        return Handed()

    def close(self, handed: Handed) -> tuple[ClosedSegment, ...]:
        self.closing.set()
        self.go.wait(10)
        self._note("close")
        if self.fails:
            raise self.error
        return ()

    def drop(self) -> None:
        self._note("drop")


class Patient(Threads):
    """A turn waits for a minute: who is woken by nobody does nothing here."""

    def repeat(self, loop: Turns) -> None:
        assert isinstance(loop, Submitter | Closer)
        while loop.turn(60.0):
            pass


class Rig:
    def __init__(self) -> None:
        self.segments = SlowSegments()
        self.events: list[sg.Event | None] = []
        segments: Any = self.segments
        self.thread = Submitter(MessageQueue(100, 1 << 20), segments, self.events.append, runtime=Patient())


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.thread.start()
    rig.thread.closer.start()
    yield rig
    rig.segments.go.set()
    rig.thread.end()


def test_m1_whatever_there_is_to_do_wakes_the_thread(rig: Rig) -> None:
    """A simulation cannot show this: there who has something to do is woken by that alone."""

    def at_rest() -> None:
        time.sleep(0.05)

    stamp = sg.Stamp(1, 0, 1)
    rig.thread.place(stamp, {P0: 0})
    rig.thread.put(records(P0, 0, 5).continuing({P0: 0}))
    at_rest()
    rig.thread.open_gate(stamp, 1)
    until(lambda: rig.thread.submitted == 5)
    at_rest()
    rig.thread.put(records(P0, 5, 9).continuing({P0: 5}))
    until(lambda: rig.thread.submitted == 9)
    rig.thread.close_gate()
    at_rest()
    rig.thread.save(7, 8)
    assert rig.segments.closing.wait(5)
    rig.segments.go.set()
    until(lambda: any(isinstance(e, sg.Saved) for e in rig.events))
    at_rest()
    rig.thread.clear(sg.Stamp(2, 0, 2), drop=True)
    until(lambda: ("drop", "process") in rig.segments.calls)
    at_rest()
    rig.thread.end()
    assert not rig.thread.is_alive()


def test_d4_a_reset_while_segments_are_closing_waits_for_nothing_and_saves_nothing(rig: Rig) -> None:
    rig.thread.place(sg.Stamp(1, 0, 1), {P0: 0})
    rig.thread.save(7, 8)
    assert rig.segments.closing.wait(5)
    rig.thread.clear(sg.Stamp(2, 0, 2), drop=True)
    until(lambda: ("drop", "process") in rig.segments.calls)
    rig.segments.go.set()
    until(lambda: ("close", "closer") in rig.segments.calls)
    until(lambda: rig.thread.tidying_for(time.monotonic()) == 0.0)
    assert not [e for e in rig.events if isinstance(e, sg.Saved)]


def test_d5_a_mark_waits_for_the_batch_that_is_written_and_nothing_waits_for_the_mark(rig: Rig) -> None:
    """Its offsets are those between two batches; what comes behind bears the next number, while the segments are still closing."""
    stamp, segments = sg.Stamp(1, 0, 1), rig.segments
    segments.written.clear()
    rig.thread.place(stamp, {P0: 0})
    rig.thread.open_gate(stamp, 7)
    rig.thread.put(records(P0, 0, 5).continuing({P0: 0}))
    assert segments.writing.wait(5)
    rig.thread.save(7, 8)
    assert rig.thread.taken is None, "in the middle of a batch"
    rig.thread.put(records(P0, 5, 9).continuing({P0: 5}))
    segments.written.set()
    until(lambda: rig.thread.submitted == 9)
    assert segments.numbers == [7, 8]
    assert ("close", "closer") not in segments.calls
    segments.go.set()
    until(lambda: any(isinstance(e, sg.Saved) for e in rig.events))
    (saved,) = [e for e in rig.events if isinstance(e, sg.Saved)]
    assert (saved.cut, saved.payload.offsets) == (7, {P0: (0, 5, 5)})
    assert rig.thread.taken is not None and rig.thread.taken.offsets == {P0: (0, 5, 5)}
    rig.thread.merged(7)
    rig.thread.save(8, 9)
    assert rig.thread.taken.offsets == {P0: (5, 9, 4)}, "the merge has changed nothing of what is taken next"


def test_x6_a_closing_that_fails_after_its_cut_is_over_breaks_nothing(rig: Rig) -> None:
    rig.segments.fails = True
    rig.thread.save(7, 8)
    assert rig.segments.closing.wait(5)
    rig.thread.clear(sg.Stamp(2, 0, 2), drop=True)
    rig.segments.go.set()
    until(lambda: ("drop", "process") in rig.segments.calls)
    assert not [e for e in rig.events if isinstance(e, sg.Trouble)]
    rig.segments.fails = False
    rig.thread.save(8, 9)
    until(lambda: any(isinstance(e, sg.Saved) and e.cut == 8 for e in rig.events))


def test_g3_closing_segments_is_progress_only_for_so_long(rig: Rig) -> None:
    assert rig.thread.tidying_for(time.monotonic()) == 0.0
    rig.thread.save(7, 8)
    assert rig.segments.closing.wait(5)
    until(lambda: rig.thread.tidying_for(time.monotonic() + 100) > 99)
    rig.segments.go.set()
    until(lambda: rig.thread.tidying_for(time.monotonic() + 100) == 0.0)


def test_g3_segments_that_do_not_go_hold_the_thread_up_for_all_to_see(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each cut would end at its deadline, for ever, and nobody would end the process."""
    gone = threading.Event()
    monkeypatch.setattr(rig.segments, "drop", lambda: gone.wait(10))
    rig.thread.clear(sg.Stamp(2, 0, 2), drop=True)
    until(lambda: rig.thread.tidying_for(time.monotonic() + 100) > 99)
    gone.set()
    until(lambda: rig.thread.tidying_for(time.monotonic() + 100) == 0.0)


def test_m2_a_full_queue_wakes_the_event_thread_as_soon_as_it_is_half_empty(rig: Rig) -> None:
    """Else that thread sleeps out its turn while there is nothing to process."""
    rig.thread.place(sg.Stamp(1, 0, 1), {P0: 0})
    for start in range(0, 120, 20):
        rig.thread.put(records(P0, start, start + 20).continuing({P0: start}))
    assert rig.thread.queue.full
    time.sleep(0.05)
    assert None not in rig.events, "the gate is closed: nothing is taken"
    rig.thread.open_gate(sg.Stamp(1, 0, 1), 1)
    until(lambda: rig.thread.submitted == 120)
    assert rig.events.count(None) == 1


def test_d3_a_cut_that_finds_the_gate_shut_drains_for_no_time(rig: Rig) -> None:
    """A cut right after a start, or after another cut: nothing flowed, so nothing was waited for (SPEC D3)."""
    rig.segments.go.set()
    rig.thread.place(sg.Stamp(1, 0, 1), {P0: 0})

    def drained(cut: int) -> int:
        rig.thread.save(cut, cut + 1)
        until(lambda: any(isinstance(e, sg.Saved) and e.cut == cut for e in rig.events))
        return rig.thread.drain_ms

    assert drained(1) < 1_000, "not the machine's uptime"
    rig.thread.merged(1)
    time.sleep(1.5)
    assert drained(2) < 1_400, "not since the cut before"


@pytest.mark.parametrize("doing", ["write", "close"])
@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (StorageUnavailable("the disk is full"), ResetCause.UNAVAILABLE),
        (TimeoutError("the share hangs"), ResetCause.UNAVAILABLE),
        (SegmentExists("it is there already"), ResetCause.FAILURE),
        (TypeError("a mistake"), ResetCause.FAILURE),
        (MemoryError("too large"), ResetCause.FAILURE),
    ],
)
def test_75_the_storages_errors_count_for_nothing_and_all_others_do(
    rig: Rig, error: Exception, cause: ResetCause, doing: str
) -> None:
    rig.segments.fails, rig.segments.error = True, error
    rig.segments.go.set()
    if doing == "close":
        rig.thread.save(7, 8)
    else:
        rig.thread.place(sg.Stamp(1, 0, 1), {P0: 0})
        rig.thread.put(records(P0, 0, 5).continuing({P0: 0}))
        rig.thread.open_gate(sg.Stamp(1, 0, 1), 1)
    until(lambda: any(isinstance(e, sg.Trouble) for e in rig.events))
    (told,) = [e for e in rig.events if isinstance(e, sg.Trouble)]
    assert told.cause is cause
    assert str(error.args[0]) in told.why
