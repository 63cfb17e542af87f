"""What the region's jobs leave in Dagster is removed; what somebody still needs is not (SPEC A3)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dagster as dg
import pytest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable as EVENTS
from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager
from dagster._core.storage.runs.schema import RunTagsTable
from dagster._core.storage.tags import PARTITION_NAME_TAG
from sqlalchemy import select

from crkafka_core.config import RegionConfig
from dagster_project import consistent_region
from dagster_project.job_set import MATERIALIZING, MATERIALIZING_NOTHING
from dagster_project.names import RANGE_END, RANGE_START, key_of
from dagster_project.sensors import observe
from tests.dagster.conftest import LandedSeat, shown

pytestmark = pytest.mark.dagster


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def storage(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Both, since Dagster's own tables are written."""
    if request.param == "sqlite":
        return {}
    url = request.getfixturevalue("postgres_url").replace("postgresql+psycopg://", "postgresql+psycopg2://")
    return {"storage": {"postgres": {"postgres_url": url}}}


def test_old_runs_that_materialize_nothing_are_removed_and_nothing_else(landed: LandedSeat) -> None:
    landed.landing.land(1)
    landed.publish()

    def run(job: str, status: dg.DagsterRunStatus, tags: dict[str, str] | None = None) -> str:
        made = landed.defs.resolve_job_def(f"orders_{job}")
        return landed.instance.create_run_for_job(made, status=status, tags=tags or {"crkafka/region": "orders"}).run_id

    ended, failed, going = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.STARTED
    old = [run("cut", ended) for _ in range(3)]
    of_a_schedule = run("maintain_tables", ended)
    kept = [
        run("cut", failed),
        run("cut", going),
        run("maintain_tables", ended),
        run("replay", ended),
        run("replay", ended),
    ]
    other = run("cut", ended, {"crkafka/region": "another"})  # of another code location, with a job of this name
    newest = run("observe_group", ended)
    nothing = landed.run("prune_runs", {"prune": {"days": 1e9, "failures": 1e9}})
    assert shown(nothing, "prune")["runs"] == 0
    assert landed.run("prune_runs", {"prune": {"days": 0, "limit": 2}}).success
    there = {r.run_id for r in landed.instance.get_runs()}
    assert len(there & set(old)) == 1 and {*kept, other, newest} <= there
    assert landed.run("prune_runs", {"prune": {"days": 0}}).success
    there = {r.run_id for r in landed.instance.get_runs()}
    assert not there & {*old, of_a_schedule} and {*kept, other, newest} <= there
    storage: Any = landed.instance.run_storage
    with storage.connect() as c:
        tagged = set(c.scalars(select(RunTagsTable.c.run_id)))
    assert not tagged & set(old) and {*kept, other, newest} <= tagged
    assert len(landed.instance.fetch_materializations(landed.names.records, limit=10).records) == 1
    assert landed.run("prune_runs", {"prune": {"days": 0, "failures": 0}}).success
    assert kept[0] not in {r.run_id for r in landed.instance.get_runs()}


def test_every_job_of_a_region_is_pruned_but_those_that_materialize() -> None:
    """By its name, so that a job that is added later is not forgotten."""
    config = RegionConfig.of(
        region="orders",
        control_plane="sqlite:///var/crkafka.db",
        storage="var/segments",
        topics=["orders"],
        kafka={"bootstrap.servers": "localhost:1", "group.id": "orders"},
        tables=[{"name": "b", "format": "delta", "path": "t"}],
    )
    assert not set(MATERIALIZING_NOTHING) & set(MATERIALIZING)
    jobs = {job.name for job in consistent_region(config).resolve_all_job_defs() if not job.name.startswith("__")}
    assert jobs == {f"orders_{job}" for job in (*MATERIALIZING_NOTHING, *MATERIALIZING)}


def told(seat: LandedSeat) -> dict[str, int]:
    """Events of no run that Dagster keeps, by kind and asset: in the index, and as many in the copy that SQLite has beside it."""
    storage: Any = seat.instance.event_log_storage
    counted: list[dict[str, int]] = []
    for connect in (storage.index_connection, lambda: storage.run_connection("")):
        with connect() as c:
            rows = c.execute(select(EVENTS.c.asset_key, EVENTS.c.dagster_event_type).where(EVENTS.c.run_id == "")).all()
        counted.append(Counter(f"{kind.removeprefix('ASSET_')} {json.loads(key or '[]')}" for key, kind in rows))
    assert counted[0] == counted[1]
    return dict(counted[0])


@pytest.mark.parametrize("keys", [{"ui_history": 2}])
def test_old_events_of_no_run_leave_but_for_those_of_live_partitions_and_the_latest_of_the_rest(
    landed: LandedSeat,
) -> None:
    instance, mine = landed.instance, dg.AssetKey("theirs")
    for _ in range(4):
        landed.landing.land(1)
        landed.publish()
        for event in landed.tick("observe").asset_events:
            instance.report_runless_asset_event(event)
        instance.report_runless_asset_event(dg.AssetMaterialization(mine, partition=key_of(1)))
        instance.report_runless_asset_event(dg.AssetCheckEvaluation(asset_key=mine, check_name="ours", passed=True))
    assert landed.partitions() == [key_of(3), key_of(4)]
    before = told(landed)
    assert before["OBSERVATION ['orders', 'group']"] == before["MATERIALIZATION ['orders', 'records']"] == 4
    assert landed.run("prune_runs", {"prune": {"days": 1}}).success
    assert told(landed) == before, "nothing is old yet"
    assert landed.run("prune_runs", {"prune": {"days": 0}}).success
    assert instance.get_materialized_partitions(landed.names.records) == {key_of(3), key_of(4)}
    assert told(landed) == {
        "MATERIALIZATION ['orders', 'records']": 2,
        "OBSERVATION ['orders', 'group']": 1,
        "MATERIALIZATION ['theirs']": 4,
        "CHECK_EVALUATION []": 4 + len(observe.CHECKS),  # theirs, and the latest of ours
    }
    for check in observe.CHECKS:
        key = dg.AssetCheckKey(landed.names.group, check)
        (kept,) = instance.event_log_storage.get_asset_check_execution_history(key, limit=10)
        assert kept.status is AssetCheckExecutionRecordStatus.SUCCEEDED


def test_a_run_that_is_removed_leaves_no_file(landed: LandedSeat) -> None:
    runs = [landed.run("retire_checkpoints", {"retire": {"dry_run": True}}).run_id for _ in range(2)]
    for run in runs:
        (Path(landed.instance.storage_directory()) / run / "compute_logs").mkdir(parents=True)
    home = Path(landed.instance.root_directory)
    assert list(home.rglob(f"{runs[0]}*"))
    manager = LocalComputeLogManager(landed.instance.storage_directory())
    with patch.object(type(landed.instance), "compute_log_manager", manager):
        assert landed.run("prune_runs", {"prune": {"days": 0}}).success
    assert not list(home.rglob(f"{runs[0]}*")) and list(home.rglob(f"{runs[1]}*"))


def test_the_runs_of_a_region_of_this_name_with_a_prefix_are_left_alone(landed: LandedSeat) -> None:
    def ran(defs: dg.Definitions) -> str:
        job = defs.resolve_job_def("orders_cut")
        return landed.instance.create_run_for_job(job, status=dg.DagsterRunStatus.SUCCESS, tags=dict(job.tags)).run_id

    other = consistent_region(landed.config, key_prefix=["eu"])
    old, theirs, newest, later = (ran(defs) for defs in (landed.defs, other, landed.defs, other))
    assert landed.run("prune_runs", {"prune": {"days": 0}}).success
    kept = {r.run_id for r in landed.instance.get_runs()}
    assert {newest, theirs, later} <= kept and old not in kept


@pytest.mark.parametrize("tables", [[{"name": "bronze", "format": "parquet", "path": "tables/bronze"}]])
@pytest.mark.parametrize("keys", [{"ui_history": 2}])
def test_a_run_that_wrote_a_table_stays_while_one_of_its_partitions_is_there(landed: LandedSeat) -> None:
    job = landed.defs.resolve_job_def("orders_write_tables")

    def wrote(first: int, last: int) -> str:
        tags = {RANGE_START: key_of(first), RANGE_END: key_of(last), "crkafka/region": "orders"}
        return landed.instance.create_run_for_job(job, status=dg.DagsterRunStatus.SUCCESS, tags=tags).run_id

    def wrote_one(checkpoint: int) -> str:
        """As a person's run of one partition is, from the job's page."""
        tags = {PARTITION_NAME_TAG: key_of(checkpoint), "crkafka/region": "orders"}
        return landed.instance.create_run_for_job(job, status=dg.DagsterRunStatus.SUCCESS, tags=tags).run_id

    landed.landing.land(1), landed.landing.land(1)
    landed.publish()
    gone, gone_too = wrote(1, 2), wrote_one(1)
    landed.landing.land(1)
    landed.publish()
    half, there, single = wrote(2, 3), wrote(3, 3), wrote_one(3)
    landed.landing.land(1)
    landed.publish()
    newest = wrote(4, 4)
    assert landed.run("prune_runs", {"prune": {"days": 0}}).success
    kept = {r.run_id for r in landed.instance.get_runs()}
    assert not {gone, gone_too} & kept and {half, there, single, newest} <= kept
