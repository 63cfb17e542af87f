"""Members that nobody hosts: a region that is wanted and has no live member gets a run that hosts them (SPEC A2)."""

from __future__ import annotations

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.rows import Lease, Member, MemberStatus, Region
from dagster_project.ops.host import LEASE
from dagster_project.sensors.asking import Made, asked, attempt, on_its_way, run_key

GRACE = 5.0
"""Seconds for which a region may be without members before a host is started for it."""


def missing(reader: Reader, region: Region) -> tuple[Region, float, str]:
    """Why a host is needed; empty when none is."""
    now = reader.now()
    if region.wanted is not Wanted.RUN or region.phase is Phase.IDLE:
        return region, now, ""
    live = reader.count(Member, ("region", "=", region.name), ("status", "=", MemberStatus.LIVE))
    lease = reader.get(Lease, region.name, LEASE, "")
    if now - region.phase_since < GRACE or (lease is not None and lease.until > now):
        return region, now, ""
    if live < region.members_wanted and lease is not None and lease.token:
        return region, now, f"{lease.holder} does not host its members any more, {live} are there"
    if live:
        return region, now, ""
    return region, now, f"{region.phase}, {region.members_wanted} members are wanted and none is there"


def sensor(made: Made, job: dg.JobDefinition) -> dg.SensorDefinition:
    @dg.sensor(
        name=made.names.of("host"),
        job=job,
        minimum_interval_seconds=5,
        default_status=made.status if made.options.host else dg.DefaultSensorStatus.STOPPED,
        required_resource_keys=made.resources,
        description="Hosts the members when the region is wanted and nobody else does.",
    )
    def hosting(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        found = asked(made.region(context), missing)
        if isinstance(found, dg.SkipReason):
            return found
        region, now, why = found
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
