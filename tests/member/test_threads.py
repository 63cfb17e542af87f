"""The helper threads of a member: what they say when the database hangs, goes back, or fails in an unknown way (SPEC G3, G4, G10)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from crkafka_core.config import RegionConfig
from crkafka_core.kafka.errors import KafkaUnavailable, NotAllowed
from crkafka_core.loop import Signal, Threads
from crkafka_core.member import watchdog
from crkafka_core.member.edges import Edges
from crkafka_core.member.kafka_troubles import REFUSED_FOR
from crkafka_core.member.main import MemberProcess
from crkafka_core.member.observer import LossWatch, Observer
from crkafka_core.member.reporter import Reporter
from crkafka_core.member.watchdog import Watchdog
from crkafka_core.model.errors import ConfigError, ServiceUnavailable, TooOld
from crkafka_core.model.limits import Limits
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Event, Filler, Initial, Member, MemberStatus, Region
from crkafka_core.plane import life, members, pauses
from crkafka_core.plane.member_plane import MemberPlane
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.protocol import signals as sg
from tests.rigs.configs import configured
from tests.rigs.memory import MemoryStore
from tests.rigs.simulation import backup

LIMITS = Limits(session_timeout=3.0, isolation_timeout=60.0)


def until(condition: Callable[[], Any], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(condition())


def register(plane: ControlPlane, incarnation: str, number: int = 0) -> None:
    name = f"orders/{number}"
    launch = plane.do(lambda tx: members.launch(tx, name))
    plane.do(lambda tx: members.register(tx, members.Registration(name, incarnation, launch, 0, "c", "g")))


def of(plane: ControlPlane, number: int = 0, incarnation: str = "a") -> MemberPlane:
    return MemberPlane(plane, f"orders/{number}", incarnation)


@pytest.fixture
def plane() -> ControlPlane:
    plane = ControlPlane(MemoryStore(), "orders")
    life.declare(plane.store, Region(name="orders", uid="uid", region_index=0, members_wanted=2))
    plane.do(lambda tx: life.start(tx, by="test"))
    register(plane, "a")
    return plane


def peer(renewals: int) -> Member:
    return Member("orders", "orders/1", "b", 1, renewals=renewals)


def test_g4_who_did_not_look_for_a_while_has_seen_nothing() -> None:
    watch = LossWatch(10.0)
    assert not watch.lost([peer(1)], 0.0)
    assert not watch.lost([peer(1)], 60.0), "a look that hung for a minute says nothing about the peer"
    assert not any(watch.lost([peer(1)], 60.0 + t) for t in range(1, 11))
    assert watch.lost([peer(1)], 71.0)
    assert not watch.lost([peer(2)], 72.0)


def test_g4_who_takes_the_place_of_a_silent_one_has_a_whole_lease_of_its_own() -> None:
    """Both have renewed as often, which is not yet: the new one would have been lost as soon as it had registered."""
    watch = LossWatch(3.0)
    assert [watch.lost([peer(0)], at) for at in (0.0, 1.0, 2.0, 2.9)] == [[]] * 4
    follower = replace(peer(0), incarnation="c", launch=2)
    assert [watch.lost([follower], at) for at in (3.1, 4.1, 5.1, 6.0)] == [[]] * 4
    assert watch.lost([follower], 6.2) == [follower]


def test_g4_a_longer_lease_counts_at_once_also_for_who_began_with_a_shorter_one(plane: ControlPlane) -> None:
    """Whoever was started again renewed at the new pace: the others took it for lost each time, until the region was stopped."""
    register(plane, "b", 1)
    observer = Observer(of(plane), Limits(session_timeout=0.5), lambda _: None)
    observer.start()
    time.sleep(1.5)
    observer.end()
    assert plane.read(lambda r, _: [m.status for m in r.select(Member)]) == [MemberStatus.LIVE] * 2


def test_g4_a_shorter_lease_is_renewed_in_time_by_who_began_with_a_longer_one(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane.do(lambda tx: tx.set_region(limits_json='{"session_timeout": 0.3}'))
    rig = Rig(plane, monkeypatch)
    rig.start()
    often = until(lambda: plane.read(lambda r, _: r.select(Member)[0].renewals) >= 8, 4.0)
    rig.dog.end()
    assert often


def test_g10_a_control_plane_that_shows_less_than_before_stops_the_region(plane: ControlPlane) -> None:
    events: list[sg.Event] = []
    observer = Observer(of(plane), LIMITS, events.append)
    row = plane.read(lambda _, region: region)
    plane.do(lambda tx: tx.set_region(epoch=row.epoch + 5))
    observer.start()
    assert until(lambda: events)
    plane.do(lambda tx: tx.set_region(epoch=row.epoch))  # a backup is restored
    assert until(lambda: plane.read(lambda _, region: region.phase) is Phase.STOPPED)
    observer.end()
    assert "went back" in plane.read(lambda _, region: region.stop_reason)


def test_g10_a_control_plane_that_went_back_and_on_to_the_same_version_is_heard_anew(plane: ControlPlane) -> None:
    """Its number alone told nothing: a member stayed paused by a mark that nobody had set any more."""
    events: list[Any] = []
    observer = Observer(of(plane), LIMITS, events.append)
    before = backup.rows_of(plane.store, "orders")
    plane.do(lambda tx: pauses.pause(tx, "topic", "orders", by="test"))
    observer.turn(0.0), observer.turn(0.0)
    assert [len(e.desired.marks) for e in events] == [1], "what has not changed is told once"
    backup.put(plane.store, before)
    plane.do(lambda tx: pauses.pause(tx, "topic", "refunds", by="test"))
    observer.turn(0.0)
    assert len({e.desired.version for e in events}) == 1
    assert [{mark.what for mark in e.desired.marks} for e in events] == [{"orders"}, {"refunds"}]


def test_g7_an_observer_that_fails_in_an_unknown_way_ends_the_member(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[sg.Event] = []
    monkeypatch.setattr(plane.store, "wait", lambda *_: 1 // 0)
    observer = Observer(of(plane), LIMITS, events.append)
    observer.start()
    assert until(lambda: any(isinstance(e, sg.Broken) for e in events))


def test_g7_an_observer_that_cannot_read_what_a_newer_program_has_written_ends_the_member(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It renewed its lease, and went on with what it had read before."""
    events: list[sg.Event] = []

    def read(_: str) -> NoReturn:
        raise TooOld("a phase that this program does not know")

    observer = Observer(of(plane), LIMITS, events.append)
    monkeypatch.setattr(plane.store, "read", read)
    assert not observer.turn(0.0)
    assert [e.why for e in events if isinstance(e, sg.Broken)] == ["a phase that this program does not know"]


def test_g3_an_observer_and_a_reporter_that_hang_in_the_database_are_seen(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang = threading.Event()
    observer = Observer(of(plane), LIMITS, lambda _: None)
    reporter = Reporter(of(plane), lambda _: None)
    assert reporter.stuck_for(time.monotonic() + 100) == 0.0, "it has nothing to do"
    monkeypatch.setattr(plane.store, "read", lambda: hang.wait(20))
    monkeypatch.setattr(plane.store, "run", lambda *_: hang.wait(20))
    observer.start(), reporter.start()
    reporter.do(sg.Withdraw("x"))
    try:
        assert until(lambda: reporter.stuck_for(time.monotonic() + 100) > 99)
        assert observer.stuck_for(time.monotonic() + 100) > 99
    finally:
        observer.end(), reporter.end()
        hang.set()


class Rig:
    """A watchdog whose hard end is noted instead of done."""

    def __init__(self, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
        self.events: list[sg.Event] = []
        self.ended: list[int] = []
        self.standstill = 0.0
        monkeypatch.setattr(watchdog, "HARD_EXIT", 0.2)
        monkeypatch.setattr(watchdog.os, "_exit", self.ended.append)
        metrics = changed.get("metrics", dict)
        self.dog = Watchdog(
            of(plane),
            LIMITS,
            self.events.append,
            standstill=lambda: self.standstill,
            metrics=metrics,
            since=time.monotonic(),
            superseded_code=10,
        )

    def start(self) -> None:
        self.dog.start()
        self.dog.renewer.start()


def test_r7_a_superseded_process_that_hangs_ends_with_the_code_that_is_not_restarted(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(plane, monkeypatch)
    rig.standstill = 100.0
    rig.start()
    register(plane, "later")
    assert until(lambda: rig.ended)
    rig.dog.end()
    assert rig.ended[0] == 10


def test_g3_a_lost_process_learns_of_it_also_while_a_thread_hangs(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(plane, monkeypatch)
    rig.standstill = 100.0
    rig.start()
    plane.do(lambda tx: members.lose(tx, "orders/0", "a", renewals=0, by="b", why="hung"))
    assert until(lambda: rig.ended)
    rig.dog.end()
    assert rig.ended[0] == watchdog.HUNG_CODE


def test_g3_metrics_that_cannot_be_told_do_not_end_the_lease(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def metrics() -> dict[str, object]:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("dictionary changed size during iteration")
        return {}

    rig = Rig(plane, monkeypatch, metrics=metrics)
    rig.start()
    assert until(lambda: plane.read(lambda r, _: r.get(Member, "orders/0").renewals) >= 1)  # type: ignore[union-attr]
    rig.dog.end()


class Clock(Threads):
    """Seconds that a test counts; nobody waits."""

    at = 0.0

    def now(self) -> float:
        return self.at

    def wait(self, signal: Signal, seconds: float) -> bool:
        return signal.is_set()


def test_g4_a_lease_is_counted_from_before_its_renewal_was_sent(plane: ControlPlane) -> None:
    """However late the answer comes: whoever watches it may have counted from then on."""
    clock, events = Clock(), list[Any]()

    def slow() -> dict[str, object]:
        clock.at += 2.0
        return {}

    dog = Watchdog(
        of(plane), LIMITS, events.append, standstill=lambda: 0.0, metrics=slow, since=clock.now(), runtime=clock
    )
    clock.at = sent = 1.0
    assert dog.renewer.turn()
    clock.at = sent + LIMITS.session_timeout - 0.1
    assert dog.turn(0.0) and not events
    clock.at = sent + LIMITS.session_timeout
    assert dog.turn(0.0) and events == [sg.Lease(False)]


def test_37_an_outage_of_days_keeps_the_reporter_trying(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def down(*_: object) -> None:
        tries.append(1)
        raise ServiceUnavailable("down")

    monkeypatch.setattr(plane.store, "run", down)
    monkeypatch.setattr("crkafka_core.loop.time.sleep", lambda _: None)
    events: list[sg.Event] = []
    reporter = Reporter(of(plane), events.append)
    reporter.start()
    reporter.do(sg.Withdraw("x"))
    assert until(lambda: len(tries) > 3_000, 20)
    reporter.end()
    assert not events


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.RESETTING, Phase.CUTTING])
def test_g8_a_partition_that_nobody_holds_makes_one_member_force_a_rebalance(plane: ControlPlane, phase: Phase) -> None:
    """In RUNNING too: no cut would ever open again. In a cut nobody polls, so it waits for its end."""
    register(plane, "b", 1)
    said: dict[str, list[sg.Event]] = {"orders/0": [], "orders/1": []}
    limits = Limits(session_timeout=60.0, unheld_timeout=0.3)  # nobody renews a lease here
    observers = [
        Observer(MemberPlane(plane, name, incarnation), limits, said[name].append)
        for name, incarnation in (("orders/0", "a"), ("orders/1", "b"))
    ]
    row = plane.read(lambda _, region: region)
    of_now: dict[str, Any] = {"epoch": row.epoch, "base": 0, "generation": 1}
    for name, incarnation, held in (("orders/0", "a", {TP("t", 0)}), ("orders/1", "b", {TP("t", 1)})):
        plane.do(partial(members.report, name=name, incarnation=incarnation, held=held, **of_now))
    plane.do(lambda tx: tx.put(*(Initial("orders", "id", p, "t", 0, "beginning", 0.0) for p in range(3))))
    plane.do(lambda tx: tx.set_region(phase=phase))
    if phase is Phase.CUTTING:
        plane.do(lambda tx: tx.put(Checkpoint("orders", 1, 0, row.epoch, CheckpointStatus.OPEN, deadline=1e12)))
        plane.do(lambda tx: tx.set_region(open_cut=1))
        plane.do(lambda tx: tx.put(Filler("orders", 1, "orders/0", "a", "{}")))
    for observer in observers:
        observer.start()
    patience = 1.5 if phase is Phase.CUTTING else 15.0
    forced = until(lambda: any(isinstance(e, sg.WronglyShared) for e in said["orders/0"]), patience)
    assert forced is (phase is not Phase.CUTTING)
    if forced:
        held = {TP("t", 0), TP("t", 2)}
        plane.do(partial(members.report, name="orders/0", incarnation="a", held=held, **of_now))
        time.sleep(0.5)
        count = len([e for e in said["orders/0"] if isinstance(e, sg.WronglyShared)])
        time.sleep(0.7)
        assert len([e for e in said["orders/0"] if isinstance(e, sg.WronglyShared)]) == count
    for observer in observers:
        observer.end()
    assert not any(isinstance(e, sg.WronglyShared) for e in said["orders/1"]), "it is the turn of one of them only"


NEW_GROUP = SimpleNamespace(
    cluster_id=lambda: "c", client_ids=lambda _: [], topics=lambda *_, **__: {}, committed=lambda *_: {}
)
"""Kafka, as an admin client shows it, where the group has no member and no commit."""


def ends(plane: ControlPlane, edges: Edges, begun: list[MemberProcess], refusal: str, **kafka: str) -> None:
    """A member that is started ends with this refusal."""
    kafka = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", **kafka}
    try:
        with pytest.raises(ConfigError, match=refusal):
            MemberProcess(configured(kafka=kafka), plane, "orders/1", "h", edges).run(threading.Event(), begun.append)
    finally:
        for parts in begun:
            for thread in (parts.submitter, parts.observer, parts.resolver, parts.reporter, parts.watchdog):
                thread.end()


@pytest.mark.parametrize(("refused_for", "ends"), [(REFUSED_FOR / 2, False), (REFUSED_FOR * 2, True)])
def test_x11_a_member_that_starts_waits_while_kafka_refuses_its_login(
    plane: ControlPlane, refused_for: float, ends: bool
) -> None:
    """For a minute at most: rights are taken away and given back when they are renewed."""
    now = [0.0]

    def wait(_: Any, pause: float) -> bool:
        now[0] += pause
        return False

    def cluster_id() -> str:
        if now[0] < refused_for:
            raise NotAllowed("The login was refused.")
        return "c"

    runtime = SimpleNamespace(now=lambda: now[0], wait=wait, unique=lambda: "i")
    edges: Any = SimpleNamespace(runtime=runtime)
    process = MemberProcess(cast("RegionConfig", None), plane, "orders/0", "h", edges)
    with pytest.raises(NotAllowed) if ends else nullcontext():
        assert process._patiently(cluster_id, threading.Event()) == "c"
    assert REFUSED_FOR / 2 <= now[0] <= REFUSED_FOR + 5


def test_x11_a_member_waits_for_the_token_of_its_clients(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who gives tokens may be away when a member starts, also between its two clients."""
    edges, begun, asked = Edges(), list[MemberProcess](), list[str]()
    admin = SimpleNamespace(close=lambda: None, **vars(NEW_GROUP))

    def made(kind: str, client: Any) -> Any:
        asked.append(kind)
        if asked.count(kind) == 1:
            raise KafkaUnavailable("no token")
        if client is None:
            assert begun[0].loop.troubles.away() == "no token"
            assert begun[0].loop.standstill() < 1, "to wait is progress"
            raise ConfigError("that was enough")
        return client

    monkeypatch.setattr(edges, "admin", lambda *_: made("admin", admin), raising=False)
    monkeypatch.setattr(edges, "consumer", lambda *_: made("consumer", None), raising=False)
    monkeypatch.setattr(edges, "settle", lambda: None, raising=False)
    ends(plane, edges, begun, "that was enough")
    assert asked == ["admin"] * 2 + ["consumer"] * 2


def test_g3_a_member_whose_client_takes_no_such_property_says_so_to_sql(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`crkafka check` had found it; else a process dies at each start, and nobody could see of what."""
    edges, begun = Edges(), list[MemberProcess]()
    monkeypatch.setattr(edges, "admin", lambda *_: NEW_GROUP, raising=False)
    monkeypatch.setattr(edges, "settle", lambda: None, raising=False)
    refusal = r'kafka: Invalid value "read_comitted" for .*"isolation\.level"\.'
    ends(plane, edges, begun, refusal, **{"isolation.level": "read_comitted"})
    events = plane.read(lambda reader, _: reader.select(Event))
    assert [e.text for e in events if e.member == "orders/1" and "read_comitted" in e.text], [e.text for e in events]
