"""Resident runs: one hosts the members of a region that is wanted, one brings assets what is merged (SPEC A2, A7)."""

from __future__ import annotations

from collections.abc import Callable

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Region
from crkafka_core.plane import hosts, leases
from dagster_project.ops.follow import LEASE
from dagster_project.sensors.shared import SensorSetup, attempt, on_its_way, read_or_skip, run_key


def sensor(setup: SensorSetup, job: dg.JobDefinition) -> dg.SensorDefinition:
    status = setup.status if setup.options.host else dg.DefaultSensorStatus.STOPPED
    config: dict[str, object] = {"ops": {"host": {"config": {"start": False}}}}
    return _resident(setup, job, "host", hosts.wanted, "the members have a host", status, config)


def of_follower(setup: SensorSetup, job: dg.JobDefinition) -> dg.SensorDefinition:
    return _resident(setup, job, "follow", unfollowed, "a run follows the merges", setup.status, {})


def unfollowed(reader: Reader, region: Region) -> str:
    """Why a run has to follow the merges; empty where one does, or where there are none to come."""
    none = region.phase is Phase.IDLE or leases.held(reader, LEASE)
    return "" if none else f"{region.phase}, and no run follows the merges"


def _resident(
    setup: SensorSetup,
    job: dg.JobDefinition,
    what: str,
    wanted: Callable[[Reader, Region], str],
    reason: str,
    status: dg.DefaultSensorStatus,
    config: dict[str, object],
) -> dg.SensorDefinition:
    """A sensor that launches a resident run where one is `wanted`; `reason`: why it need not."""

    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        answer = read_or_skip(setup.region, lambda reader, row: (row, reader.now(), wanted(reader, row)))
        if isinstance(answer, dg.SkipReason):
            return answer
        region, now, why = answer
        if not why:
            return dg.SkipReason(f"{region.phase}: {'nothing to do' if region.phase is Phase.IDLE else reason}")
        if on_its_way(context.instance, setup.names.tags, job.name):
            return dg.SkipReason(f"{why}; a run is on its way")
        key = run_key(region, what, attempt(now, region.created_at))
        return dg.SensorResult(run_requests=[dg.RunRequest(run_key=key, run_config=config, tags=setup.names.tags)])

    return dg.SensorDefinition(
        name=setup.names.of(what),
        evaluation_fn=evaluate,
        job=job,
        minimum_interval_seconds=setup.every(5),
        default_status=status,
        description=f"Launches {job.name} when the region is started, unless {reason}.",
    )
