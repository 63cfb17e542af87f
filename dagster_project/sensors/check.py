"""Checks of the data run by themselves: after new checkpoints, and daily where tables have other writers (SPEC A4, K6)."""

from __future__ import annotations

from dataclasses import dataclass

import dagster as dg

from dagster_project.sensors.shared import Cursor, SensorSetup, UnresolvedJob, on_its_way, read_or_skip, run_key

DAILY = 86_400.0


@dataclass(frozen=True)
class CheckCursor(Cursor):
    """When checks were last asked for, by database time, and for which state of the region."""

    at: float = 0.0
    uid: str = ""
    head: int = 0
    """0: not yet; a checkpoint was first seen at that time."""


def sensor(setup: SensorSetup, job: UnresolvedJob, *, shared: bool) -> dg.SensorDefinition:
    """`shared`: there are tables, into which others can write."""
    every = setup.options.check

    @dg.sensor(
        name=setup.names.of("check"),
        job=job,
        minimum_interval_seconds=30,
        default_status=setup.status if every else dg.DefaultSensorStatus.STOPPED,
        description="Runs the checks that read the data: the latest checkpoints, and tables for what others wrote into them.",
    )
    def check(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        answer = read_or_skip(setup.region, lambda reader, row: (row, reader.now()))
        if isinstance(answer, dg.SkipReason):
            return answer
        region, now = answer
        cursor = CheckCursor.parse(context.cursor)
        if not region.head:
            return dg.SkipReason("there is no checkpoint yet")
        if cursor.uid != region.uid:  # not at once: checks open a session of Spark, and hosts are just starting theirs
            why = f"the first checkpoint is there; checked in {every:.0f} s"
            return dg.SensorResult(skip_reason=why, cursor=str(CheckCursor(now, region.uid)))
        new = cursor.head != region.head
        due = cursor.at + (every if new else max(every, DAILY))
        if not new and not shared:
            return dg.SkipReason(f"nothing new since checkpoint {cursor.head}")
        if cursor.at <= now < due:
            last = f"checked {now - cursor.at:.0f} s ago; again" if cursor.head else "the first check is"
            return dg.SkipReason(f"{last} in {due - now:.0f} s")
        if on_its_way(context.instance, setup.names.tags, job.name):
            return dg.SkipReason("checks are on their way")
        request = dg.RunRequest(run_key=run_key(region, f"check@{now:.0f}"), tags=setup.names.tags)
        return dg.SensorResult(run_requests=[request], cursor=str(CheckCursor(now, region.uid, region.head)))

    return check
