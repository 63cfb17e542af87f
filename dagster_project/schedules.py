"""Schedules of a region: retire daily, look at Kafka, and the bounded run for teams without resident members."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from zlib import crc32

import dagster as dg

from crkafka_core.model.errors import CrkafkaError, NoControlPlane, NoSuchRegion
from dagster_project.names import Names
from dagster_project.options import Options
from dagster_project.resources import RegionResource
from dagster_project.sensors.shared import on_its_way

LOOK = "{look}-59/5 * * * *"
RETIRE, PRUNE, MAINTAIN = "{minute} 3 * * *", "{minute} 2 * * *", "{minute} 4 * * *"
"""Each region has minutes of its own: the regions of an instance do not all start their runs at once."""


def cron(pattern: str, region: str) -> str:
    """The pattern, with the minutes that the region's name gives it."""
    minute = crc32(region.encode()) % 60
    return pattern.format(minute=minute, look=minute % 5)


Evaluate = Callable[[dg.ScheduleEvaluationContext], dg.RunRequest | dg.SkipReason]


def due(names: Names, job: dg.JobDefinition, region: RegionResource | None) -> Evaluate:
    """A run, unless the last one still waits for its turn: a queue that is full for a night would hold a hundred.

    With `region`, only once there is one: a run before that would fail, and raise alerts.
    """

    def evaluate(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        try:
            if region is not None:
                region.read(lambda reader, row: None)
        except (NoControlPlane, NoSuchRegion) as error:
            return dg.SkipReason(str(error))
        except CrkafkaError:
            pass  # the run tries again for a while, and then says what is wrong
        if on_its_way(context.instance, names.tags, job.name, begun=False):
            return dg.SkipReason("the previous run has not started yet")
        return dg.RunRequest()

    return evaluate


DESCRIPTIONS = {
    "consume": "Reads all new records, makes a checkpoint, and stops: for regions without resident members.",
    "retire": "Deletes the segments of checkpoints before the last `retain`.",
    "prune": "Removes old runs of the region from Dagster; never one of live partitions.",
    "maintain": "Compacts the small files of the declared tables.",
    "look": "Records the lag of the group, as Kafka reports it.",
}


def make(
    names: Names, jobs: Mapping[str, dg.JobDefinition], options: Options, region: RegionResource
) -> list[dg.ScheduleDefinition]:
    """The region's schedules; two are on, the others off until a person turns them on."""
    stopped = dg.DefaultScheduleStatus.STOPPED
    running = dg.DefaultScheduleStatus.RUNNING if options.sensors == "running" else stopped
    retire, look = options.retire or cron(RETIRE, names.region), options.look or cron(LOOK, names.region)

    def schedule(
        name: str, job: dg.JobDefinition, at: str, status: dg.DefaultScheduleStatus, made: RegionResource | None = None
    ) -> dg.ScheduleDefinition:
        return dg.ScheduleDefinition(
            name=names.of(name),
            job=job,
            cron_schedule=at,
            default_status=status,
            description=DESCRIPTIONS[name],
            execution_fn=due(names, job, made),
        )

    return [
        schedule("consume", jobs["consume_until_caught_up"], options.consume, stopped),
        schedule("retire", jobs["retire_checkpoints"], retire, running, region),
        schedule("prune", jobs["prune_runs"], cron(PRUNE, names.region), stopped),
        schedule("maintain", jobs["maintain_tables"], cron(MAINTAIN, names.region), stopped, region),
        schedule("look", jobs["observe_group"], look, running, region),
    ]
