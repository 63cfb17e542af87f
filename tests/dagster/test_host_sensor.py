"""The sensors that have a region hosted, and its data checked: when that is wanted, and nobody does it (SPEC A2)."""

from __future__ import annotations

import dataclasses

import dagster as dg
import pytest

from crkafka_core.plane import leases, life
from dagster_project.sensors import check, shared
from tests.dagster.conftest import LandedSeat, Seat
from tests.rigs.hand_member import HandMember

pytestmark = pytest.mark.dagster


def test_a_region_that_is_wanted_and_hosted_by_nobody_gets_a_host(seat: Seat) -> None:
    assert seat.tick("host").skip_message == "IDLE: nothing to do"
    seat.region.start(by="test")
    seat.region.plane.do(lambda tx: tx.set_region(phase_since=tx.now() - 30))
    (request,) = seat.tick("host").run_requests
    assert request.run_config == {"ops": {"host": {"config": {"start": False}}}}
    job = seat.defs.resolve_job_def("orders_host_members")
    run = seat.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, tags=dict(job.tags))
    assert "a run is on its way" in seat.tick("host").skip_message
    seat.instance.delete_run(run.run_id)
    seat.region.plane.do(lambda tx: life.stop(tx, token="t", by="test"))
    assert seat.tick("host").skip_message == "IDLE: nothing to do"


def test_a_host_that_died_with_nobody_to_tell_is_replaced(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC A2: its run is *started* for ever in Dagster; its lease in SQL says that it is gone."""
    seat.region.start(by="test")
    seat.region.plane.do(lambda tx: tx.set_region(phase_since=tx.now() - 30, members_wanted=2))
    job = seat.defs.resolve_job_def("orders_host_members")
    seat.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, tags=dict(job.tags))
    lease = seat.region.plane.do(lambda tx: leases.take(tx, "host", holder="a run", token="t", length=60))
    monkeypatch.setattr(shared, "BEGIN_WINDOW_S", 0.0)
    assert seat.tick("host").skip_message == "BIRTH: the members have a host"
    seat.region.plane.do(lambda tx: tx.put(dataclasses.replace(lease, until=tx.now() - 6)))
    with HandMember(seat.config, seat.region.plane):  # one of two is left, and nobody would start it again
        assert seat.tick("host").run_requests
        seat.region.plane.do(lambda tx: tx.set_region(members_wanted=1))
        seat.region.await_running(timeout=20)
        seat.region.plane.do(lambda tx: tx.set_region(phase_since=tx.now() - 30))
        assert seat.tick("host").run_requests  # as many as are wanted, but orphans: nobody starts them again
        seat.region.plane.do(lambda tx: leases.release(tx, lease))
        assert seat.tick("host").skip_message.endswith(": the members have a host")
    monkeypatch.undo()
    seat.region.plane.do(lambda tx: tx.set_region(phase_since=tx.now() - 30))  # what the member filled was handed over
    assert "a run is on its way" in seat.tick("host").skip_message


BRONZE = [[{"name": "bronze", "format": "delta", "path": "lake.shop.bronze"}]]


def before(cursor: str | None, seconds: float) -> str:
    """The cursor of a sensor that remembers the same from so much earlier."""
    asked = check.CheckCursor.parse(cursor)
    return str(dataclasses.replace(asked, at=asked.at - seconds))


def test_checks_of_the_data_run_by_themselves_when_there_is_something_new(landed: LandedSeat) -> None:
    assert landed.tick("check").skip_message == "there is no checkpoint yet"
    landed.landing.land(1)
    seen = landed.tick("check")
    first = landed.tick("check", cursor=before(seen.cursor, 3_601))
    assert len(first.run_requests) == 1
    assert landed.tick("check", cursor=first.cursor).skip_message == "nothing new since checkpoint 1"
    landed.landing.land(1)
    assert "next run in 60 min" in landed.tick("check", cursor=first.cursor).skip_message
    assert landed.tick("check", cursor=before(first.cursor, 3_601)).run_requests


@pytest.mark.parametrize("tables", BRONZE)
def test_the_first_check_of_the_data_does_not_come_while_the_region_only_starts(landed: LandedSeat) -> None:
    """It opens a Spark session of its own, beside the one that hosts."""
    landed.landing.land(1)
    seen = landed.tick("check")
    assert (seen.run_requests, seen.skip_message) == ([], "first run in 60 min")
    landed.landing.land(1)
    later = landed.tick("check", cursor=before(seen.cursor, 600))
    assert not later.run_requests and "first run in 50 min" in later.skip_message
    assert landed.tick("check", cursor=before(seen.cursor, 3_601)).run_requests
    another = dataclasses.replace(
        check.CheckCursor.parse(before(seen.cursor, 3_601)), uid="of a region before this one"
    )
    assert not landed.tick("check", cursor=str(another)).run_requests


@pytest.mark.parametrize("tables", BRONZE)
def test_a_table_that_others_can_write_is_looked_at_daily_also_when_nothing_is_new(landed: LandedSeat) -> None:
    landed.landing.land(1)
    seen = landed.tick("check").cursor
    asked = landed.tick("check", cursor=before(seen, 3_601)).cursor
    assert "next run in 24 h" in landed.tick("check", cursor=asked).skip_message
    assert landed.tick("check", cursor=before(asked, check.DAILY + 1)).run_requests
