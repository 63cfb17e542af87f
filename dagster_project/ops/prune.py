"""Removal of a region's old runs from Dagster (SPEC A2, A3)."""

from datetime import UTC, datetime, timedelta
from functools import cache

import dagster as dg
from pydantic import Field

from crkafka_core.model.plural import plural
from dagster_project import partitions
from dagster_project.failures import refuse_less_than
from dagster_project.names import FOLLOWED, PARTITION, RANGE_END, WRITES, Names
from dagster_project.resources import RegionResource

PAGE = 200


class Prune(dg.Config):
    """How old."""

    days: float = Field(14, description="Days after which runs that succeeded or were cancelled are removed.")
    failures: float = Field(60, description="Days after which failed runs are removed.")
    limit: int = Field(10_000, description="Most runs that are removed at once; the next run goes on.")


@dg.op
def prune(context: dg.OpExecutionContext, config: Prune, region: RegionResource) -> dg.Output[None]:
    """Remove old runs of the region. Runs whose partitions are still there, and the newest run of each job, stay."""
    refuse_less_than(0, days=config.days, failures=config.failures)
    refuse_less_than(1, limit=config.limit)
    ended = {
        dg.DagsterRunStatus.SUCCESS: config.days,
        dg.DagsterRunStatus.CANCELED: config.days,
        dg.DagsterRunStatus.FAILURE: config.failures,
    }
    runs = 0
    for status, days in ended.items():
        runs += _prune(context.instance, region.names, status, days, config.limit - runs)
    context.log.info(f"{plural(runs, 'run')} removed")
    return dg.Output(None, metadata={"runs": runs})


def _prune(instance: dg.DagsterInstance, names: Names, status: dg.DagsterRunStatus, days: float, limit: int) -> int:
    """Page by page, oldest first, so that no listing is longer than a page."""
    below, before = partitions.lowest(instance, names), datetime.now(UTC) - timedelta(days=min(days, 36_500))
    old = dg.RunsFilter(statuses=[status], tags=names.tags, created_before=before)
    writing, replay = {names.of(WRITES), names.of(FOLLOWED)}, names.of("replay")

    @cache
    def newest(job: str) -> str:
        return instance.get_runs(dg.RunsFilter(job_name=job, tags=names.tags), limit=1)[0].run_id

    def goes(run: dg.DagsterRun) -> bool:
        last = run.tags.get(RANGE_END, run.tags.get(PARTITION, ""))
        stays = run.job_name == replay or (run.job_name in writing and last >= below)
        return not stays and run.run_id != newest(run.job_name)

    removed, kept = 0, None
    while page := instance.get_runs(old, cursor=kept, limit=PAGE, ascending=True):
        for run in page:
            if not goes(run):
                kept = run.run_id
            elif removed == limit:
                return removed
            else:
                instance.delete_run(run.run_id)
                removed += 1
    return removed
