"""Which ends of a member make its host start it again (SPEC G3, K1)."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from crkafka_core.hosts import processes, supervisor
from crkafka_core.member.exit_codes import CODES, NO_RESTART, REFUSED
from crkafka_core.model.rows import Region
from crkafka_core.plane import life, members
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.protocol.signals import ExitKind
from tests.rigs.configs import configured
from tests.rigs.memory import MemoryStore
from tests.rigs.simulation import simulate
from tests.rigs.simulation.kafka import SimulatedAdmin
from tests.rigs.simulation.plan import Fault, Plan


class Ended:
    """A process that has ended, with this code."""

    pid = 1

    def __init__(self, code: int) -> None:
        self.code = code

    def poll(self) -> int:
        return self.code

    def wait(self, timeout: float | None = None) -> int:
        return self.poll()

    def terminate(self) -> None: ...

    kill = terminate


def test_a_member_that_fails_for_days_is_still_started_again() -> None:
    """The pause was too large a number after 1,026 failures in a row, nine hours, and no member was started again."""
    assert [supervisor.restart_delay(failures) for failures in (1, 2, 3, 9, 5_000)] == [0.0, 0.5, 1.0, 30.0, 30.0]


def test_g5_who_ended_for_good_and_was_not_wanted_for_a_while_is_started_again(tmp_path: Path) -> None:
    plane = ControlPlane(MemoryStore(), "orders")
    life.declare(plane.store, Region(name="orders", uid="uid", region_index=0, members_wanted=2))
    plane.do(lambda tx: life.start(tx, by="test"))
    started = list[str]()

    def launch(order: Mapping[str, Any], log: Path | None) -> Ended:
        started.append(order["name"])
        return Ended(REFUSED)

    host = processes.ProcessHost(configured(tmp_path, trigger={"manual": True}), plane, launch=launch)
    for wanted in (2, 2, 1, 2):
        plane.do(lambda tx, wanted=wanted: life.scale(tx, wanted, by="test"))
        host.turn(0.0)
    assert started == ["orders/0", "orders/1", "orders/1"]


def test_g3_who_was_superseded_is_started_again_once_the_other_process_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that had slept started it, and has ended since (found by the nemesis): the region went on with fewer members for good.

    Not at once: the other host may live, and start it again itself.
    """
    monkeypatch.setattr(supervisor, "AWAY_S", 0.5)
    plane = ControlPlane(MemoryStore(), "orders")
    _taken_over(plane)
    started = list[str]()

    def launch(order: Mapping[str, Any], log: Path | None) -> Ended:
        started.append(order["name"])
        return Ended(CODES[ExitKind.SUPERSEDED])

    host = processes.ProcessHost(configured(tmp_path, trigger={"manual": True}), plane, launch=launch)
    for _ in range(3):
        host.turn(0.0)
    assert started == ["orders/0"]
    assert host.given_up()
    plane.do(lambda tx: members.leave(tx, "orders/0", "theirs"))
    host.turn(0.0)
    assert started == ["orders/0"]
    time.sleep(0.6)
    host.turn(0.0)
    assert started == ["orders/0", "orders/0"]


def _taken_over(plane: ControlPlane) -> None:
    """A running region, whose only member another host has started."""
    life.declare(plane.store, Region(name="orders", uid="uid", region_index=0))
    plane.do(lambda tx: life.start(tx, by="test"))
    plane.do(lambda tx: members.register(tx, members.Registration("orders/0", "theirs", 1, 0, "cluster", "g")))


@pytest.mark.parametrize(
    ("code", "again"),
    [
        (CODES[ExitKind.CLEAN], True),
        (CODES[ExitKind.FAILED], True),
        (CODES[ExitKind.SUPERSEDED], False),
        (REFUSED, False),
    ],
)
def test_g3_who_is_wanted_is_started_again_unless_superseded_or_refused(
    code: int, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that came to a clean end in the instant between `stop` and `start` is wanted again, and must come back."""
    real, started = subprocess.Popen, []

    def popen(*_: Any, **keys: Any) -> Any:
        started.append(1)
        return real(
            [sys.executable, "-c", f"import sys; sys.stdin.readline(); sys.exit({code})"], stdin=subprocess.PIPE
        )

    monkeypatch.setattr(processes.subprocess, "Popen", popen)
    plane = ControlPlane(MemoryStore(), "orders")
    _taken_over(plane)
    host = processes.ProcessHost(configured(tmp_path, trigger={"manual": True}), plane)
    host.begin()
    end = time.monotonic() + 30
    while len(started) < 2 and not host.given_up() and time.monotonic() < end:
        time.sleep(0.05)
    if not again:
        time.sleep(1.0)  # who is given up is not started later either
    given_up = host.given_up()
    host.end()
    assert (len(started) >= 2) is again
    assert bool(given_up) is not again, "a host without hope says so"
    if code == REFUSED:
        assert given_up.startswith("orders/0 was refused: the group is another region's")


def test_g9_a_process_that_is_through_ends_whatever_hangs_on_the_way_out() -> None:
    """Nothing watches Python's own way out, and a member that hung there was never started again."""
    hanging = (
        "import atexit, runpy, time; atexit.register(time.sleep, 600); "
        "runpy.run_module('crkafka_core.member.main', run_name='__main__')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", hanging], input="{}\n", stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert ended.returncode not in NO_RESTART | {0}
    assert "name" in ended.stderr, "what went wrong is said"


def test_g9_every_client_of_kafka_ends_before_its_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the watchdog still looks: a client that only Python's way out ends may hang there for ever."""
    closed: list[str] = []
    monkeypatch.setattr(SimulatedAdmin, "close", lambda admin: closed.append(admin.owner.name))
    history = simulate(1, plan=Plan(seed=1, members=2, faults=(Fault(5.0, "stop"),)))
    assert history.violation is None
    launched = [who for _, who, what, _ in history.entries if what == "launched"]
    assert sorted(name for name in closed if name.startswith("sim/")) == sorted(launched)
    assert len(launched) >= 2
