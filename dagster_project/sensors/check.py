"""Checks of the data run by themselves: after new checkpoints, and daily where tables have other writers (SPEC A4, K6)."""

from __future__ import annotations

from dataclasses import dataclass

import dagster as dg

from dagster_project.sensors.shared import (
    Cursor,
    SensorSetup,
    UnresolvedJob,
    duration,
    on_its_way,
    read_or_skip,
    run_key,
)

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
        description="Launches the checks that read data: of the latest checkpoints, and of tables for commits of other programs.",
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
            why = f"first run in {duration(every)}"
            return dg.SensorResult(skip_reason=why, cursor=str(CheckCursor(now, region.uid)))
        new = cursor.head != region.head
        due = cursor.at + (every if new else max(every, DAILY))
        if not new and not shared:
            return dg.SkipReason(f"nothing new since checkpoint {cursor.head}")
        if cursor.at <= now < due:
            last = f"last run {duration(now - cursor.at)} ago; next" if cursor.head else "first"
            return dg.SkipReason(f"{last} run in {duration(due - now)}")
        if on_its_way(context.instance, setup.names.tags, job.name):
            return dg.SkipReason("a run of the checks is on its way")
        request = dg.RunRequest(run_key=run_key(region, f"check@{now:.0f}"), tags=setup.names.tags)
        return dg.SensorResult(run_requests=[request], cursor=str(CheckCursor(now, region.uid, region.head)))

    return check
