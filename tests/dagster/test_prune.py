"""What the region's jobs leave in Dagster is removed; what somebody still needs is not (SPEC A3)."""

from __future__ import annotations

import dagster as dg
import pytest
from dagster._core.storage.tags import PARTITION_NAME_TAG

from dagster_project import consistent_region
from dagster_project.names import RANGE_END, RANGE_START, key_of
from tests.dagster.conftest import LandedSeat, shown

pytestmark = pytest.mark.dagster


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
    assert len(landed.instance.fetch_materializations(landed.names.records, limit=10).records) == 1
    assert landed.run("prune_runs", {"prune": {"days": 0, "failures": 0}}).success
    assert kept[0] not in {r.run_id for r in landed.instance.get_runs()}


def test_the_runs_of_a_region_of_this_name_with_a_prefix_are_left_alone(landed: LandedSeat) -> None:
    def ran(defs: dg.Definitions) -> str:
        job = defs.resolve_job_def("orders_cut")
        return landed.instance.create_run_for_job(job, status=dg.DagsterRunStatus.SUCCESS, tags=dict(job.tags)).run_id

    other = consistent_region(landed.config, key_prefix=["eu"])
    old, theirs, newest, later = (ran(defs) for defs in (landed.defs, other, landed.defs, other))
    assert landed.run("prune_runs", {"prune": {"days": 0}}).success
    kept = {r.run_id for r in landed.instance.get_runs()}
    assert {newest, theirs, later} <= kept and old not in kept


@pytest.mark.parametrize("tables", [[{"name": "bronze", "format": "delta", "path": "lake.shop.bronze"}]])
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

    landed.landing.land(1, times=2)
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
