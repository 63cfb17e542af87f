"""Old runs of a region, removed from Dagster once nobody looks at them (SPEC A2, A3)."""

from datetime import UTC, datetime, timedelta

import dagster as dg
from pydantic import Field

from crkafka_core.model.plural import plural
from dagster_project import partitions
from dagster_project.failures import refuse_less_than
from dagster_project.job_set import MATERIALIZING_NOTHING, WRITES
from dagster_project.names import PARTITION, RANGE_END, Names
from dagster_project.resources import RegionResource

PAGE = 200


class Prune(dg.Config):
    """How old."""

    days: float = Field(14, description="Runs that succeeded or were cancelled are removed after so many days.")
    failures: float = Field(60, description="Runs that failed, after so many days.")
    limit: int = Field(10_000, description="Runs that one run removes at most; the next one goes on.")


@dg.op(
    description="Remove the region's old runs with their events: of jobs that materialize nothing, and of tables whose partitions have "
    "left. The newest run of each job stays.",
)
def prune(context: dg.OpExecutionContext, config: Prune, region: RegionResource) -> dg.Output[None]:
    refuse_less_than(0, days=config.days, failures=config.failures)
    refuse_less_than(1, limit=config.limit)
    instance, names = context.instance, region.names
    below = partitions.lowest(instance, names)
    ended = {
        dg.DagsterRunStatus.SUCCESS: config.days,
        dg.DagsterRunStatus.CANCELED: config.days,
        dg.DagsterRunStatus.FAILURE: config.failures,
    }
    runs = 0
    for job in (*MATERIALIZING_NOTHING, WRITES):
        for status, days in ended.items():
            runs += _prune(instance, names, job, status, days, config.limit - runs, below)
    context.log.info(f"{plural(runs, 'run')} removed")
    return dg.Output(None, metadata={"runs": runs})


def _prune(
    instance: dg.DagsterInstance,
    names: Names,
    job: str,
    status: dg.DagsterRunStatus,
    days: float,
    limit: int,
    below: str,
) -> int:
    """Page by page, oldest first, so that no listing is longer than a page."""
    newest = instance.get_runs(dg.RunsFilter(job_name=names.of(job), tags=names.tags), limit=1)
    keep = newest[0].run_id if newest else ""
    before = datetime.now(UTC) - timedelta(days=min(days, 36_500))
    old = dg.RunsFilter(job_name=names.of(job), statuses=[status], tags=names.tags, created_before=before)
    removed = 0
    while removed < limit:
        page = [
            r.run_id
            for r in instance.get_runs(old, limit=min(PAGE, limit - removed), ascending=True)
            if r.run_id != keep and (job != WRITES or r.tags.get(RANGE_END, r.tags.get(PARTITION, "")) < below)
        ]
        for run_id in page:
            instance.delete_run(run_id)
        removed += len(page)
        if not page:
            return removed
    return removed


@dg.graph(description="Remove runs of the region's own jobs that ended long ago; never one of live partitions.")
def prune_runs() -> None:
    prune()
