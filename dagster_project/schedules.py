"""Schedules of a region: retire daily, look at Kafka, and the bounded run for teams without resident members."""

from __future__ import annotations

import dagster as dg

from dagster_project.jobs import Jobs
from dagster_project.names import Names
from dagster_project.options import Options

PRUNE = "47 3 * * *"
"""When old runs are removed, once somebody has turned it on."""
MAINTAIN = "17 4 * * *"
"""When tables are compacted, once somebody has turned it on."""


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
            cron_schedule=options.retire,
            default_status=on,
            description="Delete checkpoints beyond the last `retain`.",
        ),
        dg.ScheduleDefinition(
            name=names.of("prune"),
            job=jobs.prune_runs,
            cron_schedule=PRUNE,
            default_status=dg.DefaultScheduleStatus.STOPPED,
            description="Remove old runs and events of the region from Dagster; never anything of live partitions.",
        ),
        dg.ScheduleDefinition(
            name=names.of("maintain"),
            job=jobs.maintain_tables,
            cron_schedule=MAINTAIN,
            default_status=dg.DefaultScheduleStatus.STOPPED,
            description="Make few large files of the many small ones of the declared tables.",
        ),
        dg.ScheduleDefinition(
            name=names.of("look"),
            job=jobs.observe_group,
            cron_schedule=options.look,
            default_status=on,
            description="Record the lag that Kafka knows.",
        ),
    ]
