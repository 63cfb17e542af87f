"""The sensor that watches a region: members that are lost, cuts whose run died, rewinds that tables follow, alarms (SPEC A2, G4, X4)."""

from __future__ import annotations

import dataclasses
import itertools
from types import SimpleNamespace

import dagster as dg
import pytest

from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, Member
from crkafka_core.plane import epochs, leases, permits, tables
from dagster_project import consistent_region
from dagster_project.names import FOLLOWS
from dagster_project.sensors import shared, watch
from tests.dagster.conftest import LandedSeat, Seat, failure
from tests.plane.bronze import allowed
from tests.rigs.hand_member import HandMember
from tests.rigs.until import until

pytestmark = pytest.mark.dagster

BRONZE = [[{"name": "bronze", "format": "delta", "path": "lake.shop.bronze"}]]


@pytest.mark.parametrize(
    "keys", [{"kafka": {"bootstrap.servers": "localhost:1", "group.id": "orders", "session.timeout.ms": 1000}}]
)
def test_a_member_whose_lease_stands_still_is_declared_lost(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    seat.region.start(by="test")
    member = HandMember(seat.config, seat.region.plane)
    member.start()
    seat.region.await_running(timeout=20)
    monkeypatch.setattr(watch, "LOOP_S", 1)
    assert "1 member" in seat.tick("watch").skip_message
    member.end(leave=False)
    seat.tick("watch")
    until(lambda: "orders/0 is lost" in seat.tick("watch").skip_message)
    row = seat.region.plane.read(lambda reader, _: reader.get(Member, "orders/0"))
    assert row is not None and row.status == "LOST"
    assert seat.region.status().region.phase is Phase.RESETTING


def test_a_lost_member_is_seen_by_a_sensor_with_a_long_pace_too(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two looks further apart than half a lease say nothing about a counter that stands still: the sensor looks for longer."""
    slow = dataclasses.replace(seat, defs=consistent_region(seat.config, pace=30))
    seat.region.start(by="test")
    member = HandMember(seat.config, seat.region.plane)
    member.start()
    seat.region.await_running(timeout=20)
    member.end(leave=False)
    clock = itertools.count(0.0, 31.0)
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    said = [slow.tick("watch").skip_message for _ in range(6)]
    assert ["orders/0 is lost" in each for each in said].index(True) == 3, said


def test_a_cut_whose_run_died_is_finished_by_the_watching_sensor(seat: Seat, member: HandMember) -> None:
    member.contributes.clear()
    opened_cut = seat.region.open_cut(token="dead", cause="of a run that died")

    def past(tx) -> None:  # type: ignore[no-untyped-def]

        row = tx.get(Checkpoint, opened_cut.id)
        tx.put(dataclasses.replace(row, deadline=tx.now() - 1))

    seat.region.plane.do(past)
    seat.tick("watch")
    member.contributes.set()
    assert seat.region.status().open_cut is None
    seat.region.await_running(timeout=20)


@pytest.mark.parametrize("tables", BRONZE)
def test_beside_a_fence_that_is_being_made_no_run_is_launched(
    landed: LandedSeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC X4: a slow table costs one run, not one each minute; a run whose process died with its machine is replaced."""
    landed.landing.land(1, times=3)
    allowed(landed.landing)
    landed.landing.rewind(1)
    job = landed.defs.resolve_job_def("orders_reset_region")
    landed.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, tags=dict(job.tags))
    assert not landed.tick("watch").run_requests
    monkeypatch.setattr(shared, "BEGIN_WINDOW_S", 0.0)
    assert landed.tick("watch").run_requests
    permit = landed.region.plane.do(lambda tx: permits.permit_fence(tx, "bronze", holder="a run", token="t"))
    assert permit is not None
    assert "a run rewinds a table" in landed.tick("watch").skip_message


@pytest.mark.parametrize("tables", [[{"name": "bronze", "format": "delta", "path": "tables/bronze"}]])
def test_a_table_that_was_declared_again_gets_its_fence_where_no_host_feeds_it(landed: LandedSeat) -> None:
    """Until then nothing is written to any table of the region, and no rewind was there that would have asked for it."""
    landed.landing.land(1)
    do = landed.region.plane.do
    permit = do(lambda tx: permits.permit_commit(tx, "bronze", holder="a run", token="t"))
    assert permit is not None
    do(lambda tx: permits.fail_commit(tx, permit, "ended"))
    table = permit.table
    do(lambda tx: tables.undeclare(tx, "bronze"))
    do(lambda tx: tables.declare(tx, "bronze", table.format, table.path))
    do(lambda tx: tx.set_region(phase=Phase.RUNNING))
    (request,) = landed.tick("watch").run_requests
    assert request.job_name == "orders_reset_region" and FOLLOWS in request.tags
    do(lambda tx: leases.take(tx, tables.FEEDER, holder="a host", token="h", length=60.0))
    assert not landed.tick("watch").run_requests, "it does it by itself"


def test_a_stopped_region_alarms_once_and_its_check_fails(landed: LandedSeat) -> None:
    landed.region.plane.do(lambda tx: epochs.halt(tx, "5 resets in a row", member="orders/1"))
    (request,), (again,) = landed.tick("watch").run_requests, landed.tick("watch").run_requests
    assert request.job_name == "orders_stopped_alarm" and request.run_key == again.run_key
    said = failure(landed.run("stopped_alarm", raise_on_error=False))
    assert "is stopped: 5 resets in a row. Most often by orders/1." in said
    outcome = {e.check_name: e for e in landed.tick("observe").asset_events if isinstance(e, dg.AssetCheckEvaluation)}
    assert not outcome["region_runs"].passed and "5 resets in a row" in outcome["region_runs"].description
    assert outcome["group_settles"].passed and outcome["retirement_is_free"].passed
    assert landed.run("start_region").success
    assert landed.region.status().region.phase is not Phase.STOPPED
