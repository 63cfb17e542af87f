"""A group settles: who is waited for and for how long, and who is named when it does not (SPEC G8, M7, X7)."""

from __future__ import annotations

from dataclasses import replace

from crkafka_core.model.phase import Phase
from crkafka_core.plane import alarms, life, members, resets, settling
from crkafka_core.plane.status import status_of
from tests.plane.conftest import LIMITS, P0, P1, Kit
from tests.rigs.merging import merge_cut


def test_g8_members_of_a_region_started_again_are_waited_for_as_at_first(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: life.stop(tx, token="stop", by="me"))
    for number in (0, 1):
        kit.contribute(kit.row.open_cut, number)
    kit.do(lambda tx: merge_cut(tx, kit.row.open_cut))
    assert kit.row.phase is Phase.IDLE
    for number in (0, 1):
        kit.do(lambda tx, n=f"orders/{number}": members.leave(tx, n, kit.live[n]))  # type: ignore[misc]
    kit.now += 1_000
    kit.do(lambda tx: life.start(tx, by="me"))
    kit.live.clear()
    kit.register(0)
    kit.resolve(0, {P0, P1})
    kit.report(0, {P0, P1})
    assert kit.advance() is Phase.RESETTING, "the second member has ten seconds to come"
    assert kit.advance(11) is Phase.RUNNING


def test_g8_who_is_lost_once_all_had_come_is_not_waited_for(kit: Kit) -> None:
    """The grace is one for the first start, and for `scale`."""
    kit.running()
    one = kit.member(1)
    kit.do(lambda tx: members.lose(tx, one.name, one.incarnation, renewals=one.renewals, by="x", why="silent"))
    kit.hand_over()
    kit.generation += 1
    kit.settle({0: {P0, P1}})
    assert kit.row.phase is Phase.RUNNING


def test_g8_an_unsettled_group_is_alarmed_once_in_an_attempt_with_what_is_missing(kit: Kit) -> None:
    kit.do(lambda tx: life.start(tx, by="test"))
    kit.register(0)
    kit.advance(LIMITS.settle_timeout)
    assert not kit.events("unsettled")
    for _ in range(5):
        kit.advance(10.0)
    (alarm,) = kit.events("unsettled")
    assert "no report of what it holds from orders/0" in alarm.text
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    for _ in range(5):
        kit.advance(10.0)
    assert len(kit.events("unsettled")) == 2


def test_g8_the_alarm_says_what_a_member_waits_for_that_reports_nothing(kit: Kit) -> None:
    """It was in that member's log alone."""
    kit.do(lambda tx: life.start(tx, by="test"))
    incarnation = kit.register(0)
    waits = {"unavailable": "Kafka does not describe t[3] yet."}
    kit.do(lambda tx: members.renew(tx, "orders/0", incarnation, waits))
    kit.advance(LIMITS.settle_timeout + 1.0)
    (alarm,) = kit.events("unsettled")
    assert alarm.text.endswith("from orders/0; orders/0: Kafka does not describe t[3] yet.")


def test_m7_a_region_whose_topic_does_not_exist_yet_waits_for_it_without_attempts(kit: Kit) -> None:
    kit.do(lambda tx: life.start(tx, by="test"))
    for number in (0, 1):
        kit.register(number)
        kit.report(number, set())
    for _ in range(50):
        kit.advance(30.0)
    assert (kit.row.phase, kit.row.consecutive) == (Phase.BIRTH, 0)
    assert "no topic" in kit.read(settling.unready)
    kit.settle()
    assert kit.row.phase is Phase.RUNNING


def test_g8_foreign_members_of_the_group_are_named_when_it_does_not_settle(kit: Kit) -> None:
    kit.do(lambda tx: life.start(tx, by="test"))
    kit.register(0)
    row = kit.row
    clients = [
        alarms.client_id(row.uid, "orders/0", kit.live["orders/0"]),
        alarms.client_id(row.uid, "orders/1", "gone"),
        "kafka-console-consumer",
        (other := alarms.client_id(row.uid, "other/0", "a")),
        (namesake := alarms.client_id("of another control plane", "orders/0", "a")),
    ]
    found = sorted(client for client in clients if alarms.is_foreign(row.uid, row.name, client))
    assert found == sorted([namesake, other, "kafka-console-consumer"])
    kit.do(lambda tx: alarms.strangers(tx, found, by="orders/0"))
    assert not kit.events("foreign members"), "it is not late yet"
    kit.advance(31.0)
    for _ in range(3):
        kit.do(lambda tx: alarms.strangers(tx, found, by="orders/0"))
    assert len(kit.events("foreign members")) == 1
    alarm = kit.read(status_of).alarm
    assert "kafka-console-consumer" in alarm
    assert "not settled for 31 s" in alarm
    kit.do(lambda tx: alarms.strangers(tx, ["another"], by="orders/0"))
    alarm = kit.read(status_of).alarm
    assert "not of this region: another" in alarm and "console" not in alarm, "those that are there now"
    kit.do(lambda tx: alarms.strangers(tx, [], by="orders/0"))
    assert "not of this region" not in kit.read(status_of).alarm
    assert len(kit.events("foreign members")) == 1


def test_x8_the_alarm_says_what_is_missing_now_and_what_members_wait_for(kit: Kit) -> None:
    """It said what was missing when it was raised; and that the leader was away stood in SQL, and nowhere else."""
    kit.do(lambda tx: life.start(tx, by="test"))
    kit.advance(31.0)
    assert "no member is there" in kit.read(status_of).alarm
    kit.advance(60.0)
    for number in (0, 1):
        kit.register(number)
        name = f"orders/{number}"
        why = {"unavailable": "NOT_LEADER_FOR_PARTITION"}
        kit.do(lambda tx, name=name, why=why: members.renew(tx, name, kit.live[name], why))
    status = kit.read(status_of)
    waits = "no report of what it holds from orders/0, orders/1; orders/0, orders/1: NOT_LEADER_FOR_PARTITION"
    assert status.waits_for == waits
    assert f"not settled for 91 s: {waits}" in status.alarm
    assert len(kit.events("unsettled")) == 1
    kit.settle()
    assert kit.read(status_of).alarm == ""


def test_g8_who_is_behind_the_epoch_or_the_head_is_named(kit: Kit) -> None:
    kit.running()
    assert kit.read(settling.unready) == ""
    row = kit.member(1)
    for late in (replace(row, epoch=row.epoch - 1), replace(row, base=row.base - 1)):
        kit.do(lambda tx, late=late: tx.put(late))  # type: ignore[misc]
        assert kit.read(settling.unready) == f"not yet at epoch {row.epoch} and head {row.base}: orders/1"


def test_x7_an_attempt_has_its_time_from_when_the_group_was_settled_last(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    for number, tp in enumerate((P0, P1)):
        kit.report(number, {tp}, base=-1)
    kit.advance()
    epoch = kit.row.epoch
    kit.do(lambda tx: life.scale(tx, 3, by="me"))
    kit.advance(1.0)
    assert "2 of 3 members are there" in kit.read(settling.unsettled)
    kit.advance(LIMITS.start_grace)
    assert kit.read(settling.unsettled) == ""
    kit.advance(LIMITS.reset_timeout)
    assert kit.row.epoch == epoch
    kit.advance(1.0)
    assert kit.row.epoch == epoch + 1
    assert "40 s: not yet at epoch" in kit.resets()[-1].text
    kit.advance()
    kit.do(lambda tx: tx.set_region(not_before=kit.now + 60.0))
    kit.advance(59.0)
    assert kit.row.epoch == epoch + 1, "no next attempt before the back-off is over"
    kit.advance(1.0)
    assert kit.row.epoch == epoch + 2
