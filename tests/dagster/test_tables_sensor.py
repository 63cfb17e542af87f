"""The sensor that keeps tables fresh: which of them gets a run, and for what (SPEC A2, A7)."""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.runs.schema import RunsTable
from dagster._daemon.monitoring.run_monitoring import monitor_starting_run

from crkafka_core.config import RegionConfig
from crkafka_core.control import Tx
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Member, Table, TableCommit
from crkafka_core.plane import permits
from crkafka_core.plane import tables as plane
from crkafka_core.region.host import LEASE
from crkafka_core.region.lease import DriverLease
from dagster_project import consistent_region
from dagster_project.names import KEEPING_UP, key_of
from dagster_project.sensors import tables as tables_sensor
from dagster_project.sensors.tables import RANGE_END, RANGE_START
from tests.dagster.conftest import LandedSeat, Seat

pytestmark = pytest.mark.dagster

BRONZE = [[{"name": "bronze", "format": "delta", "path": "lake.shop.bronze"}]]


@pytest.mark.parametrize("tables", BRONZE)
def test_a_table_that_the_configuration_has_got_meanwhile_is_declared_by_its_sensor(landed: LandedSeat) -> None:
    landed.landing.land(1)
    more = json.loads(landed.config.to_json())
    more["tables"].append({"name": "silver", "format": "delta", "path": "/t/silver"})
    config = RegionConfig.from_json(json.dumps(more))
    other = Seat(config, consistent_region(config), landed.instance, landed.region)
    assert (
        "does not know table silver"
        in {
            e.asset_key.path[-1]: e.description or ""
            for e in other.tick("observe").asset_events
            if isinstance(e, dg.AssetCheckEvaluation) and e.check_name == "keeps_up"
        }["silver"]
    )
    other.publish()
    assert {r.asset_selection[0].path[-1] for r in other.tick("publish").run_requests} == {"bronze", "silver"}
    more["tables"][1]["path"] = "elsewhere"
    moved = RegionConfig.from_json(json.dumps(more))
    third = Seat(moved, consistent_region(moved), landed.instance, landed.region)
    assert third.tick("publish").run_requests  # what is declared is not declared again


@pytest.mark.parametrize("tables", BRONZE)
def test_what_a_failed_run_has_left_is_asked_for_again_however_often_cuts_come(landed: LandedSeat) -> None:
    """Dagster remembers a run key for ever, also of a failed run; cuts that find nothing come meanwhile."""

    def cut(tx: Tx, later: float) -> None:
        tx.set_region(created_at=tx.region().created_at - later, last_cut_at=tx.now())

    landed.landing.land(1)
    landed.publish()
    landed.region.plane.do(lambda tx: cut(tx, 0))
    (first,) = landed.tick("publish").run_requests
    landed.region.plane.do(lambda tx: cut(tx, 61))
    (again,) = landed.tick("publish").run_requests
    assert first.tags == again.tags and first.run_key != again.run_key


@pytest.mark.parametrize("tables", BRONZE)
def test_a_table_gets_one_run_for_all_that_waits(landed: LandedSeat) -> None:
    landed.landing.land(1, times=3)
    landed.publish()
    (request,) = landed.tick("publish").run_requests
    assert (request.tags[RANGE_START], request.tags[RANGE_END]) == ("000000000001", "000000000003")
    assert request.asset_selection == [landed.names.table("bronze")]
    run = landed.instance.create_run_for_job(
        landed.defs.resolve_job_def("orders_cut"),
        tags={KEEPING_UP: "orders/bronze"},
        status=dg.DagsterRunStatus.STARTED,
    )
    assert landed.tick("publish").skip_message.endswith("; bronze: a run is on its way")
    landed.instance.delete_run(run.run_id)
    permit = landed.region.plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="a run", token="t"))
    assert permit is not None
    assert "bronze: a run writes it; 3 checkpoints wait, the first for" in landed.tick("publish").skip_message
    landed.landing.rewind(1)
    assert "bronze: tables follow a rewind first; 1 checkpoint waits" in landed.tick("publish").skip_message


@pytest.mark.parametrize("tables", [[{"name": "bronze", "format": "delta", "path": "tables/bronze"}]])
@pytest.mark.parametrize("keys", [{"ui_history": 2}])
def test_a_table_that_is_further_behind_than_partitions_go_back_gets_bounded_runs_one_after_the_other(
    landed: LandedSeat,
) -> None:
    """It waited for ever for partitions that have left; then one run brought them all, however many they were (SPEC A7)."""
    defs = consistent_region(landed.config, keep_up=3)
    seat = Seat(landed.config, defs, landed.instance, landed.region)
    landed.landing.land(1, times=9)
    seat.publish()
    assert seat.partitions() == [key_of(8), key_of(9)]
    bronze, ranges, told = seat.names.table("bronze"), [], []
    cursor = seat.cursor
    while requests := seat.tick("publish", cursor=cursor).run_requests:
        (request,) = requests
        made = seat.instance.create_run_for_job(
            defs.resolve_job_def(request.job_name), tags=dict(request.tags), status=dg.DagsterRunStatus.STARTED
        )
        assert seat.tick("publish", cursor=cursor).skip_message.endswith("; bronze: a run is on its way")
        seat.instance.delete_run(made.run_id)
        before = acknowledged(seat)
        chosen = {"asset_selection": [bronze]} if request.asset_selection else {}
        run = defs.resolve_job_def(request.job_name).execute_in_process(
            run_config=request.run_config, instance=seat.instance, tags=dict(request.tags), **chosen
        )
        assert run.success
        ranges.append((before + 1, acknowledged(seat)))
        told += [e.partition for e in run.get_asset_materialization_events()]
    assert ranges == [(1, 3), (4, 6), (7, 7), (8, 9)]
    assert sorted(map(str, told)) == [key_of(8), key_of(9)], "partitions that have left are not materialized"
    assert seat.tick("publish", cursor=cursor).skip_message.endswith("; every table has all checkpoints")
    landed.region.plane.do(age_commits)
    assert not seat.tick("publish", cursor=cursor).asset_events, "nor are they told afterwards"


def acknowledged(seat: Seat) -> int:
    return seat.region.plane.read(lambda reader, _: reader.get(Table, "bronze")).acknowledged


def age_commits(tx: Tx) -> None:
    """As if the commits of tables had been made a while ago."""
    for commit in tx.select(TableCommit):
        tx.put(dataclasses.replace(commit, at=commit.at - 2 * tables_sensor.SETTLED_S))


@pytest.mark.parametrize("tables", BRONZE)
@pytest.mark.parametrize("keys", [{"ui_history": 3}])
def test_a_reset_that_shortens_the_history_keeps_no_table_waiting_for_what_has_left(landed: LandedSeat) -> None:
    """Of six checkpoints the latest three are shown; the reset leaves one of them, and the two before it do not come back."""
    landed.landing.land(1, times=6)
    landed.publish()
    landed.landing.rewind(4)
    landed.region.plane.do(lambda tx: tx.set_region(phase=Phase.RUNNING))
    landed.region.plane.do(lambda tx: tx.put(dataclasses.replace(tx.get(Table, "bronze"), fenced_epoch=99)))
    landed.publish()
    assert landed.partitions() == [key_of(4)]
    (request,) = landed.tick("publish").run_requests
    assert request.run_config == {"ops": {"advance": {"config": {"table": "bronze", "upto": 3}}}}


def waits_for_its_worker(seat: Seat) -> str:
    """A run for the table, whose process is asked for."""
    job = seat.defs.resolve_job_def("orders_cut")
    run = seat.instance.create_run_for_job(job, tags={KEEPING_UP: "orders/bronze"})
    event = dg.DagsterEvent(event_type_value="PIPELINE_STARTING", job_name=job.name)
    seat.instance.report_dagster_event(event, run.run_id)
    return run.run_id


def set_times(seat: Seat, run_id: str, **times: float) -> None:
    storage: Any = seat.instance.run_storage
    values = {name: datetime.fromtimestamp(at, UTC).replace(tzinfo=None) for name, at in times.items()}
    with storage.connect() as c:
        c.execute(RunsTable.update().where(RunsTable.c.run_id == run_id).values(**values))


@pytest.mark.parametrize("tables", BRONZE)
def test_a_run_that_waited_long_in_the_queue_is_on_its_way_while_it_starts(landed: LandedSeat) -> None:
    """It was made an hour ago, and its process starts now: a second one was launched beside it."""
    landed.landing.land(1)
    landed.publish()
    run = waits_for_its_worker(landed)
    set_times(landed, run, create_timestamp=time.time() - 3_600)
    assert landed.tick("publish").skip_message.endswith("; bronze: a run is on its way")
    set_times(landed, run, update_timestamp=time.time() - 3_600)  # its process never came, and nobody says so
    assert landed.tick("publish").run_requests


MONITORED = {"run_monitoring": {"enabled": True, "start_timeout_seconds": 1}}


@pytest.mark.parametrize("storage", [MONITORED])
@pytest.mark.parametrize("tables", BRONZE)
def test_a_run_that_waits_long_for_its_worker_is_on_its_way_until_run_monitoring_ends_it(landed: LandedSeat) -> None:
    """A pod may be pending for longer than any window: a second run was launched beside it after five minutes."""
    landed.landing.land(1)
    landed.publish()
    run = waits_for_its_worker(landed)
    set_times(landed, run, update_timestamp=time.time() - 3_600)
    assert landed.tick("publish").skip_message.endswith("; bronze: a run is on its way")
    record = landed.instance.get_run_record_by_id(run)
    assert record is not None
    time.sleep(1.1)
    monitor_starting_run(landed.instance, record, logging.getLogger())  # its worker died before it began
    assert landed.tick("publish").run_requests


@pytest.mark.parametrize("tables", BRONZE)
def test_while_a_host_only_begins_no_run_is_launched_for_what_it_will_feed(landed: LandedSeat) -> None:
    """SPEC A7: its Spark starts for a minute, and a run's own would then meet it at the table. What waits is said, by time too."""
    landed.landing.land(1)
    landed.publish()
    landed.region.plane.do(lambda tx: tx.delete(Member))
    assert landed.tick("publish").run_requests
    with DriverLease(landed.region.plane, LEASE, "host:1"):
        said = landed.tick("publish").skip_message
        assert "bronze: its host is starting, and will feed it; 1 checkpoint waits, the first for" in said
    assert landed.tick("publish").run_requests


EACH = [[{"each": "topic", "name": "{topic}", "path": "lake/{topic}"}]]


@pytest.mark.parametrize("tables", EACH)
@pytest.mark.parametrize("keys", [{"pattern": "^.*"}])
@pytest.mark.parametrize("topic", ["refunds", "records"])
def test_K6_a_new_topic_has_its_table_and_its_asset_without_a_reload(landed: LandedSeat, topic: str) -> None:
    landed.landing.land(1)
    landed.publish()
    landed.landing.new_topic(topic)
    landed.landing.land(2)
    landed.publish()
    requests = landed.tick("publish", cursor=landed.cursor).run_requests
    assert {r.run_config["ops"]["advance"]["config"]["table"] for r in requests} == {"orders", topic}
    for request in requests:
        job = landed.defs.resolve_job_def(request.job_name)
        assert job.execute_in_process(run_config=request.run_config, instance=landed.instance).success
    landed.region.plane.do(age_commits)
    events = landed.tick("publish", cursor=landed.cursor).asset_events
    told = {(e.asset_key, e.partition, e.metadata["dagster/partition_row_count"].value) for e in events}
    orders, other = landed.names.table("orders"), landed.names.table(topic)
    of_other = set() if other == landed.names.records else {(other, key_of(2), 2)}
    assert told == {(orders, key_of(1), 2), (orders, key_of(2), 4), *of_other}
    (shown,) = [e for e in events if e.asset_key == other and e.partition == key_of(2)] or [events[-1]]
    columns = {column.name for column in shown.metadata["dagster/column_schema"].value.columns}
    assert {"crkafka_checkpoint", "value"} <= columns
    assert shown.metadata["dagster/row_count"].value == (6 if shown.asset_key == orders else 2)
    assert shown.metadata["dagster/uri"].value.endswith(shown.asset_key.path[-1])
    assert landed.region.plane.read(lambda reader, _: plane.of(reader, topic).acknowledged) == 2
