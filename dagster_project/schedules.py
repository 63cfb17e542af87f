"""Schedules of a region: retire daily, look at Kafka, and the bounded run for teams without resident members."""

from __future__ import annotations

import dagster as dg

from dagster_project.jobs import Jobs
from dagster_project.names import Names
from dagster_project.options import Options

LOOK = "*/5 * * * *"
"""How often Kafka is asked for the lag."""


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
            name=names.of("look"),
            job=jobs.observe_group,
            cron_schedule=LOOK,
            default_status=on,
            description="Record the lag that Kafka knows.",
        ),
    ]
