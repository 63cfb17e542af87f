"""Lag by Kafka's own word, and partitions that have records and give none (SPEC X8, fault 83)."""

from __future__ import annotations

from typing import Any

from crkafka_core.kafka.errors import KafkaUnavailable
from crkafka_core.loop import Threads
from crkafka_core.member.stall_watch import EVERY, STALLED_AFTER, StallWatch
from crkafka_core.model.errors import CrkafkaError
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
    """Kafka's answers, partition by partition: the end, the last stable offset if a transaction is open, or no answer."""

    def __init__(self) -> None:
        self.ends = {STUCK: 2_000, IDLE: 7, FED: 100}
        self.stable: dict[TP, int] = {}
        self.leaderless: set[TP] = set()
        self.starts: dict[TP, int] = {}

    def known_watermarks(
        self, tps: Any, isolation: str = "read_committed"
    ) -> tuple[dict[TP, tuple[int, int]], dict[TP, CrkafkaError]]:
        stable = self.stable if isolation == "read_committed" else {}
        known = {tp: (self.starts.get(tp, 0), stable.get(tp, self.ends[tp])) for tp in tps if tp not in self.leaderless}
        return known, {tp: KafkaUnavailable(f"{tp} has no leader.") for tp in tps if tp in self.leaderless}


def test_83_a_partition_that_has_records_and_gives_none_is_found_and_one_that_moves_or_is_at_its_end_is_not() -> None:
    clock, at, kafka = Clock(), {STUCK: 0, IDLE: 7, FED: 0}, Ends()
    watch = StallWatch(kafka, lambda: at, runtime=clock)  # type: ignore[arg-type]
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


def test_94_a_partition_without_a_leader_is_alarmed_and_blinds_the_watch_for_no_other() -> None:
    clock, at, kafka = Clock(), {STUCK: 0, IDLE: 7, FED: 0}, Ends()
    kafka.leaderless = {IDLE}
    watch = StallWatch(kafka, lambda: at, lambda: {STUCK: "UNKNOWN_SERVER_ERROR"}, clock)  # type: ignore[arg-type]
    for step in range(1, 6):
        clock.time += EVERY
        at[FED] = step
        watch.ask()
    assert set(watch.stalled) == {STUCK, IDLE}
    assert watch.ends.keys() == {STUCK, FED}
    assert watch.reasons == {STUCK: "UNKNOWN_SERVER_ERROR", IDLE: "t[1] has no leader."}
    kafka.leaderless = set()
    clock.time += EVERY
    watch.ask()
    assert set(watch.stalled) == {STUCK}


def test_94_a_transaction_that_hangs_is_alarmed_with_its_offset() -> None:
    """What is committed ends before it: the partition seems to be at its end."""
    clock, at, kafka = Clock(), {STUCK: 40}, Ends()
    kafka.stable = {STUCK: 40}
    watch = StallWatch(kafka, lambda: at, runtime=clock)  # type: ignore[arg-type]
    for _ in range(5):
        clock.time += EVERY
        watch.ask()
    assert set(watch.stalled) == {STUCK}
    assert "a transaction is open at offset 40" in watch.reasons[STUCK]


def test_retention_of_a_topic_is_as_near_as_it_is_to_the_partition_that_it_reaches_first() -> None:
    """A log of which nothing was deleted yet is none of them, wherever it is read."""
    clock, kafka = Clock(), Ends()
    other = TP("u", 0)
    kafka.ends = {**kafka.ends, other: 50}
    at = {STUCK: 1_500, IDLE: 7, FED: 0, other: 50}
    watch = StallWatch(kafka, lambda: at, runtime=clock)  # type: ignore[arg-type]
    seen = []
    for starts in ({}, {STUCK: 1_400, IDLE: 1}, {STUCK: 1_500, other: 10}):
        kafka.starts = starts
        clock.time += EVERY
        watch.ask()
        seen.append(watch.margins)
    assert seen == [{}, {"t": 6}, {"t": 0, "u": 40}]


def test_83_what_is_paused_for_a_while_is_not_stalled_afterwards() -> None:
    clock, at = Clock(), {STUCK: 0}
    watch = StallWatch(Ends(), lambda: at, runtime=clock)  # type: ignore[arg-type]
    for paused in (False, True, False):
        at.clear() if paused else at.update({STUCK: 0})
        for _ in range(3):
            clock.time += EVERY
            watch.ask()
    assert watch.stalled == {}


def test_83_a_look_that_learns_nothing_keeps_what_was_seen_and_its_time_does_not_count() -> None:
    """The queue is full of another partition's backlog, or a cut has closed the gate."""
    clock, at, kafka = Clock(), {STUCK: 0}, Ends()
    kafka.leaderless = {STUCK}
    learns, stalled = [True], []
    watch = StallWatch(kafka, lambda: at if learns[0] else None, runtime=clock)  # type: ignore[arg-type]
    for learns[0] in (True, True, False, False, True, False, True, True):
        clock.time += EVERY
        watch.ask()
        stalled.append(watch.stalled.get(STUCK))
    assert stalled == [None] * 7 + [STALLED_AFTER]
    learns[0] = False
    clock.time += EVERY
    assert not watch.ask() and watch.stalled == {STUCK: STALLED_AFTER}, "it has given nothing since"


def test_83_a_stalled_partition_is_an_alarm_while_it_lasts_and_an_event() -> None:
    plane = ControlPlane(MemoryStore(), "orders")
    life.declare(plane.store, Region(name="orders", uid="uid", region_index=0, members_wanted=1))
    plane.do(lambda tx: life.start(tx, by="test"))
    launch = plane.do(lambda tx: members.launch(tx, "orders/0"))
    plane.do(lambda tx: members.register(tx, members.Registration("orders/0", "a", launch, 0, "c", "g")))
    plane.do(lambda tx: tx.set_region(phase=Phase.RUNNING))
    assert plane.read(alarms.current) == ""
    plane.do(lambda tx: alarms.stalled(tx, {STUCK: 130.2}, {STUCK: "no leader"}, by="orders/0"))
    metrics = {"stalled": {"t[0]": 130, "t[1]": 140}, "stalledBecause": {"t[0]": "no leader"}, "nStalled": 9}
    plane.do(lambda tx: members.renew(tx, "orders/0", "a", metrics))
    assert plane.read(alarms.current) == (
        "orders/0: t[0] has given nothing for 130 s: no leader; "
        "t[1] has given nothing for 140 s: Kafka has records behind where it stands; and 7 more"
    )
    (event,) = plane.read(lambda reader, row: reader.select(Event, ("kind", "=", "stalled")))
    assert event.text == "t[0] has given nothing for 130 s: no leader"
    plane.do(lambda tx: members.renew(tx, "orders/0", "a", {"stalled": {}}))
    assert plane.read(alarms.current) == ""
