"""What sensors ask for, and when they don't (SPEC A2, G4, X4, X8)."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import socket
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from confluent_kafka.admin import AdminClient
from dagster._core.storage.runs.schema import RunsTable

from checkpoints_db import initialise
from crkafka_core.config import RegionConfig
from crkafka_core.control import Tx
from crkafka_core.model.errors import ServiceUnavailable
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Member, Table, TableCommit
from crkafka_core.plane import checkpoints, halting, lateness, leases, life, permits, triggers
from crkafka_core.plane.tables import SPARK_FEEDER
from crkafka_core.region import Region
from crkafka_core.region.feeder import Feeder
from crkafka_core.region.host import LEASE
from crkafka_core.region.lease import DriverLease
from crkafka_core.testing.hand_member import HandMember
from dagster_project import RegionResource, consistent_region
from dagster_project.counted import UNKNOWN, count
from dagster_project.launch_ahead import AHEAD
from dagster_project.metadata import ROWS
from dagster_project.names import ASKED_AT, FOLLOWS, KEEPING_UP, key_of
from dagster_project.sensors import check, keep_up, observe, shared, watch
from dagster_project.sensors.keep_up import RANGE_END, RANGE_START
from dagster_project.sensors.shared import attempt
from dagster_project.sensors.trigger import next_cut
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
    now = seat.region.status().region
    assert first.run_key == f"orders:{now.uid[:8]}:cut:{now.epoch}:1:0"
    assert first.run_config == {"ops": {"open_cut": {"config": {"cause": "every 1 s"}}}}
    assert first.tags[ASKED_AT] == f"{now.epoch}/0/1"
    assert seat.launch("cut", first).success
    assert seat.region.status().region.head == 1
    assert seat.launch("cut", first).success
    assert seat.region.status().region.head == 1
    member.rows = 0
    time.sleep(1.1)
    (due,) = seat.tick("trigger").run_requests
    assert due.run_key == f"orders:{now.uid[:8]}:cut:{now.epoch}:2:0"
    assert seat.launch("cut", due).success
    for number in (
        3,
        4,
    ):  # nothing is new: the head stays, no run is launched, and the next one is asked for all the same
        time.sleep(1.1)
        assert f"cut {number} is opened without a run" in seat.tick("trigger").skip_message
        seat.region.await_merged(number)
        assert seat.region.status().region.head == 1


@pytest.mark.parametrize("keys", PERIODIC)
def test_the_trigger_waits_for_a_cut_to_fall_due(seat: Seat, member: HandMember) -> None:
    last = seat.region.status().region.last_cut_at
    while True:
        result = seat.tick("trigger")
        if result.run_requests:
            break
        assert "no cut is due" in result.skip_message
    late = seat.region.plane.read(lambda reader, _: reader.now()) - last - 1
    assert late < 3.0, "it is seen while the tick lingers, and not when it ends"


@pytest.mark.parametrize("keys", [{"trigger": {"period": 3}}])
def test_a_run_is_launched_ahead_and_opens_its_cut_when_it_is_due(seat: Seat, member: HandMember) -> None:
    """What Dagster takes until the first op is no part of the period."""

    def now() -> tuple[float, float]:
        """When the cut is due, and when its run is launched."""
        due = seat.region.plane.read(lambda reader, row: next_cut(reader, row, period=3.0, counted=False))
        at = triggers.due_at(due.region, period=3.0, counted=False)
        assert at is not None
        return at, due.now + due.after

    due, launched = now()
    assert launched == pytest.approx(due - AHEAD)
    while not (asked := seat.tick("trigger").run_requests):
        assert now()[0] == due
    assert seat.launch("cut", asked[0]).success
    (made,) = seat.region.checkpoints()
    assert made.opened_at >= due


@pytest.mark.parametrize("keys", [{"trigger": {"period": 3}}])
def test_a_run_that_comes_after_a_cut_that_found_nothing_opens_none(seat: Seat, member: HandMember) -> None:
    """The head stayed, and the period began anew."""
    while not (asked := seat.tick("trigger").run_requests):
        pass
    assert seat.launch("cut", asked[0]).success
    member.rows = 0
    while not (asked := seat.tick("trigger").run_requests):
        pass
    seat.region.cut(cause="beside it", if_new=True)
    before = seat.region.status().region
    assert seat.launch("cut", asked[0]).success
    assert seat.region.status().region.next_checkpoint == before.next_checkpoint


@pytest.mark.parametrize("keys", PERIODIC)
def test_beside_a_running_driver_no_second_run_is_launched(seat: Seat, member: HandMember) -> None:
    seat.region.plane.do(lambda tx: leases.take(tx, "driver", holder="a run", token="x", length=60))
    time.sleep(1.1)
    assert seat.tick("trigger").skip_message == "a cut is due; a run drives one"


@pytest.mark.parametrize("keys", PERIODIC)
def test_while_a_run_is_on_its_way_no_other_is_launched(seat: Seat, member: HandMember) -> None:
    """On a busy machine cuts would queue up, and a person's reset behind them."""
    time.sleep(1.1)
    job = seat.defs.resolve_job_def("orders_cut")
    for status in (dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING):
        run = seat.instance.create_run_for_job(job, status=status, tags=dict(job.tags))
        assert seat.tick("trigger").skip_message == "a cut is due; a run is on its way"
        seat.instance.delete_run(run.run_id)
    assert seat.tick("trigger").run_requests


@pytest.mark.parametrize("keys", PERIODIC)
def test_a_quiet_topic_costs_no_runs_and_its_first_record_is_cut_in_time(seat: Seat, member: HandMember) -> None:
    member.rows = 0
    assert seat.run("cut").success

    def cut_in_a_tick() -> Checkpoint:
        before = seat.region.status().region.last_cut_at
        end = time.monotonic() + 20
        while seat.region.status().region.last_cut_at == before:
            result = seat.tick("trigger")
            assert not result.run_requests and time.monotonic() < end, result.skip_message
            while seat.region.plane.read(lambda _, row: row.open_cut):  # else the next tick sees one more fall due
                assert time.monotonic() < end
                time.sleep(0.02)
        return seat.region.plane.read(
            lambda r, row: r.select(Checkpoint, ("id", "<", row.next_checkpoint), order=("id",), desc=True, limit=1)
        )[0]

    assert cut_in_a_tick().status is CheckpointStatus.EMPTY
    assert seat.region.status().region.head == 1
    member.rows = 20
    assert (full := cut_in_a_tick()).rows == 40 and full.cause == "every 1 s"
    end = time.monotonic() + 20
    while not seat.tick("trigger").run_requests:
        assert time.monotonic() < end


@pytest.mark.parametrize("keys", [{"trigger": {"period": 60}}])
def test_a_tick_waits_only_where_sensors_have_threads(seat: Seat, member: HandMember) -> None:
    began = time.monotonic()
    seat.tick("trigger")
    assert time.monotonic() - began >= 0.5
    with (
        dg.instance_for_test(overrides={"sensors": {"use_threads": False}}) as stock,
        shared.lingering(threads_of(stock), 4.5) as seconds,
    ):
        assert seconds == 0.0


def threads_of(instance: dg.DagsterInstance) -> int:
    return shared.threads_of(dg.build_sensor_context(instance_ref=instance.get_ref()))


@pytest.mark.parametrize("tables", [[{"name": "bronze", "format": "delta", "path": "tables/bronze"}]])
@pytest.mark.parametrize("keys", [{"trigger": {"manual": True}}])
def test_a_quiet_tick_does_not_open_dagsters_instance(landed: LandedSeat, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would cost ten times the rest: Dagster opens its storage, and compares all its migrations, for each tick that asks for it."""
    feeder = Feeder(landed.region)
    feeder.turn(0.0)
    landed.landing.land(1)
    feeder.turn(0.0)
    landed.publish()
    cursors = {"publish": landed.cursor}
    for sensor in ("trigger", "watch", "observe", "host", "tables", "check"):
        cursors[sensor] = landed.tick(sensor).cursor
    opened_by: list[str] = []
    kept = dg.DagsterInstance.from_ref

    def counted(ref: Any) -> dg.DagsterInstance:
        opened_by.append(sensor)
        return kept(ref)

    monkeypatch.setattr(dg.DagsterInstance, "from_ref", counted)
    for sensor, cursor in cursors.items():
        landed.tick(sensor, cursor=cursor)
    assert opened_by == []


def test_triggers_linger_on_a_quarter_of_the_threads_at_most() -> None:
    """Other sensors of the instance are evaluated on the rest."""
    with dg.instance_for_test(overrides={"sensors": {"use_threads": True, "num_workers": 8}}) as instance:
        with (
            shared.lingering(threads_of(instance), 4.5) as first,
            shared.lingering(threads_of(instance), 4.5) as second,
        ):
            with shared.lingering(threads_of(instance), 4.5) as third:
                assert (first, second, third) == (4.5, 4.5, 0.0)
            with shared.lingering(threads_of(instance), 4.5) as fourth:
                assert fourth == 0.0
        with shared.lingering(threads_of(instance), 4.5) as fifth:
            assert fifth == 4.5


@pytest.mark.parametrize("keys", [{"trigger": {"tuples": 100}}])
def test_a_members_ask_ends_the_wait_at_once(seat: Seat, member: HandMember) -> None:
    def ask() -> None:
        time.sleep(0.2)
        now = seat.region.status().region
        seat.region.plane.do(
            lambda tx: triggers.ask(
                tx, member=member.name, incarnation=member.incarnation, epoch=now.epoch, head=now.head
            )
        )

    patient = Seat(seat.config, consistent_region(seat.config, linger=30.0), seat.instance, seat.region)
    asking = threading.Thread(target=ask)
    asking.start()
    began = time.monotonic()
    result = patient.tick("trigger")
    asking.join()
    assert time.monotonic() - began < 15, "at once, and not when the tick ends"
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
    monkeypatch.setattr(watch, "LOOP_S", 1)
    assert "1 member" in seat.tick("watch").skip_message
    member.end(leave=False)
    seat.tick("watch")
    end = time.monotonic() + 60
    while "orders/0 is lost" not in (said := seat.tick("watch").skip_message):
        assert time.monotonic() < end, said
        time.sleep(0.2)
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
        from crkafka_core.model.rows import Checkpoint

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
    """SPEC X4: a slow table costs one run, not one each minute; what died with nobody to tell is replaced."""
    for _ in range(3):
        landed.landing.land(1)
    landed.landing.rewind(1)
    job = landed.defs.resolve_job_def("orders_reset_region")
    landed.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, tags=dict(job.tags))
    assert not landed.tick("watch").run_requests
    monkeypatch.setattr(shared, "BEGIN_WINDOW_S", 0.0)
    assert landed.tick("watch").run_requests
    permit = landed.region.plane.do(lambda tx: permits.permit_fence(tx, "bronze", holder="a run", token="t"))
    assert permit is not None
    assert "a run lets a table follow the rewind" in landed.tick("watch").skip_message


@pytest.mark.parametrize("tables", BRONZE)
def test_a_rewind_launches_a_run_that_lets_tables_follow(landed: LandedSeat) -> None:
    for _ in range(3):
        landed.landing.land(1)
    landed.landing.rewind(1)
    (request,) = landed.tick("watch").run_requests
    assert request.job_name == "orders_reset_region"
    assert FOLLOWS in request.tags and request.run_config["ops"]["reset"]["config"].keys() == {"cause"}


def test_a_stopped_region_alarms_once_and_its_check_fails(landed: LandedSeat) -> None:
    landed.region.plane.do(lambda tx: halting.halt(tx, "5 resets in a row", member="orders/1"))
    (request,), (again,) = landed.tick("watch").run_requests, landed.tick("watch").run_requests
    assert request.job_name == "orders_stopped_alarm" and request.run_key == again.run_key
    failed = landed.run("stopped_alarm", raise_on_error=False)
    said = next(e for e in failed.all_events if e.is_step_failure).event_specific_data.user_failure_data.description
    assert "is stopped: 5 resets in a row. Most often by orders/1." in said
    outcome = {e.check_name: e for e in landed.tick("observe").asset_events if isinstance(e, dg.AssetCheckEvaluation)}
    assert not outcome["region_runs"].passed and "5 resets in a row" in outcome["region_runs"].description
    assert outcome["group_settles"].passed and outcome["retirement_is_free"].passed
    assert landed.run("start_region").success
    assert landed.region.status().region.phase is not Phase.STOPPED


def test_the_group_is_observed_when_something_changed(seat: Seat, member: HandMember) -> None:
    first = seat.tick("observe")
    values = {k: v.value for k, v in first.asset_events[0].metadata.items()}
    assert (values["phase"], values["members"], values["lag"]) == ("RUNNING", 1, 7)
    assert seat.tick("observe", cursor=first.cursor).skip_message == "RUNNING: nothing new"
    assert seat.tick("observe", cursor="not what we wrote").asset_events
    for at in (0.0, time.time() + 86_400):  # long ago, and before the database's clock stepped back
        later = dataclasses.replace(observe.ObserveCursor.parse(first.cursor), observed=at)
        again = seat.tick("observe", cursor=str(later))
        assert [type(e) for e in again.asset_events] == [
            dg.AssetObservation
        ]  # unchanged checks are evaluated every ten minutes
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


def outcomes(seat: Seat) -> dict[str, dg.AssetCheckEvaluation]:
    return {e.check_name: e for e in seat.tick("observe").asset_events if isinstance(e, dg.AssetCheckEvaluation)}


@pytest.mark.parametrize("tables", BRONZE)
def test_a_table_that_has_everything_keeps_up_however_quiet_the_topic_is(landed: LandedSeat) -> None:
    """SPEC A4, T1: late is what waits, not what never came."""
    assert outcomes(landed)["keeps_up"].passed
    landed.landing.land(1)
    landed.landing.land(1)
    old = landed.region.plane.read(lambda r, _: r.get(Checkpoint, 1))
    assert old is not None
    landed.region.plane.do(lambda tx: tx.put(dataclasses.replace(old, merged_at=tx.now() - 4_000)))
    late = outcomes(landed)["keeps_up"]
    assert not late.passed and "2 checkpoints wait for table bronze, the first for 400" in (late.description or "")
    permit = landed.region.plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="h", token="t"))
    assert permit is not None
    landed.region.plane.do(lambda tx: permits.finish_commit(tx, permit, version="7", rows=2))
    assert outcomes(landed)["keeps_up"].passed
    shown = next(e for e in landed.tick("observe").asset_events if e.asset_key == landed.names.table("bronze"))
    values = {k: v.value for k, v in shown.metadata.items()}
    assert (values["acknowledged"], values["checkpoints_behind"], values["version"]) == (2, 0, "7")


@pytest.mark.parametrize("tables", BRONZE)
def test_a_table_whose_commits_fail_or_that_owes_a_fence_does_not_keep_up_however_little_waits(
    landed: LandedSeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the region's alarm says it, long before `fresh` has passed."""
    plane = landed.region.plane
    landed.landing.land(1)
    permit = plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="h", token="t"))
    assert permit is not None
    plane.do(lambda tx: permits.fail_commit(tx, permit, "its folder is gone"))
    assert outcomes(landed)["keeps_up"].passed
    monkeypatch.setattr(lateness, "SOON", 0.0)
    why = outcomes(landed)["keeps_up"]
    assert not why.passed and "its commits have failed for" in (why.description or "")
    landed.landing.rewind(0)
    assert "has not followed the rewind for" in (outcomes(landed)["keeps_up"].description or "")


@pytest.mark.parametrize("tables", BRONZE)
def test_the_rows_of_a_table_are_counted_on_from_the_last_look_and_anew_after_a_rewind(
    landed: LandedSeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    kept = checkpoints.rows_of
    monkeypatch.setattr(checkpoints, "rows_of", lambda reader, ids: asked.append(len(ids)) or kept(reader, ids))
    known = None

    def total() -> int:
        nonlocal known
        known = landed.region.plane.read(lambda r, _: count(r, r.get(Table, "bronze"), known))
        return known[2]

    def write() -> None:
        permit = landed.region.plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="h", token="t"))
        assert permit is not None
        landed.region.plane.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=0))

    def anew() -> int:
        return landed.region.plane.read(lambda r, _: count(r, r.get(Table, "bronze"), None))[2]

    for rows, expected, looked_at in ((10, 20, 1), (20, 60, 1), (0, 60, 0), (30, 120, 1)):
        landed.landing.land(rows)
        write()
        asked.clear()
        assert (total(), asked) == (expected, [looked_at])
    landed.landing.rewind(2)
    fence = landed.region.plane.do(lambda tx: permits.permit_fence(tx, "bronze", holder="h", token="f"))
    assert fence is not None
    landed.region.plane.do(lambda tx: permits.finish_fence(tx, fence, version="2"))
    assert total() == 60
    landed.landing.retire(1, history=1)
    assert anew() == 60
    for _ in range(2):
        landed.landing.land(10)
        write()
    landed.landing.retire(2, history=1)
    assert total() == 100 and anew() == UNKNOWN, (
        "nothing is kept of checkpoint 1: its rows are in the table all the same"
    )


@pytest.mark.parametrize("tables", BRONZE)
def test_a_table_that_the_configuration_has_got_meanwhile_is_declared_by_its_sensor(landed: LandedSeat) -> None:
    landed.landing.land(1)
    more = json.loads(landed.config.to_json())
    more["tables"].append({"name": "silver", "format": "parquet", "path": "tables/silver"})
    config = RegionConfig.from_json(json.dumps(more))
    other = Seat(config, consistent_region(config, linger=0.1), landed.instance, landed.region)
    assert (
        "does not know table silver"
        in {
            e.asset_key.path[-1]: e.description or ""
            for e in other.tick("observe").asset_events
            if isinstance(e, dg.AssetCheckEvaluation) and e.check_name == "keeps_up"
        }["silver"]
    )
    other.publish()
    assert {r.asset_selection[0].path[-1] for r in other.tick("tables").run_requests} == {"bronze", "silver"}
    more["tables"][1]["path"] = "elsewhere"
    moved = RegionConfig.from_json(json.dumps(more))
    third = Seat(moved, consistent_region(moved, linger=0.1), landed.instance, landed.region)
    assert third.tick("tables").run_requests  # what is declared is not declared again


def before(cursor: str | None, seconds: float) -> str:
    """The cursor of a sensor that remembers the same from so much earlier."""
    asked = check.CheckCursor.parse(cursor)
    return str(dataclasses.replace(asked, at=asked.at - seconds))


@pytest.mark.parametrize("tables", BRONZE)
def test_checks_of_the_data_run_by_themselves_when_there_is_something_new(landed: LandedSeat) -> None:
    assert landed.tick("check").skip_message == "there is no checkpoint yet"
    landed.landing.land(1)
    seen = landed.tick("check")
    first = landed.tick("check", cursor=before(seen.cursor, 3_601))
    assert len(first.run_requests) == 1
    assert landed.tick("check", cursor=first.cursor).skip_message == "nothing new since checkpoint 1"
    landed.landing.land(1)
    assert "again in 3" in landed.tick("check", cursor=first.cursor).skip_message
    assert landed.tick("check", cursor=before(first.cursor, 3_601)).run_requests


@pytest.mark.parametrize("tables", BRONZE)
def test_the_first_check_of_the_data_does_not_come_while_the_region_only_starts(landed: LandedSeat) -> None:
    """It opens a Spark session of its own, beside the one that hosts."""
    landed.landing.land(1)
    seen = landed.tick("check")
    assert (seen.run_requests, seen.skip_message) == ([], "the first checkpoint is there; checked in 3600 s")
    landed.landing.land(1)
    later = landed.tick("check", cursor=before(seen.cursor, 600))
    assert not later.run_requests and "the first check is in 3" in later.skip_message
    assert landed.tick("check", cursor=before(seen.cursor, 3_601)).run_requests
    another = dataclasses.replace(
        check.CheckCursor.parse(before(seen.cursor, 3_601)), uid="of a region before this one"
    )
    assert not landed.tick("check", cursor=str(another)).run_requests


@pytest.mark.parametrize("tables", [[{"name": "bronze", "format": "delta", "path": "tables/bronze"}]])
def test_a_table_that_others_can_write_is_looked_at_daily_also_when_nothing_is_new(landed: LandedSeat) -> None:
    landed.landing.land(1)
    seen = landed.tick("check").cursor
    asked = landed.tick("check", cursor=before(seen, 3_601)).cursor
    assert "again in 86" in landed.tick("check", cursor=asked).skip_message
    assert landed.tick("check", cursor=before(asked, check.DAILY + 1)).run_requests


@pytest.mark.parametrize("tables", BRONZE)
def test_what_a_failed_run_has_left_is_asked_for_again_however_often_cuts_come(landed: LandedSeat) -> None:
    """Dagster remembers a run key for ever, also of a failed run; cuts that find nothing come meanwhile."""

    def cut(tx: Tx, later: float) -> None:
        tx.set_region(created_at=tx.region().created_at - later, last_cut_at=tx.now())

    landed.landing.land(1)
    landed.publish()
    landed.region.plane.do(lambda tx: cut(tx, 0))
    (first,) = landed.tick("tables").run_requests
    landed.region.plane.do(lambda tx: cut(tx, 61))
    (again,) = landed.tick("tables").run_requests
    assert first.tags == again.tags and first.run_key != again.run_key


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
        landed.defs.resolve_job_def("orders_cut"),
        tags={KEEPING_UP: "orders/bronze"},
        status=dg.DagsterRunStatus.STARTED,
    )
    assert landed.tick("tables").skip_message == "bronze: a run is on its way"
    landed.instance.delete_run(run.run_id)
    permit = landed.region.plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="a run", token="t"))
    assert permit is not None and landed.tick("tables").skip_message == "bronze: a run writes it"
    landed.landing.rewind(1)
    assert landed.tick("tables").skip_message == "every table has all checkpoints"


@pytest.mark.parametrize("tables", [[{"name": "bronze", "format": "delta", "path": "tables/bronze"}]])
@pytest.mark.parametrize("keys", [{"ui_history": 2}])
def test_a_table_that_is_further_behind_than_partitions_go_back_gets_a_run(landed: LandedSeat) -> None:
    """It waited for ever for partitions that have left; the run brings what is before them along."""
    for _ in range(5):
        landed.landing.land(1)
    landed.publish()
    (request,) = landed.tick("tables").run_requests
    assert (request.tags[RANGE_START], request.tags[RANGE_END]) == (key_of(4), key_of(5))
    job, bronze = landed.defs.resolve_job_def("orders_write_tables"), landed.names.table("bronze")
    run = job.execute_in_process(instance=landed.instance, asset_selection=[bronze], tags=dict(request.tags))
    told = [e.partition for e in run.get_asset_materialization_events()]
    assert run.success and sorted(map(str, told)) == [key_of(4), key_of(5)]
    assert landed.tick("tables").skip_message == "every table has all checkpoints"


@pytest.mark.parametrize("tables", BRONZE)
def test_a_table_gets_its_run_in_the_loop_that_publishes_its_checkpoint(
    landed: LandedSeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where sensors have threads, both are evaluated at once."""
    landed.landing.land(1)
    monkeypatch.setattr(keep_up, "threads_of", lambda _: 8)
    monkeypatch.setattr(keep_up, "PUBLISHED_S", 30.0)
    publishing = threading.Timer(0.5, landed.publish)
    publishing.start()
    try:
        (request,) = landed.tick("tables").run_requests
        assert request.tags[RANGE_END] == key_of(1)
    finally:
        publishing.join()


@pytest.mark.parametrize("tables", BRONZE)
def test_a_run_that_waited_long_in_the_queue_is_on_its_way_while_it_starts(landed: LandedSeat) -> None:
    """It was made an hour ago, and its process starts now: a second one was launched beside it."""
    landed.landing.land(1)
    landed.publish()
    job = landed.defs.resolve_job_def("orders_cut")
    run = landed.instance.create_run_for_job(job, tags={KEEPING_UP: "orders/bronze"})
    storage: Any = landed.instance.run_storage

    def at(**times: float) -> None:
        values = {name: datetime.fromtimestamp(at, UTC).replace(tzinfo=None) for name, at in times.items()}
        with storage.connect() as c:
            c.execute(RunsTable.update().where(RunsTable.c.run_id == run.run_id).values(**values))

    at(create_timestamp=time.time() - 3_600)
    event = dg.DagsterEvent(event_type_value="PIPELINE_STARTING", job_name=job.name)
    landed.instance.handle_run_event(run.run_id, event)
    assert landed.tick("tables").skip_message == "bronze: a run is on its way"
    at(update_timestamp=time.time() - 3_600)  # its process never came
    assert landed.tick("tables").run_requests


@pytest.mark.parametrize("tables", BRONZE)
def test_a_table_that_has_everything_gets_no_run(landed: LandedSeat) -> None:
    landed.landing.land(1)
    landed.publish()
    permit = landed.region.plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="h", token="t"))
    assert permit is not None
    landed.region.plane.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=2))
    assert landed.tick("tables").skip_message == "every table has all checkpoints"


def test_a_region_that_is_wanted_and_hosted_by_nobody_gets_a_host(seat: Seat) -> None:
    assert seat.tick("host").skip_message == "IDLE: nothing to host"
    seat.region.start(by="test")
    seat.region.plane.do(lambda tx: tx.set_region(phase_since=tx.now() - 30))
    (request,) = seat.tick("host").run_requests
    assert request.run_config == {"ops": {"host": {"config": {"start": False}}}}
    job = seat.defs.resolve_job_def("orders_host_members")
    run = seat.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, tags=dict(job.tags))
    assert "is on its way" in seat.tick("host").skip_message
    seat.instance.delete_run(run.run_id)
    seat.region.plane.do(lambda tx: life.stop(tx, token="t", by="test"))
    assert seat.tick("host").skip_message == "IDLE: nothing to host"


def test_a_host_that_died_with_nobody_to_tell_is_replaced(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC A2: its run is *started* for ever in Dagster; its lease in SQL says that it is gone."""
    seat.region.start(by="test")
    seat.region.plane.do(lambda tx: tx.set_region(phase_since=tx.now() - 30, members_wanted=2))
    job = seat.defs.resolve_job_def("orders_host_members")
    seat.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, tags=dict(job.tags))
    lease = seat.region.plane.do(lambda tx: leases.take(tx, "host", holder="a run", token="t", length=60))
    monkeypatch.setattr(shared, "BEGIN_WINDOW_S", 0.0)
    assert seat.tick("host").skip_message == "BIRTH: hosted"
    seat.region.plane.do(lambda tx: tx.put(dataclasses.replace(lease, until=tx.now() - 6)))
    with HandMember(seat.config, seat.region.plane):  # one of two is left, and nobody would start it again
        assert seat.tick("host").run_requests
        seat.region.plane.do(lambda tx: tx.set_region(members_wanted=1))
        seat.region.await_running(timeout=20)
        seat.region.plane.do(lambda tx: tx.set_region(phase_since=tx.now() - 30))
        assert seat.tick("host").run_requests  # as many as are wanted, but orphans: nobody starts them again
        seat.region.plane.do(lambda tx: leases.release(tx, lease))
        assert seat.tick("host").skip_message.endswith(": hosted")
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
    assert "Run `crkafka init`, or in Dagster the job start_region." in said
    assert other.run("start_region").success
    assert other.tick("watch").skip_message == "BIRTH, epoch 2, 0 members"


@pytest.mark.parametrize("schedule", ["look", "retire", "maintain"])
def test_before_a_region_is_made_its_schedules_start_no_run_that_would_fail(
    tmp_path: Path, instance: dg.DagsterInstance, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC A2: on a shared instance somebody is alerted of each failure. Once it is made they do, also while SQL is away."""
    url = f"sqlite:///{tmp_path}/crkafka.db"
    config = RegionConfig.of(
        base=tmp_path,
        region="orders",
        control_plane=url,
        storage=str(tmp_path / "segments"),
        kafka={"bootstrap.servers": "localhost:1", "group.id": "orders"},
        topics=["orders"],
    )
    defs = consistent_region(config)

    def evaluate() -> Any:
        with dg.build_schedule_context(instance=instance) as context:
            return defs.resolve_schedule_def(f"orders_{schedule}").evaluate_tick(context)

    assert "There is no control plane" in str(evaluate().skip_message)
    initialise(url)
    assert "crkafka init" in str(evaluate().skip_message)
    with Region.open(config) as region:
        region.init()
    assert len(evaluate().run_requests or ()) == 1

    def away(*_: object) -> None:
        raise ServiceUnavailable("The database does not answer.")

    monkeypatch.setattr(RegionResource, "read", away)
    assert len(evaluate().run_requests or ()) == 1


@pytest.mark.parametrize("tables", BRONZE)
def test_sensors_never_read_kafka(landed: LandedSeat) -> None:
    """A broker that accepts connections and counts them; what does ask Kafka is counted."""
    landed.landing.land(1)
    with socket.create_server(("127.0.0.1", 0)) as broker:
        accepted: list[object] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    accepted.append(broker.accept()[1])

        threading.Thread(target=accept, daemon=True).start()
        keys = json.loads(landed.config.to_json())
        keys["kafka"]["bootstrap.servers"] = f"127.0.0.1:{broker.getsockname()[1]}"
        config = RegionConfig.from_json(json.dumps(keys))
        seat = Seat(config, consistent_region(config, linger=0.1), landed.instance, landed.region)
        sensors = [s.name.removeprefix("orders_") for s in seat.defs.get_repository_def().sensor_defs]
        assert {"trigger", "watch", "publish", "observe", "host", "tables", "check"} == set(sensors)
        for sensor in sensors:
            seat.tick(sensor)
        assert accepted == []
        admin = AdminClient({"bootstrap.servers": config.kafka["bootstrap.servers"]})
        end = time.monotonic() + 30
        while not accepted and time.monotonic() < end:
            admin.poll(0.1)
        assert accepted, "the counter counts"


@pytest.mark.parametrize("tables", [[{"name": "bronze", "format": "delta", "path": "tables/bronze"}]])
def test_what_a_host_feeds_starts_no_run_and_is_told_as_materializations(landed: LandedSeat) -> None:
    """SPEC K6, A7: runs are for what nobody feeds; what a run has brought is not told twice."""
    feeder = Feeder(landed.region)
    assert feeder.turn(0.0)
    landed.landing.land(1), landed.landing.land(0), landed.landing.land(2)
    landed.publish()
    assert landed.tick("tables").skip_message == "every table has all checkpoints"
    assert feeder.turn(0.0)
    told = landed.tick("tables")
    assert not told.run_requests and told.skip_message == "bronze: 2 checkpoints materialized"
    shown = {e.partition: (e.metadata["rows"].value, e.metadata["total_rows"].value) for e in told.asset_events}
    assert shown == {key_of(1): (2, 6), key_of(3): (4, 6)}
    assert landed.tick("tables", cursor=told.cursor).asset_events == []
    feeder._over.set()
    feeder.turn(0.0)
    landed.landing.land(1)
    landed.publish()
    (request,) = landed.tick("tables", cursor=told.cursor).run_requests
    assert request.tags[RANGE_START] == key_of(4)


@pytest.mark.parametrize("tables", BRONZE)
def test_what_a_host_writes_with_spark_starts_no_run_and_is_told_as_well(landed: LandedSeat) -> None:
    """SPEC K6, A7: Parquet, Iceberg and shaped tables too; once the host has gone, runs go on."""
    plane = landed.region.plane
    with DriverLease(plane, SPARK_FEEDER, "host:1"):
        landed.landing.land(1)
        landed.publish()
        assert landed.tick("tables").skip_message == "every table has all checkpoints"
        permit = plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="host:1", token="t"))
        assert permit is not None
        plane.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=2))
        told = landed.tick("tables")
        assert not told.run_requests
        assert [(e.partition, e.metadata["kept_fresh_by"].value) for e in told.asset_events] == [(key_of(1), "host:1")]
        assert landed.tick("tables", cursor=told.cursor).asset_events == []
    landed.landing.land(1)
    landed.publish()
    (request,) = landed.tick("tables", cursor=told.cursor).run_requests
    assert request.tags[RANGE_START] == key_of(2)


@pytest.mark.parametrize("tables", BRONZE)
def test_what_was_brought_by_who_has_ended_and_never_told_is_told_after_a_while(landed: LandedSeat) -> None:
    """A host's last cut before it ended, or what a run was killed after: whatever waits for each partition would wait for ever."""
    plane = landed.region.plane

    def brought() -> TableCommit:
        landed.landing.land(1)
        permit = plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="somebody", token="t"))
        assert permit is not None
        plane.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=1))
        return permit.commit

    def later(commit: TableCommit) -> None:
        def back(tx: Tx) -> None:
            done = tx.get(TableCommit, "bronze", commit.number)
            assert done is not None
            tx.put(dataclasses.replace(done, at=done.at - 61))

        plane.do(back)

    first = brought()
    assert landed.tick("tables").asset_events == []
    later(first)
    told = landed.tick("tables")
    assert [e.partition for e in told.asset_events] == [key_of(1)]
    assert landed.tick("tables", cursor=told.cursor).asset_events == []
    table = landed.names.table("bronze")
    landed.instance.report_runless_asset_event(dg.AssetMaterialization(table, partition=key_of(2)))  # as a run does
    later(brought())
    assert landed.tick("tables", cursor=told.cursor).asset_events == []


@pytest.mark.parametrize("tables", [[{"name": "bronze", "format": "delta", "path": "tables/bronze"}]])
@pytest.mark.parametrize("keys", [{"ui_history": 2}])
def test_tables_of_a_region_that_was_made_anew_are_told_anew(landed: LandedSeat) -> None:
    """Its checkpoints begin at 1 again, and those who follow the table wait for them. What has left the partitions is not told."""
    feeder = Feeder(landed.region)
    for _ in range(3):
        landed.landing.land(1)
    assert feeder.turn(0.0)
    told = landed.tick("tables")
    assert [e.partition for e in told.asset_events] == [key_of(2), key_of(3)]
    for event in told.asset_events:
        landed.instance.report_runless_asset_event(event)
    assert landed.tick("tables").asset_events == []
    landed.region.plane.do(lambda tx: tx.set_region(uid="another", created_at=tx.now()))
    anew = landed.tick("tables", cursor=told.cursor)
    assert [e.partition for e in anew.asset_events] == [key_of(2), key_of(3)]
    assert landed.tick("tables", cursor=anew.cursor).asset_events == []


SHAPED: list[Any] = [
    [
        {"name": "typed", "format": "delta", "path": "tables/typed", "shape": "shop:typed"},
        {"name": "typed_dead", "format": "delta", "path": "tables/dead", "shape": "shop:typed", "output": "dead"},
    ]
]


@pytest.mark.parametrize("tables", SHAPED)
def test_a_typed_table_and_its_dead_letters_tell_their_own_rows(landed: LandedSeat) -> None:
    """Both said that they had every record of the checkpoint."""
    plane = landed.region.plane
    with DriverLease(plane, SPARK_FEEDER, "host:1"):
        for _ in range(3):
            landed.landing.land(5)
        landed.publish()

        def written(name: str, rows: int, **told: Any) -> None:
            token = f"{name} {rows}"
            permit = plane.do(lambda tx: permits.permit_commit(tx, name, holder="host:1", token=token))
            assert permit is not None
            plane.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=rows, **told))

        written("typed", 24, counts={1: 9, 2: 8, 3: 7})
        written("typed_dead", 6)
        told = landed.tick("tables")
        shown = {(e.asset_key.path[-1], e.partition): e.metadata for e in told.asset_events}
        rows = [shown["typed", key_of(i)] for i in (1, 2, 3)]
        assert [(m["rows"].value, m[ROWS].value, m["total_rows"].value) for m in rows] == [
            (9, 9, 24),
            (8, 8, 24),
            (7, 7, 24),
        ]
        dead = [shown["typed_dead", key_of(i)] for i in (1, 2, 3)]
        assert not any({"rows", ROWS, "total_rows"} & m.keys() for m in dead), (
            "three in one commit, and nobody counted them apart"
        )
        landed.landing.land(5)
        landed.publish()
        written("typed", 10)
        written("typed_dead", 0)
        again = landed.tick("tables", cursor=told.cursor)
        shown = {e.asset_key.path[-1]: e.metadata for e in again.asset_events}
        assert (shown["typed"]["rows"].value, shown["typed"]["total_rows"].value) == (10, 34)
        assert shown["typed_dead"]["rows"].value == 0 and "total_rows" not in shown["typed_dead"]


@pytest.mark.parametrize("tables", BRONZE)
def test_while_a_host_only_begins_no_run_is_launched_for_what_it_will_feed(landed: LandedSeat) -> None:
    """SPEC A7: its Spark starts for a minute, and a run's own would then meet it at the table."""
    landed.landing.land(1)
    landed.publish()
    landed.region.plane.do(lambda tx: tx.delete(Member))
    assert landed.tick("tables").run_requests
    with DriverLease(landed.region.plane, LEASE, "host:1"):
        assert landed.tick("tables").skip_message == "every table has all checkpoints"
    assert landed.tick("tables").run_requests
