"""The database's clock steps an hour back or forth: at most one aborted cut, and nothing waits for the old time (SPEC G4; fault 79)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from checkpoints_db import open_store
from crkafka_core.control import Store
from crkafka_core.model.errors import LeaseHeld
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Lease, Member, ResetCause
from crkafka_core.plane import advance, alarms, cuts, epochs, events, leases, life, members, retire
from crkafka_core.plane.transact import ControlPlane
from tests.plane.conftest import LIMITS, P0, P1, Kit
from tests.rigs.memory import MemoryStore

STEPS = (-3_600.0, 3_600.0)
PERIOD = 60.0


@pytest.fixture(params=["memory", "sqlite"])
def kit(request: pytest.FixtureRequest) -> Iterator[Kit]:
    """A running region with a checkpoint, on a store that tells the kit's time."""
    kit = Kit()
    kit.now = 1_000_000.0
    store: Store = (
        MemoryStore(lambda: kit.now) if request.param == "memory" else open_store("sqlite://", clock=lambda: kit.now)
    )
    row = kit.row
    kit.plane = ControlPlane(store, "orders")
    life.declare(store, row)
    kit.running()
    kit.cut()
    yield kit
    store.close()


def _looks(kit: Kit, seconds: float) -> None:
    """Somebody looks every second, as members do, and does what is due."""
    for _ in range(int(seconds)):
        kit.now += 1.0
        if kit.read(advance.due):
            kit.do(advance.advance)


def _due(kit: Kit) -> str:
    return kit.read(lambda reader, row: cuts.why_due(reader, row, period=PERIOD, counted=False))


def test_79_a_step_of_a_second_is_none(kit: Kit) -> None:
    latest = max(getattr(kit.row, name) for name in advance.BEGINNINGS)
    for step, stepped in ((leases.TOLERANCE, False), (leases.TOLERANCE + 0.1, True)):
        kit.now = latest - step
        assert kit.read(advance.stepped_back) is stepped


def test_79_a_step_back_is_told(kit: Kit) -> None:
    kit.now = max(getattr(kit.row, name) for name in advance.BEGINNINGS) - 3_600.0
    kit.advance()
    (told,) = kit.events("clock")
    assert "stepped back by 3600 s or more" in told.text


def test_79_what_is_alarmed_is_told_again_after_a_step_back(kit: Kit) -> None:
    """By the time before the step it would count as told for another hour."""
    _looks(kit, 3 * PERIOD + 5)
    kit.now -= 3_600.0
    _looks(kit, 2)
    kit.cut()
    _looks(kit, 3 * PERIOD + 5)
    assert len(kit.events(events.NO_MERGE)) == 2
    assert "no checkpoint was merged" in kit.read(alarms.no_merge)


@pytest.mark.parametrize("step", STEPS)
def test_79_the_next_cut_is_due_within_a_period(kit: Kit, step: float) -> None:
    kit.now += step
    _looks(kit, PERIOD + 2)
    assert _due(kit) == "every 60 s"
    kit.cut()
    _looks(kit, PERIOD - 5)
    assert not _due(kit), "and from then on as always"
    _looks(kit, 6)
    assert _due(kit)


@pytest.mark.parametrize("step", STEPS)
def test_79_no_merge_is_alarmed_after_three_periods_as_ever(kit: Kit, step: float) -> None:
    kit.do(lambda tx: epochs.idle(tx, "test"))
    kit.do(lambda tx: life.start(tx, by="me"))
    kit.now += step
    _looks(kit, 3 * PERIOD + 5)
    assert "no checkpoint was merged" in kit.read(alarms.no_merge)


@pytest.mark.parametrize("step", STEPS)
def test_79_at_most_the_open_cut_is_aborted_and_its_deadline_is_a_new_one(kit: Kit, step: float) -> None:
    opened = kit.open()
    kit.now += step
    _looks(kit, 2)
    if step < 0:
        assert kit.row.open_cut == opened, "there is no reason to abort it"
        _looks(kit, LIMITS.drain_timeout + 1)
    assert kit.checkpoint(opened).status == "ABORTED"
    kit.settle()
    _looks(kit, 3)
    assert kit.row.phase is Phase.RUNNING
    kit.cut()
    assert sum(1 for r in kit.resets() if r.aborted) == 1


@pytest.mark.parametrize("step", STEPS)
def test_79_a_back_off_lasts_no_longer_than_it_was_to(kit: Kit, step: float) -> None:
    kit.fail(0, "the storage is away", ResetCause.UNAVAILABLE)
    assert kit.row.not_before == kit.now + 2.0
    kit.now += step
    kit.resolve(0, {P0}), kit.resolve(1, {P1})
    kit.report(0, {P0}), kit.report(1, {P1})
    _looks(kit, 4)
    assert kit.row.phase is Phase.RUNNING


def test_x6_a_back_off_that_begins_after_a_step_back_lasts(kit: Kit) -> None:
    """It began before anybody had noticed the step (found by seed 10001884)."""
    kit.now -= 3_600.0
    kit.fail(0, "the storage is away", ResetCause.UNAVAILABLE)
    kit.advance()
    assert kit.row.not_before == kit.now + 2.0


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("idle", [False, True])
def test_79_a_lease_whose_holder_is_gone_is_free_as_soon_as_ever(kit: Kit, step: float, idle: bool) -> None:
    """Also while nobody looks after the region."""
    first = kit.do(lambda tx: leases.take(tx, "driver", holder="run 1", token="a", length=30.0))
    if idle:
        kit.do(lambda tx: epochs.idle(tx, "test"))
    kit.now += step
    if not idle:
        _looks(kit, 31)
    second = kit.do(lambda tx: leases.take(tx, "driver", holder="run 2", token="b", length=30.0))
    assert second.number > first.number
    with pytest.raises(LeaseHeld):
        kit.do(lambda tx: leases.take(tx, "driver", holder="run 3", token="c", length=30.0))


def test_79_a_lease_that_is_renewed_stays_with_its_holder(kit: Kit) -> None:
    taken = kit.do(lambda tx: leases.take(tx, "driver", holder="run 1", token="a", length=30.0))
    kit.now -= 3_600.0
    kit.do(lambda tx: leases.renew(tx, taken, 30.0))
    with pytest.raises(LeaseHeld):
        kit.do(lambda tx: leases.take(tx, "driver", holder="run 2", token="b", length=30.0))


def test_79_what_is_read_stays_until_its_reader_has_had_time_to_renew(kit: Kit) -> None:
    kit.do(lambda tx: leases.take(tx, "reader", holder="me", token="r", length=30.0, slot="r"))
    kit.now -= 3_600.0
    held: Callable[[], list[Lease]] = lambda: kit.read(lambda r, row: leases.held(r, "reader"))  # noqa: E731
    _looks(kit, 28)
    assert held()
    _looks(kit, 5)
    assert not held()


def test_79_what_came_while_the_clock_was_ahead_holds_nothing_for_as_long(kit: Kit) -> None:
    """Nothing of the region began meanwhile, so that only the lease tells of the step (found by seed 263017484)."""
    kit.now += 3_600.0
    kit.do(lambda tx: leases.take(tx, "reader", holder="me", token="r", length=30.0, slot="r"))
    kit.now -= 3_600.0
    held: Callable[[], list[Lease]] = lambda: kit.read(lambda r, row: leases.held(r, "reader"))  # noqa: E731
    kit.do(retire.clean_up)
    assert held()
    kit.now += 31.0
    kit.do(retire.clean_up)
    assert not held()


def test_79_what_was_alarmed_while_the_clock_was_ahead_is_over_with_the_next_merge(kit: Kit) -> None:
    """Nothing of the region began meanwhile, so that only the alarm tells of the step (found by seed 265014489)."""
    kit.now += 3_600.0
    kit.do(lambda tx: events.raise_alarm(tx, events.NO_LAST_CUT, "a member was lost"))
    kit.now -= 3_599.0
    kit.do(retire.clean_up)
    assert kit.read(alarms.last_cut_missed), "it still holds"
    kit.now += 1.0
    kit.cut()
    assert not kit.read(alarms.last_cut_missed)


def test_79_an_alarm_of_after_a_cut_while_the_clock_was_ahead_still_holds(kit: Kit) -> None:
    """No merge has come after it: whoever begins the waits anew says what follows."""
    kit.now += 3_600.0
    kit.cut()
    kit.now += 1.0
    kit.do(lambda tx: events.raise_alarm(tx, events.NO_LAST_CUT, "a member was lost"))
    kit.now -= 3_600.0
    kit.do(retire.clean_up)
    assert kit.read(alarms.last_cut_missed)


def test_79_who_became_stale_while_the_clock_was_ahead_is_lost_in_time(kit: Kit) -> None:
    kit.rebalance(1)
    kit.generation = 2
    kit.resolve(1, {P0, P1})
    kit.report(1, {P0, P1})
    kit.report(0, {P0}, generation=1)
    watch: Callable[[], object] = lambda: kit.do(lambda tx: members.watch_generations(tx, 3.0, 3.0))  # noqa: E731
    lost: Callable[[], list[Member]] = lambda: kit.read(lambda r, row: r.select(Member, ("status", "=", "LOST")))  # noqa: E731
    kit.now += 3_600.0
    watch()
    kit.now -= 3_600.0
    watch()
    assert not lost()
    kit.now += 3.5
    watch()
    assert [m.name for m in lost()] == ["orders/0"]


@pytest.mark.parametrize("step", STEPS)
def test_79_nobody_is_lost_by_a_step_and_who_is_stale_is_lost_in_time(kit: Kit, step: float) -> None:
    kit.rebalance(1)
    kit.generation = 2
    kit.resolve(1, {P0, P1})
    kit.report(1, {P0, P1})
    kit.report(0, {P0}, generation=1)
    _looks(kit, 1)
    kit.now += step
    statuses: Callable[[], dict[str, Any]] = lambda: {  # noqa: E731
        m.name: m.status for m in kit.read(lambda r, row: r.select(Member))
    }
    _looks(kit, 12)
    assert statuses()["orders/0"] == "LOST"
    assert statuses()["orders/1"] == "LIVE"


@pytest.mark.parametrize("step", STEPS)
def test_79_a_stop_and_a_start_take_no_longer(kit: Kit, step: float) -> None:
    kit.unsettle(0)
    kit.do(lambda tx: life.stop(tx, token="stop", by="me"))
    assert kit.row.phase is Phase.RUNNING, "it waits for the group to cut a last time"
    kit.now += step
    _looks(kit, LIMITS.drain_timeout + 2)
    assert kit.row.phase is Phase.IDLE
    for number in (0, 1):
        kit.do(lambda tx, n=f"orders/{number}": members.leave(tx, n, kit.live[n]))  # type: ignore[misc]
    kit.do(lambda tx: life.start(tx, by="me"))
    kit.register(0)
    kit.resolve(0, {P0, P1})
    kit.report(0, {P0, P1})
    kit.now += step
    _looks(kit, LIMITS.start_grace + 2)
    assert kit.row.phase is Phase.RUNNING
