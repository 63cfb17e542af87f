"""The sensor that has a region hosted: when its members are wanted and nobody runs them (SPEC A2)."""

from __future__ import annotations

import dataclasses

import dagster as dg
import pytest

from crkafka_core.plane import leases, life
from dagster_project.sensors import shared
from tests.dagster.conftest import Seat
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
