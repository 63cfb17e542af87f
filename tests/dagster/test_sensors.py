"""What sensors ask for, and when they don't (SPEC A2, G4, X4, X8)."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from pathlib import Path

import dagster as dg
import pytest

from crkafka_core.config import RegionConfig
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Member
from crkafka_core.plane import leases, regions, resets
from crkafka_core.plane import tables as plane_tables
from crkafka_core.testing.hand_member import HandMember
from dagster_project import consistent_region, opened
from dagster_project.sensors import asking, watch
from dagster_project.sensors.asking import attempt
from dagster_project.sensors.keep_up import RANGE_END, RANGE_START, TABLE
from tests.dagster.conftest import LandedSeat, Seat

pytestmark = pytest.mark.dagster

PERIODIC = [{"trigger": {"period": 1}}]
BRONZE = [[{"name": "bronze", "format": "parquet", "path": "tables/bronze"}]]


def test_an_attempt_counts_on_while_something_stays_due() -> None:
    assert [attempt(1000.0 + s, 1000.0) for s in (0, 59, 61, 121)] == [0, 0, 1, 2]


@pytest.mark.parametrize("keys", PERIODIC)
def test_a_due_cut_is_asked_for_once_and_its_run_is_void_when_it_is_past(seat: Seat, member: HandMember) -> None:
    time.sleep(1.1)
    (first,), (again,) = seat.tick("trigger").run_requests, seat.tick("trigger").run_requests
    assert first.run_key == again.run_key
    now = seat.region.status()
    assert first.run_key == f"orders:{now.uid[:8]}:cut:{now.epoch}:0:0"
    wanted = first.run_config["ops"]["open_cut"]["config"]
    assert (wanted["epoch"], wanted["head"], wanted["cause"]) == (now.epoch, 0, "every 1 s")
    assert seat.run("cut", {"open_cut": wanted}).success
    assert seat.region.status().head == 1
    assert seat.run("cut", {"open_cut": wanted}).success
    assert seat.region.status().head == 1


@pytest.mark.parametrize("keys", PERIODIC)
def test_the_trigger_waits_for_a_cut_to_fall_due(seat: Seat, member: HandMember) -> None:
    last = seat.region.status().last_cut_at
    while True:
        result = seat.tick("trigger")
        if result.run_requests:
            break
        assert "no cut is due" in result.skip_message
    late = seat.region.plane.read(lambda reader, _: reader.now()) - last - 1
    assert late < 1.0


@pytest.mark.parametrize("keys", PERIODIC)
def test_beside_a_running_driver_no_second_run_is_launched(seat: Seat, member: HandMember) -> None:
    seat.region.plane.do(lambda tx: leases.take(tx, "driver", holder="a run", token="x", length=60))
    time.sleep(1.1)
    assert seat.tick("trigger").skip_message == "a cut is due; a run drives one"


@pytest.mark.parametrize("keys", [{"trigger": {"tuples": 100}}])
def test_a_members_ask_ends_the_wait_at_once(seat: Seat, member: HandMember) -> None:
    from crkafka_core.plane import triggers

    def ask() -> None:
        time.sleep(0.2)
        now = seat.region.status()
        seat.region.plane.do(
            lambda tx: triggers.ask(
                tx, member=member.name, incarnation=member.incarnation, epoch=now.epoch, head=now.head
            )
        )

    asking = threading.Thread(target=ask)
    asking.start()
    result = seat.tick("trigger")
    asking.join()
    (request,) = result.run_requests
    assert request.run_config["ops"]["open_cut"]["config"]["cause"] == "asked by orders/0"


@pytest.mark.parametrize(
    "keys", [{"kafka": {"bootstrap.servers": "localhost:1", "group.id": "orders", "session.timeout.ms": 1000}}]
)
def test_a_member_whose_lease_stands_still_is_declared_lost(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    seat.region.start(by="test")
    member = HandMember(seat.config, seat.region.plane)
    member.start()
    seat.region.await_running(timeout=20)
    opened.forget("losses", seat.region.status().uid)
    assert "1 members" in seat.tick("watch").skip_message
    member.end(leave=False)
    seat.tick("watch")
    end = time.monotonic() + 10
    while "orders/0 is lost" not in (said := seat.tick("watch").skip_message):
        assert time.monotonic() < end, said
        time.sleep(0.2)
    row = seat.region.plane.read(lambda reader, _: reader.get(Member, "orders", "orders/0"))
    assert row is not None and row.status == "LOST"
    assert seat.region.status().phase is Phase.RESETTING


def test_a_cut_whose_run_died_is_finished_by_the_watching_sensor(seat: Seat, member: HandMember) -> None:
    member.contributes.clear()
    opened_cut = seat.region.open_cut(token="dead", cause="of a run that died")

    def past(tx) -> None:  # type: ignore[no-untyped-def]
        from crkafka_core.model.rows import Checkpoint

        row = tx.get(Checkpoint, "orders", opened_cut.id)
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
    """SPEC X4: a slow table costs one run, not one each minute; what died with nobody to tell is replaced."""
    for _ in range(3):
        landed.landing.land(1)
    landed.landing.rewind(1)
    job = landed.defs.resolve_job_def("orders_reset_region")
    landed.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    assert not landed.tick("watch").run_requests
    monkeypatch.setattr(asking, "BEGINS", 0.0)
    assert landed.tick("watch").run_requests
    permit = landed.region.plane.do(lambda tx: plane_tables.permit_fence(tx, "bronze", holder="a run", token="t"))
    assert permit is not None
    assert "a run lets a table follow the rewind" in landed.tick("watch").skip_message


@pytest.mark.parametrize("tables", BRONZE)
def test_a_rewind_launches_a_run_that_lets_tables_follow(landed: LandedSeat) -> None:
    for _ in range(3):
        landed.landing.land(1)
    landed.landing.rewind(1)
    (request,) = landed.tick("watch").run_requests
    assert request.job_name == "orders_reset_region"
    assert request.run_config["ops"]["reset"]["config"]["follow"] is True


def test_a_stopped_region_alarms_once_and_its_check_fails(landed: LandedSeat) -> None:
    landed.region.plane.do(lambda tx: resets.stop(tx, "5 resets in a row", member="orders/1"))
    (request,), (again,) = landed.tick("watch").run_requests, landed.tick("watch").run_requests
    assert request.job_name == "orders_stopped_alarm" and request.run_key == again.run_key
    failed = landed.run("stopped_alarm", raise_on_error=False)
    said = next(e for e in failed.all_events if e.is_step_failure).event_specific_data.user_failure_data.description
    assert "is stopped: 5 resets in a row. Most often by orders/1." in said
    outcome = {e.check_name: e for e in landed.tick("observe").asset_events if isinstance(e, dg.AssetCheckEvaluation)}
    assert not outcome["region_runs"].passed and "5 resets in a row" in outcome["region_runs"].description
    assert outcome["group_settles"].passed and outcome["retirement_is_free"].passed
    assert landed.run("start_region").success
    assert landed.region.status().phase is not Phase.STOPPED


def test_the_group_is_observed_when_something_changed(seat: Seat, member: HandMember) -> None:
    first = seat.tick("observe")
    values = {k: v.value for k, v in first.asset_events[0].metadata.items()}
    assert (values["phase"], values["members"], values["lag"]) == ("RUNNING", 1, 7)
    assert seat.tick("observe", cursor=first.cursor).skip_message == "RUNNING: nothing new"
    assert seat.tick("observe", cursor="not what we wrote").asset_events
    seat.region.cut()
    assert {k: v.value for k, v in seat.tick("observe", cursor=first.cursor).asset_events[0].metadata.items()}[
        "head"
    ] == 1


@pytest.mark.parametrize("tables", BRONZE)
def test_retirement_that_is_held_for_too_long_is_told(landed: LandedSeat) -> None:
    for _ in range(3):
        landed.landing.land(1)
    landed.region.plane.do(lambda tx: tx.set_region(limits_json=json.dumps({"retain": 1, "hold_max": 0.01})))
    time.sleep(0.05)
    outcome = {e.check_name: e for e in landed.tick("observe").asset_events if isinstance(e, dg.AssetCheckEvaluation)}
    assert "table bronze has acknowledged 0" in outcome["retirement_is_free"].description


@pytest.mark.parametrize("tables", BRONZE)
def test_a_table_gets_one_run_for_all_that_waits(landed: LandedSeat) -> None:
    for _ in range(3):
        landed.landing.land(1)
    assert "checkpoint 1 is not published yet" in landed.tick("tables").skip_message
    landed.publish()
    (request,) = landed.tick("tables").run_requests
    assert (request.tags[RANGE_START], request.tags[RANGE_END]) == ("000000000001", "000000000003")
    assert request.asset_selection == [landed.names.table("bronze")]
    run = landed.instance.create_run_for_job(
        landed.defs.resolve_job_def("orders_cut"), tags={TABLE: "orders/bronze"}, status=dg.DagsterRunStatus.STARTED
    )
    assert landed.tick("tables").skip_message == "bronze: a run is on its way"
    landed.instance.delete_run(run.run_id)
    permit = landed.region.plane.do(lambda tx: plane_tables.permit_commit(tx, "bronze", holder="a run", token="t"))
    assert permit is not None and landed.tick("tables").skip_message == "bronze: a run writes it"
    landed.landing.rewind(1)
    assert landed.tick("tables").skip_message == "every table has all checkpoints"


@pytest.mark.parametrize("tables", BRONZE)
def test_a_table_that_has_everything_gets_no_run(landed: LandedSeat) -> None:
    landed.landing.land(1)
    landed.publish()
    permit = landed.region.plane.do(lambda tx: plane_tables.permit_commit(tx, "bronze", holder="h", token="t"))
    assert permit is not None
    landed.region.plane.do(lambda tx: plane_tables.finish_commit(tx, permit, version="1", rows=2))
    assert landed.tick("tables").skip_message == "every table has all checkpoints"


def test_a_region_that_is_wanted_and_hosted_by_nobody_gets_a_host(seat: Seat) -> None:
    assert seat.tick("host").skip_message == "IDLE: nothing to host"
    seat.region.start(by="test")
    seat.region.plane.do(lambda tx: tx.set_region(phase_since=tx.now() - 30))
    (request,) = seat.tick("host").run_requests
    assert request.run_config == {"ops": {"host": {"config": {"start": False}}}}
    run = seat.instance.create_run_for_job(
        seat.defs.resolve_job_def("orders_host_members"), status=dg.DagsterRunStatus.STARTED
    )
    assert "is on its way" in seat.tick("host").skip_message
    seat.instance.delete_run(run.run_id)
    seat.region.plane.do(lambda tx: regions.stop(tx, token="t", by="test"))
    assert seat.tick("host").skip_message == "IDLE: nothing to host"


def test_a_host_that_died_with_nobody_to_tell_is_replaced(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC A2: its run is *started* for ever in Dagster; its lease in SQL says that it is gone."""
    seat.region.start(by="test")
    seat.region.plane.do(lambda tx: tx.set_region(phase_since=tx.now() - 30, members_wanted=2))
    job = seat.defs.resolve_job_def("orders_host_members")
    seat.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    lease = seat.region.plane.do(lambda tx: leases.take(tx, "host", holder="a run", token="t", length=60))
    monkeypatch.setattr(asking, "BEGINS", 0.0)
    assert seat.tick("host").skip_message == "BIRTH: hosted"
    seat.region.plane.do(lambda tx: tx.put(dataclasses.replace(lease, until=tx.now() - 1)))
    with HandMember(seat.config, seat.region.plane):  # one of two is left, and nobody would start it again
        assert seat.tick("host").run_requests
        seat.region.plane.do(lambda tx: leases.release(tx, lease))
        assert seat.tick("host").skip_message == "BIRTH: hosted"
    monkeypatch.undo()
    assert "is on its way" in seat.tick("host").skip_message


def test_a_control_plane_without_tables_is_named_with_the_command_and_made_by_start(seat: Seat, tmp_path: Path) -> None:
    """SPEC A2, G9: sensors tell; what starts a region makes what is missing."""
    url = f"sqlite:///{tmp_path}/new/crkafka.db"
    config = RegionConfig.from_json(json.dumps({**json.loads(seat.config.to_json()), "control_plane": url}))
    other = Seat(config, consistent_region(config, linger=0.1), seat.instance, seat.region)
    for sensor in ("trigger", "watch", "publish", "observe", "host"):
        assert "There is no control plane" in (said := other.tick(sensor).skip_message) and "crkafka init" in said
    refused = other.run("cut", raise_on_error=False)
    said = next(e for e in refused.all_events if e.is_step_failure).event_specific_data.user_failure_data.description
    assert "Run `crkafka init`, or the job start_region." in said
    assert other.run("start_region").success
    assert other.tick("watch").skip_message == "BIRTH, epoch 2, 0 members"


def test_sensors_never_read_kafka(landed: LandedSeat) -> None:
    """The broker of these tests does not exist; a sensor that asked it would hang or fail."""
    landed.landing.land(1)
    for sensor in ("trigger", "watch", "publish", "observe", "host"):
        began = time.monotonic()
        landed.tick(sensor)
        assert time.monotonic() - began < 5
    assert watch.BY
