"""Members that nobody hosts: a region that is wanted and has no live member gets a run that hosts them (SPEC A2)."""

from __future__ import annotations

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Lease, Region
from crkafka_core.plane import members
from crkafka_core.region.host import LEASE
from dagster_project.sensors.shared import SensorSetup, attempt, on_its_way, read_or_skip, run_key

GRACE = 5.0
"""Seconds for which a region may be without members before a host is started for it."""


def missing(reader: Reader, region: Region) -> tuple[Region, float, str]:
    """Why a host is needed; empty when none is."""
    now = reader.now()
    if region.wanted is not Wanted.RUN or region.phase is Phase.IDLE:
        return region, now, ""
    live = len(members.live(reader))
    lease = reader.get(Lease, LEASE, "")
    if now - region.phase_since < GRACE or (lease is not None and lease.until > now - GRACE):
        return region, now, ""
    if lease is not None and lease.token:  # not given back: nobody starts again what is left of its members
        return region, now, f"{lease.holder} does not host its members any more, {plural(live, 'is', 'are')} there"
    if live:
        return region, now, ""
    return (
        region,
        now,
        f"{region.phase}, {plural(region.members_wanted, 'member is', 'members are')} wanted and none is there",
    )


def sensor(setup: SensorSetup, job: dg.JobDefinition) -> dg.SensorDefinition:
    @dg.sensor(
        name=setup.names.of("host"),
        job=job,
        minimum_interval_seconds=5,
        default_status=setup.status if setup.options.host else dg.DefaultSensorStatus.STOPPED,
        description="Hosts the members when the region is wanted and nobody else does.",
    )
    def hosting(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        answer = read_or_skip(setup.region, missing)
        if isinstance(answer, dg.SkipReason):
            return answer
        region, now, why = answer
        if not why:
            return dg.SkipReason(f"{region.phase}: {'nothing to host' if region.phase is Phase.IDLE else 'hosted'}")
        if on_its_way(context.instance, job.name):
            return dg.SkipReason(f"{why}; a run that hosts them is on its way")
        config = {"ops": {"host": {"config": {"start": False}}}}
        key = run_key(region, "host", attempt(now, region.created_at))
        return dg.SensorResult(
            run_requests=[dg.RunRequest(run_key=key, run_config=config, tags={"crkafka/region": region.name})]
        )

    return hosting
