"""What a region leaves in Dagster, removed once nobody looks at it: runs with their files, events of what has left (SPEC A2, A3)."""

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

    days: float = Field(
        14,
        description="Runs that succeeded or were cancelled are removed after so many days, and events of no run.",
    )
    failures: float = Field(60, description="Runs that failed, after so many days.")
    limit: int = Field(
        50_000,
        description="Runs that one run removes at most, and events of each kind of each asset; the next one goes on.",
    )


@dg.op(
    description="Remove the region's old runs of jobs that materialize nothing, with their events and files, and the events of "
    "checkpoints that have left the partitions; the newest run of each job stays, and the latest observation and outcome of each check.",
)
def prune(context: dg.OpExecutionContext, config: Prune, region: RegionResource) -> dg.Output[None]:
    from dagster_project import (
        delete_events,  # private names of Dagster: where they have changed, no more than this op fails
    )

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
    old = _ago(config.days)
    assets = [names.records, names.group, *(names.table(t.name) for t in region.settings.tables)]
    events = sum(delete_events.forget(instance, asset, before=old, below=below, limit=config.limit) for asset in assets)
    context.log.info(f"{plural(runs, 'run')} and {plural(events, 'event')} removed")
    return dg.Output(None, metadata={"runs": runs, "events": events})


def _ago(days: float) -> datetime:
    """Who never wants it writes a large number."""
    return datetime.now(UTC) - timedelta(days=min(days, 36_500))


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
    from dagster_project import delete_events

    newest = instance.get_runs(dg.RunsFilter(job_name=names.of(job), tags=names.tags), limit=1)
    keep = newest[0].run_id if newest else ""
    old = dg.RunsFilter(
        job_name=names.of(job),
        statuses=[status],
        tags=names.tags,
        created_before=_ago(days),
    )
    removed = 0
    while removed < limit:
        page = [
            r.run_id
            for r in instance.get_runs(old, limit=min(PAGE, limit - removed), ascending=True)
            if r.run_id != keep and (job != WRITES or r.tags.get(RANGE_END, r.tags.get(PARTITION, "")) < below)
        ]
        delete_events.delete_runs(instance, page)
        removed += len(page)
        if not page:
            return removed
    return removed


@dg.graph(
    description="Remove what the region has left in Dagster long ago: runs of its own jobs, events of checkpoints that have left. Never "
    "anything of live partitions."
)
def prune_runs() -> None:
    prune()
