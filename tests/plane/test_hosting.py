"""One host runs the members of a region; its driver outlives whatever fails (SPEC K1, A6)."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from crkafka_core.holder import machine
from crkafka_core.loop import Runtime
from crkafka_core.model.errors import LeaseHeld, LeaseLost, NotSettled, Refused
from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.rows import MemberStatus
from crkafka_core.plane import alarms, cuts, hosts, leases, life, roster
from crkafka_core.plane.status import waits_for
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.region import host
from crkafka_core.region.driver import Driver
from crkafka_core.region.host import LEASE, only_host
from crkafka_core.region.lease import DriverLease
from tests.plane.conftest import Kit


class Time:
    """Moves when somebody sleeps; `on_sleep` is what happens elsewhere meanwhile."""

    def __init__(self, kit: Kit) -> None:
        self.kit, self.slept, self.on_sleep = kit, 0.0, lambda: None

    def now(self) -> float:
        return self.kit.now

    def sleep(self, seconds: float) -> None:
        self.kit.now += seconds
        self.slept += seconds
        self.on_sleep()

    def wait(self, signal: Any, seconds: float) -> bool:
        self.slept += seconds
        return bool(signal.is_set())

    def start(self, loop: Any) -> None:
        """Nothing is renewed by itself."""

    def unique(self) -> str:
        return f"t{self.kit.now}"


class Region:
    """What a host needs of one."""

    def __init__(self, kit: Kit) -> None:
        self.plane: ControlPlane = kit.plane
        self.time = Time(kit)
        self.runtime: Runtime = self.time  # type: ignore[assignment]
        self.configured = 0

    def init(self) -> None:
        self.configured += 1


def hold(kit: Kit, holder: str, **data: object) -> None:
    kit.do(lambda tx: leases.take(tx, LEASE, holder=holder, token=holder, length=30.0, data=json.dumps(data)))


def test_k1_a_second_host_is_refused_with_the_name_of_the_first_as_soon_as_that_one_shows_life(kit: Kit) -> None:
    region = Region(kit)
    hold(kit, "anna@there", host="there", pid=1)
    region.time.on_sleep = lambda: hold(kit, "anna@there", host="there", pid=1) if region.time.slept >= 10 else None
    with pytest.raises(LeaseHeld, match="hosted by anna@there already"), only_host(region):  # type: ignore[arg-type]
        raise AssertionError("two hosts")
    assert region.time.slept < 15
    assert region.configured == 0, "by somebody who is refused"


def test_k1_a_host_that_was_killed_is_followed_at_once_here_and_after_its_lease_elsewhere(kit: Kit) -> None:
    region = Region(kit)
    hold(kit, "gone", host=machine(), pid=2**22 + 1)
    with only_host(region):  # type: ignore[arg-type]
        assert (region.time.slept, region.configured) == (0.0, 1)
    hold(kit, "elsewhere", host="there", pid=os.getpid())
    said: list[str] = []
    with only_host(region, say=said.append) as right:  # type: ignore[arg-type]
        assert 29.0 < region.time.slept < 31.0
        assert "elsewhere" in said[0]
        right.check()
        kit.now += 60.0
        hold(kit, "another", host="there", pid=1)
        with pytest.raises(LeaseLost, match="another"):
            right.check()


def test_k1_a_host_in_another_container_of_the_same_name_is_not_taken_for_dead(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each container counts its processes itself, so a host says with its number where that number means something."""
    region = Region(kit)
    monkeypatch.setattr("crkafka_core.region.lease.machine", lambda: "box/1")
    with only_host(region):  # type: ignore[arg-type]
        (held,) = kit.read(lambda reader, row: leases.held(reader, LEASE))
        assert json.loads(held.data_json) == {"host": "box/1", "pid": os.getpid()}
    hold(kit, "in the other", host="box/1", pid=2**22 + 1)
    monkeypatch.setattr("crkafka_core.holder.machine", lambda: "box/2")
    with only_host(region):  # type: ignore[arg-type]
        assert region.time.slept > 29.0


def test_k1_of_two_hosts_that_both_find_the_last_one_killed_one_runs_the_members(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor and a person start it at once: each took the dead one's token, and held the right by it."""
    first, second = Region(kit), Region(kit)
    hold(kit, "gone", host=machine(), pid=2**22 + 1)
    dead, look = host._held(kit.plane), host._held
    with only_host(first) as right:  # type: ignore[arg-type]
        seen = iter([dead])  # the second one had looked before the first one took it
        monkeypatch.setattr(host, "_held", lambda plane: next(seen, None) or look(plane))
        second.time.unique = lambda: "second"  # type: ignore[method-assign]
        lease = right.lease
        assert lease is not None
        second.time.on_sleep = lambda: kit.do(lambda tx: leases.renew(tx, lease=lease, length=30.0))  # type: ignore[assignment]
        with pytest.raises(LeaseHeld), only_host(second):  # type: ignore[arg-type]
            raise AssertionError("two hosts")
        right.check()


def test_a6_the_end_of_a_host_run_leaves_the_right_of_its_retry_that_lives(kit: Kit) -> None:
    """Both have one token: Dagster took the older run for dead, retried it, and the older one came to its end."""
    older, retry = (
        DriverLease(kit.plane, LEASE, "run", token="dagster-1", runtime=Region(kit).runtime) for _ in range(2)
    )
    with ExitStack() as living:
        with older:
            living.enter_context(retry)
        retry.check()
        assert kit.read(lambda reader, row: leases.held(reader, LEASE)) == [retry.lease]
    assert not kit.read(lambda reader, row: leases.held(reader, LEASE)), "its own end gives it back"


class Drivable:
    """A region whose driver's right the database refuses a few times, with an error that is none of ours."""

    def __init__(self, kit: Kit, failures: int) -> None:
        self.plane, self.failures, self.entered = kit.plane, failures, 0
        self.runtime = Time(kit)

    @contextmanager
    def driver(self, *, data: str = "") -> Iterator[None]:
        if self.failures:
            self.failures -= 1
            raise PermissionError("permission denied for table lease: 42501")
        self.entered += 1
        yield


def test_a6_a_driver_goes_on_after_an_error_that_is_none_of_ours_and_says_it(
    kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    region = Drivable(kit, failures=3)
    driver = Driver(region)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            assert driver.turn(0.0)
    assert region.entered == 1
    assert region.runtime.slept == 2 + 4 + 8, "each time longer"
    assert [r.levelname for r in caplog.records] == ["WARNING"] * 3
    assert "no cuts" in caplog.text
    assert "42501" in caplog.text


class Driven(Drivable):
    """With the control plane's own lease."""

    def driver(self, *, data: str = "{}") -> DriverLease:  # type: ignore[override]
        return DriverLease(self.plane, leases.DRIVER, "me", data=data, runtime=self.runtime)


def test_a6_a_driver_says_once_that_another_one_drives_and_follows_one_that_was_killed_at_once(
    kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    """A host that was started after `kill -9` of the last one said it every two seconds, for half a minute."""
    region = Driven(kit, failures=0)
    driver = Driver(region)  # type: ignore[arg-type]

    def taken(pid: int) -> None:
        data = json.dumps({"host": machine(), "pid": pid})
        kit.do(lambda tx: leases.take(tx, leases.DRIVER, holder="anna", token="a", length=30.0, data=data))

    taken(os.getpid())
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            assert driver.turn(0.0)
    assert driver._lease is None and [r.levelname for r in caplog.records] == ["WARNING"]
    assert "anna" in caplog.text
    taken(2**22 + 1)
    assert driver.turn(0.0) and driver._lease is not None
    (held,) = kit.read(lambda reader, row: leases.held(reader, leases.DRIVER))
    assert (held.holder, json.loads(held.data_json)["pid"]) == ("me", os.getpid())
    driver._over.set()
    driver.turn(0.0)


def test_a6_a_driver_that_slept_past_its_lease_drives_again_once_the_other_one_has_gone(kit: Kit) -> None:
    """It was alone for long after that: with the right that it had lost it would have opened no cut any more."""
    cut = list[dict[str, Any]]()
    region: Any = Driven(kit.running(), failures=0)
    region.config = SimpleNamespace(trigger=SimpleNamespace(period=5.0, operator_driven=False))
    region.cut = lambda **of: cut.append(of)
    driver = Driver(region)
    assert driver.turn(0.0) and driver._lease is not None
    _later(kit, 100.0)
    lease = kit.do(lambda tx: leases.take(tx, leases.DRIVER, holder="anna", token="a", length=30.0))
    assert driver.turn(0.0) and driver.turn(0.0)
    assert driver._lease is None and not cut
    kit.do(lambda tx: leases.release(tx, lease))
    assert driver.turn(0.0) and driver.turn(0.0)
    assert [of["lease"].number for of in cut] == [lease.number + 1]


def _at_rest(kit: Kit) -> None:
    kit.do(lambda tx: tx.set_region(wanted=Wanted.STOP, phase=Phase.IDLE))


HOSTLESS: dict[str, tuple[Callable[[Kit], object], str]] = {
    "members run by hand": (lambda kit: kit.running(), ""),
    "at rest": (lambda kit: _at_rest(kit.running()), ""),
    "wanted, and nobody came": (
        lambda kit: kit.do(lambda tx: life.start(tx, by="me")),
        "no member is there: `crkafka host` runs them",
    ),
    "its host is beginning": (lambda kit: (kit.do(lambda tx: life.start(tx, by="me")), hold(kit, "anna")), ""),
    "its host alive, and no member came": (
        lambda kit: (kit.do(lambda tx: life.start(tx, by="me")), _later(kit), hold(kit, "anna")),
        "no member is there: anna has been starting them for 40 s, and its log says why they do not come; if it is gone, `crkafka host`",
    ),
    "running, its host alive": (lambda kit: hold(kit.running(), "anna"), ""),
    "killed a moment ago": (
        lambda kit: (hold(kit.running(), "anna"), _no_member(kit)),
        "no member is there: anna is starting them again, and its log says why they do not come; if it is gone",
    ),
    "silent for as long as its lease": (
        lambda kit: (hold(kit.running(), "anna"), _later(kit, 30.0)),
        "the host of its members, anna, has shown no life for 30 s: `crkafka host` runs them",
    ),
    "killed long ago": (
        lambda kit: (hold(kit.running(), "anna"), _no_member(kit), _later(kit)),
        "the host of its members, anna, has shown no life for 40 s: `crkafka host` runs them",
    ),
    "its machine is gone": (
        lambda kit: (hold(kit.running(), "anna"), _later(kit)),
        "the host of its members, anna, has shown no life for 40 s: `crkafka host` runs them",
    ),
}


def _later(kit: Kit, seconds: float = 40.0) -> None:
    kit.now += seconds


def _no_member(kit: Kit) -> None:
    kit.do(lambda tx: tx.put(*(replace(m, status=MemberStatus.LOST, assignment_json="") for m in roster.all_of(tx))))


@pytest.mark.parametrize(("before", "said"), HOSTLESS.values(), ids=HOSTLESS)
def test_that_nobody_runs_the_members_is_an_alarm(kit: Kit, before: Callable[[Kit], object], said: str) -> None:
    before(kit)
    alarm = kit.read(alarms.current)
    assert alarm.startswith(said) if said else not alarm


def test_an_idle_region_whose_host_is_starting_says_so(kit: Kit) -> None:
    """For a minute, while Spark started, it said that nobody was there."""
    assert kit.read(waits_for) == ""
    hold(kit, "anna")
    assert kit.read(waits_for) == "its host anna, which is starting (Spark takes a minute) or ending"


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("processes", "anna has been starting them for 3 s"),
        ({"spark": "local[4]"}, "anna is starting them; Spark has been starting for 3 s"),
    ],
)
def test_while_a_host_starts_members_what_the_region_waits_for_says_so_and_for_how_long(
    kit: Kit, host: object, said: str
) -> None:
    """While Spark started, `show` said that no member was there, and nothing else."""
    kit.do(lambda tx: tx.set_region(config_json=json.dumps({"host": host if isinstance(host, dict) else {}})))
    kit.do(lambda tx: life.start(tx, by="me"))
    hold(kit, "anna")
    _later(kit, 3.0)
    assert kit.read(waits_for) == f"no member is there: {said}"


@pytest.mark.parametrize("hosted", [True, False])
def test_a_cut_that_no_member_would_make_names_who_runs_them(kit: Kit, hosted: bool) -> None:
    """It was told to wait, for ever."""
    kit.running()
    if hosted:
        hold(kit, "anna")
    _no_member(kit)
    with pytest.raises(NotSettled, match=r"no member is there.*`crkafka host` runs them") as refused:
        kit.do(lambda tx: cuts.open_cut(tx, token="a", cause="test"))
    assert "settles by itself" not in str(refused.value)
    assert "`crkafka host` runs them" in kit.read(waits_for)


def test_k1_a_host_is_wanted_by_a_region_that_should_run_once_none_has_shown_life_for_a_while(
    make_kit: type[Kit],
) -> None:
    kit = make_kit()
    kit.now += 100.0
    assert kit.read(hosts.wanted) == "", "nobody has started it"
    kit.do(lambda tx: life.start(tx, by="me"))
    assert kit.read(hosts.wanted) == "", "a moment ago"
    kit.now += hosts.GRACE
    assert kit.read(hosts.wanted).endswith("2 members are wanted and none is there")
    lease = kit.do(lambda tx: leases.take(tx, LEASE, holder="host", token="t", length=10.0))
    kit.now = lease.until + hosts.GRACE - 1.0
    assert kit.read(hosts.wanted) == ""
    kit.now = lease.until + hosts.GRACE
    assert "host does not host its members any more" in kit.read(hosts.wanted)


def test_g5_one_member_may_be_wanted_and_none_may_not(kit: Kit) -> None:
    assert kit.do(lambda tx: life.scale(tx, 1, by="me")).members_wanted == 1
    with pytest.raises(Refused, match="0 members cannot consume"):
        kit.do(lambda tx: life.scale(tx, 0, by="me"))
