"""A table that does not keep up is an alarm (SPEC K6, X8)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crkafka_core.model.errors import WentBack
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Table
from crkafka_core.plane import alarms, epochs, events, lateness, permits, restored, tables
from tests.plane.conftest import Clock
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore


@pytest.fixture
def landing(tmp_path: Path, clock: Clock) -> Landing:
    table = {"name": "bronze", "format": "delta", "path": "lake.shop.bronze"}
    return Landing(MemoryStore(clock=clock), tmp_path, partitions=1, tables=[table])


def alarm(landing: Landing) -> str:
    return landing.read(alarms.current)


def test_a_table_is_late_by_the_time_since_the_oldest_checkpoint_that_waits_and_not_by_how_many_do(
    landing: Landing, clock: Clock
) -> None:
    """Eight tables at 0, with two checkpoints that had waited for nine minutes, were nothing to look at."""
    landing.land(1)
    clock.now += lateness.LATE
    landing.land(1)
    assert alarm(landing) == ""
    clock.now += 1
    assert alarm(landing) == "table bronze is at checkpoint 0: 2 wait for it, the first for 121 s; nobody writes it"
    permit = landing.do(lambda tx: permits.permit_commit(tx, "bronze", holder="host:1", token="t"))
    assert permit is not None and "host:1 writes it" in alarm(landing)
    landing.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=3))
    assert alarm(landing) == ""


def test_of_commits_that_fail_an_alarm_says_for_how_long_and_a_replay_is_none(landing: Landing, clock: Clock) -> None:
    """Of a failure seven minutes old it said 923 s, the time since its permit; and it was that of an interrupted `replay`."""
    plane = landing.region.plane

    def attempt(fails: bool, ids: list[int] | None = None, took: float = 0.0) -> None:
        token = str(clock.now)
        permit = plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="host:1", token=token, ids=ids))
        assert permit is not None
        clock.now += took
        if fails:
            plane.do(lambda tx: permits.fail_commit(tx, permit, "its folder is gone"))
        else:
            plane.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=1))

    landing.land(1)
    attempt(fails=False)
    landing.land(1)
    attempt(fails=True, ids=[1])
    clock.now += 100
    attempt(fails=True, took=10)
    clock.now += 21
    assert alarm(landing) == (
        "table bronze is at checkpoint 1: 1 wait for it, the first for 131 s; nobody writes it; its commits have failed for 21 s, "
        "`crkafka events` has why"
    )
    plane.do(lambda tx: tables.undeclare(tx, "bronze"))
    landing.declare(landing.config.tables[0])
    assert "failed" not in alarm(landing), "what failed before it was declared again is no matter of this table"
    attempt(fails=False)
    assert alarm(landing) == ""


def test_g10_no_fence_is_permitted_while_a_person_has_to_say_how_to_go_on(landing: Landing) -> None:
    plane = landing.region.plane
    landing.land(1)
    plane.do(lambda tx: epochs.rewind(tx, 0, "a person"))
    plane.do(lambda tx: restored.notice(tx, "an older backup", by="test"))
    with pytest.raises(WentBack, match="older backup"):
        plane.do(lambda tx: permits.permit_fence(tx, "bronze", holder="host:1", token="t"))


def test_empty_checkpoints_do_not_wait_and_an_idle_region_has_no_late_table(landing: Landing, clock: Clock) -> None:
    landing.land(0, times=5)
    clock.now += 10 * lateness.LATE
    assert alarm(landing) == ""
    landing.land(1)
    clock.now += 10 * lateness.LATE
    landing.do(lambda tx: tx.set_region(phase=Phase.IDLE))
    assert alarm(landing) == ""


def test_x4_who_owes_a_fence_is_told_until_it_has_committed_it(landing: Landing, clock: Clock) -> None:
    def owes() -> list[bool]:
        return [lag.owes_fence for lag in landing.read(lateness.lags)]

    assert owes() == [False]
    landing.land(1)
    write(landing, 0)
    landing.do(lambda tx: epochs.rewind(tx, 0, "a person"))
    assert owes() == [True]
    clock.now += 999
    assert [lag.unfenced for lag in landing.read(lateness.lags)] == [0.0], "no reset waits for it"


def test_x4_a_region_that_waits_for_a_fence_is_an_alarm_also_where_no_cut_comes_by_time(
    landing: Landing, clock: Clock
) -> None:
    plane = landing.region.plane
    plane.do(lambda tx: tx.set_region(period=0.0))
    landing.land(1)
    write(landing, 0)
    landing.rewind(0)
    clock.now += lateness.LATE
    assert alarm(landing) == ""
    clock.now += 1
    assert alarm(landing) == (
        "table bronze has not followed the rewind for 121 s, and the region waits for it; nobody writes it"
    )
    permit = plane.do(lambda tx: permits.permit_fence(tx, "bronze", holder="host:1", token="t"))
    assert permit is not None and "host:1 writes it" in alarm(landing)
    plane.do(lambda tx: permits.finish_fence(tx, permit, version=""))
    assert alarm(landing) == ""


def write(landing: Landing, *bad: int) -> None:
    """A commit of what waits, with so many records of each checkpoint that could not be decoded."""
    plane = landing.region.plane
    permit = plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="x", token=f"{bad}"))
    assert permit is not None
    told = dict(zip(permit.plan.checkpoints, bad, strict=True))
    plane.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=9, bad=told))


def bad_in(landing: Landing) -> list[int]:
    return [lag.bad for lag in landing.read(lateness.lags)]


def test_what_could_not_be_decoded_is_counted_for_tables_with_a_shape(landing: Landing) -> None:
    plane = landing.region.plane
    told = {"table": "bronze", "bad": 3, "new": True}
    plane.do(lambda tx: events.log(tx, events.BAD, data=told))

    assert bad_in(landing) == [0], "a raw table decodes nothing"
    plane.do(lambda tx: tx.put(replace(tx.select(Table)[0], shape="decode:json")))
    assert bad_in(landing) == [3]


def test_what_left_a_table_by_key_with_its_fence_is_counted_once_it_comes_in_again(landing: Landing) -> None:
    """It goes back to a version that it had, further than the region does."""
    plane = landing.region.plane
    plane.do(lambda tx: tx.put(replace(tx.select(Table)[0], shape="decode:json")))

    landing.land(1, times=3)
    write(landing, 5, 0, 0)
    landing.rewind(2)
    fence = plane.do(lambda tx: permits.permit_fence(tx, "bronze", holder="x", token="f"))
    assert fence is not None and bad_in(landing) == [5]
    plane.do(lambda tx: permits.finish_fence(tx, fence, version="2", acknowledged=0))
    assert bad_in(landing) == [0]
    write(landing, 4, 0)
    assert bad_in(landing) == [4]


def test_of_a_commit_that_a_reset_cuts_in_two_no_record_is_counted_twice(landing: Landing) -> None:
    """What had left of it was counted beside what came in again."""
    plane = landing.region.plane
    plane.do(lambda tx: tx.put(replace(tx.select(Table)[0], shape="decode:json")))
    landing.land(9, times=3)
    write(landing, 1, 2, 3)
    assert bad_in(landing) == [6]
    landing.rewind(1)
    assert bad_in(landing) == [1]
    fence = plane.do(lambda tx: permits.permit_fence(tx, "bronze", holder="x", token="f"))
    assert fence is not None
    plane.do(lambda tx: permits.finish_fence(tx, fence, version="2"))
    landing.land(9)
    write(landing, 5)
    assert bad_in(landing) == [6]


def test_a_share_of_bad_records_among_the_latest_is_an_alarm_until_others_have_come(landing: Landing) -> None:
    plane = landing.region.plane
    plane.do(lambda tx: tx.put(replace(tx.select(Table)[0], shape="decode:json")))
    landing.land(1)
    write(landing, lateness.BAD_LEAST - 1)
    assert alarm(landing) == "", "few are nothing to look at, whatever their share"
    landing.land(1)
    write(landing, 1)
    assert alarm(landing).startswith("table bronze: 10 of its latest 28 records could not be decoded")
    for _ in range(lateness.RECENT):
        landing.land(1)
        write(landing, 0)
    assert alarm(landing) == "" and bad_in(landing) == [10]


def test_how_long_each_new_commit_waited_counts_from_the_merge_of_its_newest_checkpoint(
    landing: Landing, clock: Clock
) -> None:
    first = landing.read(lambda reader, row: lateness.landed(reader, row, None))
    assert dict(first.waited) == {"bronze": ()}, "nothing is new at the first look"
    landing.land(1)
    clock.now += 5
    landing.land(1)
    clock.now += 2
    permit = landing.do(lambda tx: permits.permit_commit(tx, "bronze", holder="host:1", token="t"))
    assert permit is not None
    landing.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=2))
    new = landing.read(lambda reader, row: lateness.landed(reader, row, first))
    assert (dict(new.waited), len(new.merged)) == ({"bronze": (2.0,)}, 2)
    assert dict(landing.read(lambda reader, row: lateness.landed(reader, row, new)).waited) == {"bronze": ()}
