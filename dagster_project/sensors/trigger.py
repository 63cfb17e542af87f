"""Due cuts: the tick waits for one to fall due, so that it is seen within milliseconds (SPEC V1, V2; FACTS D2)."""

from __future__ import annotations

import time
from dataclasses import dataclass

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.rows import Region
from crkafka_core.plane import leases, triggers
from dagster_project.resources import RegionResource
from dagster_project.sensors.asking import Made, attempt, run_key

NEVER = 60.0


@dataclass(frozen=True)
class Due:
    """What the trigger says now."""

    region: Region
    now: float
    after: float
    """Seconds until a cut is due; at most 0 when it is."""
    cause: str
    driver: str
    """Who drives a cut at this moment; nothing is launched beside him."""
    since: float


def look(reader: Reader, region: Region, *, period: float | None, counted: bool) -> Due:
    """When the next cut is due, in one snapshot."""
    now = reader.now()
    at = triggers.due_at(region, period=period, counted=counted)
    held = leases.held(reader, region.name, "driver")
    cause = triggers.cause(reader, region, period=period, counted=counted)
    since = at or max(region.last_cut_at, region.resumed_at)
    return Due(region, now, NEVER if at is None else at - now, cause, held[0].holder if held else "", since)


def wait(region: RegionResource, linger: float) -> Due:
    """Look until a cut is due or the time is over; a change in SQL ends the wait at once."""
    trigger = region.settings.trigger
    end = time.monotonic() + linger
    while True:
        due = region.read(
            lambda reader, row: look(reader, row, period=trigger.period, counted=trigger.tuples is not None)
        )
        left = end - time.monotonic()
        if (due.after <= 0 and due.cause and not due.driver) or left <= 0:
            return due
        pause = min(left, due.after if due.after > 0 else left)
        region.plane.wait(due.region.version, max(0.005, pause))


def sensor(made: Made, job: dg.JobDefinition) -> dg.SensorDefinition:
    @dg.sensor(
        name=made.names.of("trigger"),
        job=job,
        minimum_interval_seconds=1,
        default_status=made.status,
        required_resource_keys=made.resources,
        description="Launches a cut when it is due: by period, or when a member asks for one.",
    )
    def trigger(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        region = made.region(context)
        try:
            due = wait(region, made.options.linger)
        except CrkafkaError as error:
            return dg.SkipReason(str(error))
        row = due.region
        if due.after > 0 or not due.cause:
            return dg.SkipReason(
                f"{row.phase}: no cut is due" + (f" for {due.after:.1f} s" if due.after < NEVER else "")
            )
        if due.driver:
            return dg.SkipReason(f"a cut is due; {due.driver} drives one")
        key = run_key(row, "cut", attempt(due.now, due.since))
        config = {"ops": {"open_cut": {"config": {"cause": due.cause, "epoch": row.epoch, "head": row.head}}}}
        tags = {"crkafka/region": row.name, "crkafka/late_ms": str(round((due.now - max(0.0, due.since)) * 1000))}
        return dg.SensorResult(run_requests=[dg.RunRequest(run_key=key, run_config=config, tags=tags)])

    return trigger
