"""Due cuts: the tick waits for one to fall due, so that it is seen within milliseconds (SPEC V1, V2; docs/clients.md C-D2).

While nothing comes from Kafka it opens the cuts itself: a quiet topic costs no runs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Region
from crkafka_core.plane import leases, triggers
from crkafka_core.region.lease import DriverLease
from dagster_project.launch_ahead import AHEAD
from dagster_project.names import ASKED_AT
from dagster_project.ops.cut import at
from dagster_project.resources import RegionResource
from dagster_project.sensors.shared import SensorSetup, attempt, lingering, on_its_way, run_key, threads_of

NEVER = 60.0
BY = "the Dagster sensor"


@dataclass(frozen=True)
class Due:
    """What the trigger says now."""

    region: Region
    now: float
    after: float
    """Seconds until it is time for a cut; at most 0 when it is."""
    cause: str
    driver: str
    """Who drives a cut at this moment; nothing is launched beside him."""
    since: float
    quiet: bool
    """The last cut was empty: most likely the next one is, too."""


def next_cut(reader: Reader, region: Region, *, period: float | None, counted: bool) -> Due:
    """When the next cut is due, in one snapshot. Its run is launched a little ahead: it opens the cut in time."""
    now, ahead = reader.now(), min(AHEAD, (period or 0.0) / 4)
    at = triggers.due_at(region, period=period, counted=counted)
    held = leases.held(reader, leases.DRIVER)
    cause = triggers.cause(reader, region, period=period, counted=counted, ahead=ahead)
    since = at or max(region.last_cut_at, region.resumed_at)
    last = reader.get(Checkpoint, region.next_checkpoint - 1) if cause else None
    quiet = last is not None and (
        last.status is CheckpointStatus.EMPTY or (last.status is CheckpointStatus.MERGED and not last.rows)
    )
    after = NEVER if at is None else at - now - (0.0 if quiet else ahead)
    return Due(region, now, after, cause, held[0].holder if held else "", since, quiet)


def wait(region: RegionResource, linger: float) -> Due:
    """Look until a cut is due or the time is over; a change in SQL ends the wait at once."""
    trigger = region.settings.trigger
    end = time.monotonic() + linger
    while True:
        due = region.read(
            lambda reader, row: next_cut(reader, row, period=trigger.period, counted=trigger.operator_driven)
        )
        left = end - time.monotonic()
        if (due.after <= 0 and due.cause and not due.driver) or left <= 0:
            return due
        pause = min(left, due.after if due.after > 0 else left)
        region.plane.wait(due.region.version, max(0.005, pause))


def open_here(region: RegionResource, due: Due) -> str:
    """Open the cut in the tick: where nothing comes from Kafka, a cut is worth no run (SPEC C6). Members finish it by themselves."""
    token = f"{BY} {due.region.epoch}:{due.region.next_checkpoint}"
    try:
        with DriverLease(region.plane, leases.DRIVER, BY, token=token) as lease:
            opened = region.open().open_cut(token=token, cause=due.cause, lease=lease.lease, if_new=True)
    except CrkafkaError as error:
        return str(error)
    return f"the last cut was empty: cut {opened.id} is opened without a run"


def sensor(setup: SensorSetup, job: dg.JobDefinition) -> dg.SensorDefinition:
    @dg.sensor(
        name=setup.names.of("trigger"),
        job=job,
        minimum_interval_seconds=1,
        default_status=setup.status,
        description="Launches a cut when it is due: by period, or when a member asks for one. While nothing comes from Kafka, it "
        "opens the cut itself: no run, and no checkpoint.",
    )
    def trigger(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        region = setup.region
        try:
            with lingering(threads_of(context), setup.options.linger) as seconds:
                due = wait(region, seconds)
        except CrkafkaError as error:
            return dg.SkipReason(str(error))
        row = due.region
        if due.after > 0 or not due.cause:
            return dg.SkipReason(
                f"{row.phase}: no cut is due" + (f" for {due.after:.1f} s" if due.after < NEVER else "")
            )
        if due.driver:
            return dg.SkipReason(f"a cut is due; {due.driver} drives one")
        if on_its_way(context.instance, setup.names.tags, job.name, begun=False):
            return dg.SkipReason("a cut is due; a run is on its way")
        if due.quiet:
            return dg.SkipReason(open_here(region, due))
        # By the number that it would get: a cut that finds nothing new leaves the head where it is.
        key = run_key(row, "cut", attempt(due.now, due.since), checkpoint=row.next_checkpoint)
        config = {"ops": {"open_cut": {"config": {"cause": due.cause}}}}
        tags = {**setup.names.tags, ASKED_AT: at(row)}
        return dg.SensorResult(run_requests=[dg.RunRequest(run_key=key, run_config=config, tags=tags)])

    return trigger
