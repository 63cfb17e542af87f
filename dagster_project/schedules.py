"""Schedules of a region: retire daily, look at Kafka, and the bounded run for teams without resident members."""

from __future__ import annotations

from zlib import crc32

import dagster as dg

from dagster_project.jobs import Jobs
from dagster_project.names import Names
from dagster_project.options import Options

LOOK = "{look}-59/5 * * * *"
RETIRE, PRUNE, MAINTAIN = "{minute} 3 * * *", "{minute} 2 * * *", "{minute} 4 * * *"
"""Each region has minutes of its own: the regions of an instance do not all start their runs at once."""


def cron(pattern: str, region: str) -> str:
    """The pattern, with the minutes that the region's name gives it."""
    minute = crc32(region.encode()) % 60
    return pattern.format(minute=minute, look=minute % 5)


def make(names: Names, jobs: Jobs, options: Options) -> list[dg.ScheduleDefinition]:
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
            cron_schedule=cron(MAINTAIN, names.region),
            default_status=dg.DefaultScheduleStatus.STOPPED,
            description="Make few large files of the many small ones of the declared tables.",
        ),
        dg.ScheduleDefinition(
            name=names.of("look"),
            job=jobs.observe_group,
            cron_schedule=options.look or cron(LOOK, names.region),
            default_status=on,
            description="Record the lag that Kafka knows.",
        ),
    ]
