"""Storage and control plane that fail for a while (faults 37, 40, 43, 51, 52, 65)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import pytest

from crkafka_core.dev.postgres import Postgres
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.phase import Phase
from crkafka_core.region.waiting import CutAborted
from tests.rigs import failpoints as fp
from tests.rigs.scenario import Scenario

Make = Callable[..., Scenario]


def test_40_full_disk_aborts_the_cut_and_leaves_no_temporary_file(pair: Scenario) -> None:
    mark = pair.mark()
    opened = pair.region.open_cut(token=f"fault40-{mark}", cause="fault 40")
    pair.points.set(pair.member(0), fp.DISK, "full")
    with contextlib.suppress(CutAborted):
        pair.region.await_merged(opened.id)

    def reset_by_a_cut() -> bool:
        """The first one may have been saved already, and nothing is written before the next."""
        if not pair.resets(mark):
            with contextlib.suppress(CrkafkaError):
                pair.region.cut()
        return bool(pair.resets(mark))

    pair.until(reset_by_a_cut, "the full disk makes a reset")
    pair.points.clear(pair.member(0), fp.DISK)
    pair.settle()
    assert pair.region.status().region.consecutive == 0
    pair.check()
    pair.region.retire()
    assert pair.verify().orphans == 0


def test_65_storage_away_for_a_while_backs_off_and_does_not_count(scenario: Make) -> None:
    s = scenario(max_consecutive_resets=2, session=8.0)
    s.cut()
    for number in (0, 1):
        s.points.set(s.member(number), fp.DISK, "full")
    mark, end = s.mark(), time.monotonic() + 60
    while len(s.resets(mark)) < 4:  # more often than the limit of resets that count
        assert time.monotonic() < end, s.account()
        try:
            s.wait_running(timeout=5)
            s.cut()
        except Exception:
            time.sleep(0.05)
    assert s.phase is not Phase.STOPPED
    s.points.clear_all()
    s.finish_and_verify()


@pytest.mark.soak
def test_43_static_member_cut_off_from_sql_leaves_the_group_before_its_session_ends(scenario: Make) -> None:
    """SPEC G4, docs/clients.md C-R2: closing alone would keep its partitions for another session; they are taken over 6 s after it left."""
    s = scenario(session=25.0)
    s.cut()
    was = s.incarnation(0)
    began = time.monotonic()
    s.points.set(s.member(0), fp.SQL, "down")
    s.until(lambda: len(s.region.status().members[1].partitions or ()) == 4, "the other has it all", timeout=60)
    assert time.monotonic() - began < 25 + 2 + 6.5 + 8  # lease, isolation, the short session, two busy cores
    assert s.cut_soon().members == 1
    s.points.clear_all()
    s.await_new(0, was)
    s.settle()
    s.finish_and_verify()


def test_43_member_cut_off_from_sql_alone_hands_over_and_comes_back(scenario: Make) -> None:
    """SPEC G4; fault 43: it stops submitting when its lease ends, leaves after `isolation_timeout`; the others take over."""
    s = scenario(static_membership=False)
    s.cut()
    was, pid = s.incarnation(0), s.pid(0)
    s.points.set(s.member(0), fp.SQL, "down")
    s.until(lambda: s.region.status().members[0].status == "LOST", "the member is lost", timeout=30)
    s.until(lambda: len(s.region.status().members[1].partitions or ()) == 4, "the other has it all", timeout=30)
    assert s.cut_soon().members == 1
    s.until(lambda: s.host.pids().get(s.member(0)) != pid, "its process has ended", timeout=30)
    s.points.clear_all()
    s.await_new(0, was)
    s.settle()
    s.finish_and_verify()


@pytest.mark.parametrize("control_plane", ["postgres"], indirect=True)
def test_37_control_plane_away_for_longer_than_a_lease_loses_nobody(scenario: Make, postgres: Postgres) -> None:
    s = scenario(session=3.0, isolation_timeout=30)
    s.cut()
    mark, generations = s.mark(), {m.generation for m in s.region.status().members}
    pids = s.host.pids()
    postgres.stop()
    time.sleep(5.0)
    postgres.start()
    s.settle()
    assert not s.events("lost", since=mark)
    assert s.host.pids() == pids
    assert {m.generation for m in s.region.status().members} == generations, "nobody left the group"
    s.finish_and_verify()


@pytest.mark.parametrize("control_plane", ["postgres"], indirect=True)
def test_37_control_plane_that_dies_in_the_middle_of_a_cut_is_read_again(scenario: Make, postgres: Postgres) -> None:
    s = scenario(session=8.0)
    head = s.cut().id
    for round_ in range(3):
        s.points.set(s.member(0), fp.CONTRIBUTE, "sleep:0.3")
        s.points.set(s.member(1), fp.CONTRIBUTED, "sleep:0.05")
        opened = s.region.open_cut(token=f"fault37-{round_}", cause="fault 37")
        killer = threading.Timer(0.1 * round_, postgres.restart)
        killer.start()
        killer.join()
        merged = s.region.await_merged(opened.id)
        assert merged.parent == head
        head = merged.id
        s.settle()
    s.finish_and_verify()


def test_52_retirement_and_orphans_during_an_open_cut_touch_nothing_that_is_named(scenario: Make) -> None:
    s = scenario(retain=2, session=8.0)
    stop = threading.Event()

    def collect() -> None:
        while not stop.is_set():
            s.region.retire()

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        for round_ in range(8):
            if round_ == 4:
                s.region.reset(cause="fault 52")
            s.cut_soon()
            s.verify()
    finally:
        stop.set()
        thread.join()
    s.region.retire()
    verdict = s.finish_and_verify()
    assert verdict.retired >= 5
    s.region.retire()
    assert s.verify(quiet=True).orphans == 0
