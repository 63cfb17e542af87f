"""No merge for three periods is an alarm, whatever the reason, told once and everywhere (SPEC X6, X8)."""

from __future__ import annotations

import json

import pytest

from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import ResetCause
from crkafka_core.plane import advance, alarms, cuts, epochs, events, life, permits, resets, starts
from crkafka_core.plane.status import status_of
from tests.plane.conftest import LIMITS, P0, P1, Kit
from tests.rigs.merging import merge_cut


def _told(kit: Kit) -> list[str]:
    return [event.text for event in kit.events(events.NO_MERGE)]


def test_x6_three_periods_without_a_merge_are_an_alarm_until_the_next_merge(kit: Kit) -> None:
    kit.running()
    kit.cut()
    kit.advance(180.0)
    assert not kit.read(advance.due) and not _told(kit) and kit.read(status_of).no_merge == ""
    kit.now += 1.0
    assert kit.read(advance.due), "somebody looks under the lock, though the region is RUNNING"
    for _ in range(3):
        kit.advance(10.0)
    (told,) = _told(kit)
    assert told.startswith(
        "no checkpoint was merged for 191 s, with a period of 60 s; it is RUNNING, and no cut is open"
    )
    assert not kit.read(advance.due), "once it is told, there is nothing to do"
    assert "no checkpoint was merged for 211 s" in kit.read(status_of).alarm
    kit.cut()
    assert kit.read(status_of).alarm == ""
    kit.advance(181.0)
    assert len(_told(kit)) == 2


@pytest.mark.parametrize("cause", [ResetCause.UNAVAILABLE, ResetCause.LATE, ResetCause.OFFSET_GONE])
def test_82_what_never_stops_a_region_is_alarmed_all_the_same(kit: Kit, cause: ResetCause) -> None:
    kit.running()
    for _ in range(10):
        kit.fail(0, "the storage is slow", cause)
        kit.advance(61.0)
        kit.settle()
    assert kit.row.phase is Phase.RUNNING
    assert len(_told(kit)) == 1 and "the storage is slow" in _told(kit)[0]


@pytest.mark.parametrize("cause", [ResetCause.UNAVAILABLE, ResetCause.LATE])
def test_75_where_no_cut_comes_by_time_resets_that_follow_each_other_are_the_alarm(
    make_kit: type[Kit], cause: ResetCause
) -> None:
    """Cuts by count or by hand: there is no period after which a merge is missed, and it went on for hours without a word."""
    kit = make_kit(period=0.0).running()
    for times in range(1, 6):
        kit.fail(0, "the storage is away", cause)
        kit.advance(61.0)
        assert bool(kit.read(status_of).alarm) == (times >= 3)
        kit.settle()
    assert len(_told(kit)) == 1 and "the storage is away" in _told(kit)[0]
    kit.advance(600.0)
    assert kit.read(status_of).alarm == "", "it has been running since; that nobody cuts is nobody's failure"


def test_v2_a_cut_that_a_member_asked_for_and_nobody_opens_is_an_alarm(make_kit: type[Kit]) -> None:
    """It submits nothing more until then, and where no cut comes by time nothing told that its driver is away."""
    kit = make_kit(period=0.0).running()
    kit.advance(600.0)
    name, row = "orders/1", kit.row
    kit.do(lambda tx: cuts.ask(tx, member=name, incarnation=kit.live[name], epoch=row.epoch, head=row.head))
    kit.advance(60.0)
    assert kit.read(status_of).alarm == ""
    kit.now += 1.0
    assert kit.read(advance.due)
    kit.advance()
    (told,) = _told(kit)
    assert told.startswith("orders/1 asked for a cut 61 s ago") and told.endswith("`crkafka cut` opens one")
    assert kit.read(status_of).alarm == told
    kit.cut()
    kit.advance(600.0)
    assert kit.read(status_of).alarm == ""


def test_x6_a_region_that_never_came_to_run_is_alarmed_from_its_start_on(kit: Kit) -> None:
    kit.now += 86_400.0
    kit.do(lambda tx: life.start(tx, by="me"))
    kit.register(0)
    kit.advance(180.0)
    assert not _told(kit)
    kit.advance(1.0)
    assert "it is BIRTH" in _told(kit)[0]


def test_x6_a_rewind_that_a_person_asked_for_begins_the_wait_anew(make_kit: type[Kit]) -> None:
    """Which table it waits for is an alarm of its own (SPEC K6, X4)."""
    kit = make_kit(tables=("bronze",)).running()
    first = kit.cut()
    kit.cut()
    kit.do(lambda tx: permits.permit_commit(tx, "bronze", holder="me", token="a"))
    kit.advance(170.0)
    kit.do(lambda tx: resets.request(tx, cause="back", by="me", target=first))
    kit.advance(500.0)
    assert kit.row.phase is Phase.REWINDING and not _told(kit)
    assert kit.read(status_of).alarm.startswith("table bronze has not followed the rewind for 500 s")
    permit = kit.do(lambda tx: permits.permit_fence(tx, "bronze", holder="me", token="f"))
    assert permit is not None
    kit.do(lambda tx: permits.finish_fence(tx, permit, version="7"))
    kit.settle()
    kit.advance(180.0)
    assert kit.row.phase is Phase.RUNNING and not _told(kit)
    kit.advance(1.0)
    assert [text.partition(",")[0] for text in _told(kit)] == ["no checkpoint was merged for 181 s"]


def test_x6_who_wants_no_cuts_by_time_or_no_region_is_not_alarmed(make_kit: type[Kit]) -> None:
    by_hand = make_kit(period=0.0).running()
    by_hand.advance(86_400.0)
    assert by_hand.read(status_of).no_merge == ""
    stopped = make_kit().running()
    stopped.do(lambda tx: epochs.idle(tx, "test"))
    stopped.now += 86_400.0
    assert stopped.read(status_of).no_merge == ""
    stopped.do(lambda tx: life.start(tx, by="me"))
    assert stopped.read(status_of).no_merge == "", "it has just been started again"


def test_x6_a_cut_that_found_nothing_new_is_a_completed_cut(kit: Kit) -> None:
    kit.running()
    kit.cut()
    kit.advance(181.0)
    assert len(_told(kit)) == 1
    empty = kit.do(lambda tx: cuts.open_cut(tx, token="t", cause="every 60 s", if_new=True)).id
    for number in (0, 1):
        kit.contribute(empty, number)
    kit.do(lambda tx: merge_cut(tx, empty))
    assert kit.read(status_of).no_merge == ""
    kit.advance(179.0)
    assert len(_told(kit)) == 1
    kit.advance(2.0)
    assert len(_told(kit)) == 2


def test_x6_resets_in_a_row_are_an_alarm_as_long_as_the_next_one_may_still_come(make_kit: type[Kit]) -> None:
    """The longest back-off and the time of one attempt."""
    kit = make_kit(period=0.0).running()
    for _ in range(alarms.PERIODS):
        kit.fail(0, "the storage is away", ResetCause.UNAVAILABLE)
        kit.advance(61.0)
        kit.settle()
    kit.now = kit.row.reset_at + LIMITS.backoff_cap + LIMITS.reset_timeout
    assert "3 resets in a row" in kit.read(alarms.no_merge)
    kit.now += 1.0
    assert kit.read(alarms.no_merge) == ""


def test_added_partitions_behind_a_table_of_one_row_for_each_key_are_an_alarm_for_an_hour() -> None:
    """An older record of a key that its old partition still holds may come after the newer one of its new partition."""
    kit, grown = Kit(), TP("t", 2)
    tables = [
        {"name": "customers", "mode": "upsert", "topics": ["t"]},
        {"name": "others", "mode": "upsert", "topics": ["u"]},
    ]
    kit.do(lambda tx: tx.set_region(config_json=json.dumps({"tables": tables})))
    kit.running()
    assert kit.read(alarms.current) == ""
    kit.now += 100
    kit.rebalance(0)
    kit.settle({0: {P0, grown}, 1: {P1}})
    checkpoint = kit.open()
    kit.contribute(checkpoint, 0, held={P0, grown})
    kit.contribute(checkpoint, 1)
    kit.do(lambda tx: merge_cut(tx, checkpoint))
    alarm = kit.read(alarms.current)
    assert alarm.startswith("topic t was given partitions") and "table customers may keep its older record" in alarm
    kit.do(lambda tx: tx.set_region(config_json="{}"))
    assert kit.read(alarms.current) == "", "no table has one row for each key"
    kit.do(lambda tx: tx.set_region(config_json=json.dumps({"tables": tables})))
    kit.now += alarms.KEYS_MOVE
    assert "given partitions" not in kit.read(alarms.current)


@pytest.mark.parametrize(("later", "moved"), [(0.0, False), (1.0, True)])
def test_partitions_found_within_a_minute_of_a_topics_first_ones_are_of_its_beginning(
    later: float, moved: bool
) -> None:
    kit, grown = Kit(), TP("t", 2)
    tables = {"tables": [{"name": "customers", "mode": "upsert"}]}
    kit.do(lambda tx: tx.set_region(config_json=json.dumps(tables)))
    kit.running()
    kit.now = min(i.at for i in kit.read(lambda reader, _: starts.initials(reader))) + alarms.AT_LEAST + later
    kit.resolve(0, {P0, grown})
    assert ("topic t was given partitions" in kit.read(alarms.current)) is moved
