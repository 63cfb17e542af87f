"""Runs end, their records stay: what a region's own jobs leave in Dagster, removed once nobody looks at it (SPEC A2, A3)."""

from datetime import UTC, datetime, timedelta

import dagster as dg
from pydantic import Field

from crkafka_core.model.plural import plural
from dagster_project.names import Names
from dagster_project.resources import RegionResource

JOBS = ("cut", "observe_group", "check_data", "retire_checkpoints", "stopped_alarm", "prune_runs")
"""Their runs materialize nothing: materializations of checkpoints belong to no run, those of tables to runs that stay."""

PAGE = 100


class Prune(dg.Config):
    """How old."""

    days: float = Field(14, ge=0, description="Runs that succeeded or were cancelled are removed after so many days.")
    failures: float = Field(60, ge=0, description="Runs that failed, after so many days.")
    limit: int = Field(20_000, ge=1, description="Runs that one run removes at most.")


@dg.op(
    description="Remove the region's old runs of jobs that materialize nothing, with their events; the newest of each job stays.",
)
def prune(context: dg.OpExecutionContext, config: Prune, region: RegionResource) -> dg.Output[int]:
    ended = {
        dg.DagsterRunStatus.SUCCESS: config.days,
        dg.DagsterRunStatus.CANCELED: config.days,
        dg.DagsterRunStatus.FAILURE: config.failures,
    }
    removed = 0
    for job in JOBS:
        for status, days in ended.items():
            removed += _prune(context.instance, region.names, job, status, days, config.limit - removed)
    context.log.info(f"{plural(removed, 'run')} removed")
    return dg.Output(removed, metadata={"runs": removed})


def _prune(
    instance: dg.DagsterInstance, names: Names, job: str, status: dg.DagsterRunStatus, days: float, limit: int
) -> int:
    """Page by page, oldest first, so that no listing is longer than a page."""
    newest = instance.get_runs(dg.RunsFilter(job_name=names.of(job)), limit=1)
    keep = newest[0].run_id if newest else ""
    old = dg.RunsFilter(
        job_name=names.of(job),
        statuses=[status],
        tags={"crkafka/region": names.region},
        created_before=datetime.now(UTC) - timedelta(days=days),
    )
    removed = 0
    while removed < limit:
        page = [
            r.run_id
            for r in instance.get_runs(old, limit=min(PAGE, limit - removed), ascending=True)
            if r.run_id != keep
        ]
        for run_id in page:
            instance.delete_run(run_id)
        removed += len(page)
        if not page:
            return removed
    return removed


@dg.graph(
    description="Remove old runs of the region's own jobs from Dagster. Never those that materialize, nor anything of live partitions."
)
def prune_runs() -> None:
    prune()
