"""Lag by Kafka's own word, and partitions that have records and give none (SPEC X8, fault 83)."""

from __future__ import annotations

from typing import Any

from crkafka_core.loop import Threads
from crkafka_core.member.stall_watch import EVERY, STALLED_AFTER, StallWatch
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Event, Region
from crkafka_core.plane import alarms, life, members
from crkafka_core.plane.transact import ControlPlane
from tests.rigs.memory import MemoryStore

STUCK, IDLE, FED = TP("t", 0), TP("t", 1), TP("t", 2)


class Clock(Threads):
    time = 0.0

    def now(self) -> float:
        return self.time


class Ends:
    """Kafka's answers: what is asked of them is there."""

    def __init__(self) -> None:
        self.ends = {STUCK: 2_000, IDLE: 7, FED: 100}

    def watermarks(self, tps: Any) -> dict[TP, tuple[int, int]]:
        return {tp: (0, self.ends[tp]) for tp in tps}


def test_83_a_partition_that_has_records_and_gives_none_is_found_and_one_that_moves_or_is_at_its_end_is_not() -> None:
    clock, at, kafka = Clock(), {STUCK: 0, IDLE: 7, FED: 0}, Ends()
    watch = StallWatch(kafka, lambda: at, clock)  # type: ignore[arg-type]
    found = []
    for step in range(1, 12):
        clock.time += EVERY
        at[FED], kafka.ends[FED] = 10 * step, 10 * step + 500
        found.append(watch.ask())
    assert watch.ends == kafka.ends, "a lag that the client does not know of"
    assert found.count(True) == 1, "it is told once"
    assert set(watch.stalled) == {STUCK} and watch.stalled[STUCK] >= STALLED_AFTER
    at[STUCK] = 5
    clock.time += EVERY
    assert not watch.ask() and watch.stalled == {}


def test_83_what_is_paused_for_a_while_is_not_stalled_afterwards() -> None:
    clock, at = Clock(), {STUCK: 0}
    watch = StallWatch(Ends(), lambda: at, clock)  # type: ignore[arg-type]
    for paused in (False, True, False):
        at.clear() if paused else at.update({STUCK: 0})
        for _ in range(3):
            clock.time += EVERY
            watch.ask()
    assert watch.stalled == {}


def test_83_a_stalled_partition_is_an_alarm_while_it_lasts_and_an_event() -> None:
    plane = ControlPlane(MemoryStore(), "orders")
    life.declare(plane.store, Region(name="orders", uid="uid", region_index=0, members_wanted=1))
    plane.do(lambda tx: life.start(tx, by="test"))
    launch = plane.do(lambda tx: members.launch(tx, "orders/0"))
    plane.do(lambda tx: members.register(tx, members.Registration("orders/0", "a", launch, 0, "c", "g")))
    plane.do(lambda tx: tx.set_region(phase=Phase.RUNNING))
    assert plane.read(alarms.current) == ""
    plane.do(lambda tx: alarms.stalled(tx, {STUCK: 130.2}, by="orders/0"))
    plane.do(lambda tx: members.renew(tx, "orders/0", "a", {"stalled": {"t[0]": 130}}))
    assert "t[0] has records and has given none for 130 s" in plane.read(alarms.current)
    (event,) = plane.read(lambda reader, row: reader.select(Event, ("kind", "=", "stalled")))
    assert "t[0]" in event.text
    plane.do(lambda tx: members.renew(tx, "orders/0", "a", {"stalled": {}}))
    assert plane.read(alarms.current) == ""
