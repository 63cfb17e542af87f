"""Schedules of a region: retire daily, look at Kafka, and the bounded run for teams without resident members."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import dagster as dg

from crkafka_core.model.errors import CrkafkaError, NoControlPlane, NoSuchRegion
from dagster_project.job_set import Jobs
from dagster_project.names import Names
from dagster_project.options import Options
from dagster_project.resources import RegionResource

LOOK = "{look}-59/5 * * * *"
RETIRE, PRUNE, MAINTAIN = "{minute} 3 * * *", "{minute} 2 * * *", "{minute} 4 * * *"
"""Each region has minutes of its own: the regions of an instance do not all start their runs at once."""


def cron(pattern: str, region: str) -> str:
    """The pattern, with the minutes that the region's name gives it."""
    minute = crc32(region.encode()) % 60
    return pattern.format(minute=minute, look=minute % 5)


def once_made(region: RegionResource) -> Callable[[dg.ScheduleEvaluationContext], dg.RunRequest | dg.SkipReason]:
    """A run, once there is a region: a run before that would fail, and somebody's alerts with it."""

    def evaluate(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        try:
            region.read(lambda reader, row: None)
        except (NoControlPlane, NoSuchRegion) as error:
            return dg.SkipReason(str(error))
        except CrkafkaError:
            pass  # the run tries again for a while, and then says what is wrong
        return dg.RunRequest()

    return evaluate


def make(names: Names, jobs: Jobs, options: Options, region: RegionResource) -> list[dg.ScheduleDefinition]:
    """The region's schedules; the bounded run's is off until somebody turns it on."""
    on = dg.DefaultScheduleStatus.RUNNING if options.sensors == "running" else dg.DefaultScheduleStatus.STOPPED
    return [
        dg.ScheduleDefinition(
            name=names.of("consume"),
            job=jobs.consume_until_caught_up,
            cron_schedule=options.consume,
            default_status=dg.DefaultScheduleStatus.STOPPED,
            description="Consume what is there, cut, stop: instead of resident members.",
        ),
        dg.ScheduleDefinition(
            name=names.of("retire"),
            job=jobs.retire_checkpoints,
            execution_fn=once_made(region),
            cron_schedule=options.retire or cron(RETIRE, names.region),
            default_status=on,
            description="Delete checkpoints beyond the last `retain`.",
        ),
        dg.ScheduleDefinition(
            name=names.of("prune"),
            job=jobs.prune_runs,
            cron_schedule=cron(PRUNE, names.region),
            default_status=dg.DefaultScheduleStatus.STOPPED,
            description="Remove old runs and events of the region from Dagster; never anything of live partitions.",
        ),
        dg.ScheduleDefinition(
            name=names.of("maintain"),
            job=jobs.maintain_tables,
            execution_fn=once_made(region),
            cron_schedule=cron(MAINTAIN, names.region),
            default_status=dg.DefaultScheduleStatus.STOPPED,
            description="Make few large files of the many small ones of the declared tables.",
        ),
        dg.ScheduleDefinition(
            name=names.of("look"),
            job=jobs.observe_group,
            execution_fn=once_made(region),
            cron_schedule=options.look or cron(LOOK, names.region),
            default_status=on,
            description="Record the lag that Kafka knows.",
        ),
    ]
