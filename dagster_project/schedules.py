"""Schedules of a region: retire daily, look at Kafka, and the bounded run for teams without resident members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
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
    """The region's schedules; two are on, and the others off until somebody turns them on."""
    running = dg.DefaultScheduleStatus.RUNNING if options.sensors == "running" else dg.DefaultScheduleStatus.STOPPED
    stopped, made = dg.DefaultScheduleStatus.STOPPED, once_made(region)

    def schedule(
        name: str, job: dg.JobDefinition, at: str, status: dg.DefaultScheduleStatus, description: str, **more: Any
    ) -> dg.ScheduleDefinition:
        return dg.ScheduleDefinition(
            name=names.of(name), job=job, cron_schedule=at, default_status=status, description=description, **more
        )

    return [
        schedule(
            "consume",
            jobs.consume_until_caught_up,
            options.consume,
            stopped,
            "Consume what is there, cut, stop: instead of resident members.",
        ),
        schedule(
            "retire",
            jobs.retire_checkpoints,
            options.retire or cron(RETIRE, names.region),
            running,
            "Delete checkpoints beyond the last `retain`.",
            execution_fn=made,
        ),
        schedule(
            "prune",
            jobs.prune_runs,
            cron(PRUNE, names.region),
            stopped,
            "Remove old runs and events of the region from Dagster; never anything of live partitions.",
        ),
        schedule(
            "maintain",
            jobs.maintain_tables,
            cron(MAINTAIN, names.region),
            stopped,
            "Make few large files of the many small ones of the declared tables.",
            execution_fn=made,
        ),
        schedule(
            "look",
            jobs.observe_group,
            options.look or cron(LOOK, names.region),
            running,
            "Record the lag that Kafka knows.",
            execution_fn=made,
        ),
    ]
