"""Members that nobody hosts: a region that is wanted and has no live member gets a run that hosts them (SPEC A2)."""

from __future__ import annotations

import dagster as dg

from crkafka_core.model.phase import Phase
from crkafka_core.plane import hosts
from dagster_project.sensors.shared import SensorSetup, attempt, on_its_way, read_or_skip, run_key


def sensor(setup: SensorSetup, job: dg.JobDefinition) -> dg.SensorDefinition:
    @dg.sensor(
        name=setup.names.of("host"),
        job=job,
        minimum_interval_seconds=setup.every(5),
        default_status=setup.status if setup.options.host else dg.DefaultSensorStatus.STOPPED,
        description="Hosts the members when the region is wanted and nobody else does.",
    )
    def hosting(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        answer = read_or_skip(setup.region, lambda reader, row: (row, reader.now(), hosts.wanted(reader, row)))
        if isinstance(answer, dg.SkipReason):
            return answer
        region, now, why = answer
        if not why:
            return dg.SkipReason(f"{region.phase}: {'nothing to host' if region.phase is Phase.IDLE else 'hosted'}")
        if on_its_way(context.instance, setup.names.tags, job.name):
            return dg.SkipReason(f"{why}; a run that hosts them is on its way")
        config = {"ops": {"host": {"config": {"start": False}}}}
        key = run_key(region, "host", attempt(now, region.created_at))
        return dg.SensorResult(run_requests=[dg.RunRequest(run_key=key, run_config=config, tags=setup.names.tags)])

    return hosting
