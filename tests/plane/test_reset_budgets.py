"""Resets in a row: how long each waits, when the next is attempted, and when they stop the region (SPEC X6, X7; fault 57)."""

from __future__ import annotations

import pytest

from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import ResetCause
from crkafka_core.plane import alarms, cuts, life, members, resets
from tests.plane.conftest import LIMITS, P0, Kit


def test_57_member_that_flaps_slower_than_cuts_come_ends_in_stopped_with_its_name(make_kit: type[Kit]) -> None:
    kit = make_kit(forced_budget=6).running()
    for _ in range(6):
        kit.dies(1)
        if kit.row.phase is Phase.STOPPED:
            break
        kit.settle()
        kit.cut()
        kit.advance(20.0)
    assert (kit.row.phase, kit.row.stop_member) == (Phase.STOPPED, "orders/1")
    assert "orders/1" in kit.row.stop_reason


@pytest.mark.parametrize("rows", [5, 0])
def test_X6_a_member_that_dies_in_each_cut_stops_the_region_though_the_cuts_merge_without_it(
    kit: Kit, rows: int
) -> None:
    """What it reads never gets into a checkpoint; the alarm says without whom they were merged."""
    kit.running()
    kit.cut()
    for _ in range(10):
        kit.advance(50.0)
        cut = kit.do(lambda tx: cuts.open_cut(tx, token=f"at {kit.now}", cause="test", if_new=True, flow=True)).id
        kit.contribute(cut, 0, rows)
        kit.dies(1)
        if kit.row.phase is not Phase.STOPPED:
            alarm = kit.read(alarms.no_merge)
            kit.settle()
    assert (kit.row.phase, kit.row.stop_member) == (Phase.STOPPED, "orders/1")
    assert "10 times without a completed cut" in kit.row.stop_reason
    assert alarm.startswith("no cut of all members was merged for 450 s"), alarm
    assert alarm.endswith("went without a member: orders/1 was lost: boom")


def test_X6_flaps_that_are_hours_apart_never_stop_a_region(make_kit: type[Kit]) -> None:
    kit = make_kit(forced_budget=6).running()
    for _ in range(20):
        kit.dies(1)
        kit.settle()
        kit.cut()
        kit.advance(3_600.0)
    assert kit.row.phase is Phase.RUNNING


def test_X6_counted_resets_in_a_row_stop_the_region_and_a_cut_zeroes_them(kit: Kit) -> None:
    kit.running()

    def fail() -> None:
        kit.fail(0, "bad disk")
        kit.settle()
        kit.advance(65.0)

    for _ in range(4):
        fail()
    kit.cut()
    assert kit.row.consecutive == 0
    for _ in range(5):
        fail()
    assert kit.row.phase is Phase.STOPPED
    assert "bad disk" in kit.row.stop_reason
    kit.do(lambda tx: life.start(tx, by="me"))
    kit.settle()
    assert kit.row.phase is Phase.RUNNING


def test_X6_nth_attempt_waits_twice_as_long(make_kit: type[Kit]) -> None:
    kit = make_kit(max_consecutive_resets=20).running()
    waits = []
    for _ in range(8):
        kit.fail(0)
        waits.append(kit.row.not_before - kit.now)
    kit.do(lambda tx: tx.set_region(failing=5_000))  # hours of failing storage
    kit.fail(0, "storage", ResetCause.UNAVAILABLE)
    assert [*waits, kit.row.not_before - kit.now] == [2, 4, 8, 16, 32, 60, 60, 60, 60]


def test_X7_reset_that_takes_too_long_while_settled_is_attempted_again(kit: Kit) -> None:
    kit.running()
    epoch = kit.do(lambda tx: resets.request(tx, cause="x", by="me"))
    kit.advance(1.0)
    kit.advance(39.0)
    assert kit.row.epoch == epoch, "members of the older epoch hold everything: settled, but not there yet"
    kit.advance(2.0)
    assert kit.row.epoch == epoch + 1


def test_X7_an_attempt_in_which_a_member_arrives_has_its_time_from_then_on(kit: Kit) -> None:
    kit.running()
    epoch = kit.do(lambda tx: resets.request(tx, cause="x", by="me"))
    kit.advance(1.0)
    kit.now += 39.0
    kit.report(0, {P0})
    kit.advance(2.0)
    kit.advance(LIMITS.reset_timeout)
    assert kit.row.epoch == epoch
    kit.advance(1.0)
    assert kit.row.epoch == epoch + 1


def renewed(kit: Kit, number: int, **metrics: object) -> None:
    name = f"orders/{number}"
    kit.do(lambda tx: members.renew(tx, name, kit.live[name], metrics))


def test_x7_an_attempt_that_kafka_holds_up_backs_off_and_never_stops_the_region(kit: Kit) -> None:
    """Kafka away for hours: groups stay settled, starts cannot be resolved (faults 26, 57)."""
    kit.running()
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    for _ in range(400):
        renewed(kit, 0, unavailable="Kafka failed resolving starts: _TRANSPORT")
        kit.advance(30.0)
    assert kit.row.phase is Phase.RESETTING
    assert kit.row.consecutive == 0
    assert kit.row.failing > 5
    assert "40 s: orders/0: Kafka failed resolving starts" in kit.resets()[-1].text
    renewed(kit, 0)
    kit.now += 60
    kit.settle()
    assert kit.row.phase is Phase.RUNNING


def test_x8_the_member_that_failed_most_is_named_and_not_the_last_one(kit: Kit) -> None:
    kit.running()
    for number in (1, 1, 0, 1, 0):
        kit.fail(number)
    assert (kit.row.phase, kit.row.stop_member) == (Phase.STOPPED, "orders/1")


def test_x8_who_used_up_its_budget_is_named_and_not_who_failed_meanwhile(make_kit: type[Kit]) -> None:
    kit = make_kit(forced_budget=2).running()
    for _ in range(2):
        kit.fail(0)
        kit.advance(60.0)
        kit.settle()
        kit.dies(1)
        kit.now += 1.0
        if kit.row.phase is not Phase.STOPPED:
            kit.settle()
    assert (kit.row.phase, kit.row.stop_member) == (Phase.STOPPED, "orders/1")


@pytest.mark.parametrize(("apart", "phase"), [(100.0, Phase.STOPPED), (101.0, Phase.RESETTING)])
def test_x6_the_budget_is_for_so_many_resets_in_its_window(make_kit: type[Kit], apart: float, phase: Phase) -> None:
    kit = make_kit(forced_budget=2, forced_window=100.0).running()
    kit.dies(1)
    kit.settle()
    kit.now += apart
    kit.dies(1)
    assert kit.row.phase is phase


def test_x6_a_reset_before_the_last_completed_cut_kept_none_away_since(make_kit: type[Kit]) -> None:
    """The reset began the epoch in which the cut came."""
    kit = make_kit(forced_without_cut=2).running()
    kit.dies(1)
    kit.settle()
    kit.cut()
    kit.dies(1)
    assert kit.row.phase is Phase.RESETTING
    kit.settle()
    kit.dies(1)
    assert kit.row.phase is Phase.STOPPED
