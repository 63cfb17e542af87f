"""What must not wait for a person: lost members, stuck cuts, tables that owe a fence, a region that stopped (SPEC G4, G7, X4, X8)."""

from __future__ import annotations

import time
from dataclasses import dataclass

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.member.observer import LossWatch
from crkafka_core.model.errors import CrkafkaError, Stale
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Member, MemberStatus, Region
from crkafka_core.plane import advance, limits, members, tables
from dagster_project import opened
from dagster_project.resources import RegionResource
from dagster_project.sensors.asking import Made, attempt, on_its_way, run_key

BY = "the Dagster sensor"


@dataclass(frozen=True)
class Seen:
    """One snapshot."""

    region: Region
    now: float
    live: tuple[Member, ...]
    due: bool
    fencing: str
    """Who lets a table follow a rewind at this moment."""


def look(reader: Reader, region: Region) -> Seen:
    there = tuple(m for m in members.all_of(reader, region.name) if m.status is MemberStatus.LIVE)
    owed = tables.unfenced(reader, region.name) if region.phase is Phase.REWINDING else []
    fencing = next((who for t in owed if (who := tables.fencer(reader, t))), "")
    return Seen(region, reader.now(), there, advance.due(reader, region), fencing)


def tend(region: RegionResource, seen: Seen) -> list[str]:
    """Do what anyone may do who finds it due; what was done, in words."""
    done: list[str] = []
    if seen.due:
        phase = region.plane.do(advance.advance)
        if phase is not seen.region.phase:
            done.append(f"{seen.region.phase} → {phase}")
    session = limits.of(seen.region).session_timeout
    losses = opened.once("losses", seen.region.uid, lambda: LossWatch(session))
    for member in losses.lost(list(seen.live), time.monotonic()):
        try:
            region.plane.do(
                lambda tx, m=member: members.lose(
                    tx, m.name, m.incarnation, renewals=m.renewals, by=BY, why="its lease was not renewed"
                )
            )
            done.append(f"{member.name} is lost")
        except Stale:
            continue
    return done


def requests(made: Made, seen: Seen, instance: dg.DagsterInstance) -> list[dg.RunRequest]:
    """Runs that the region waits for."""
    row = seen.region
    if row.phase is Phase.REWINDING:
        if seen.fencing or on_its_way(instance, made.names.of("reset_region")):
            return []
        key = run_key(row, "rewind", attempt(seen.now, row.phase_since))
        config = {"ops": {"reset": {"config": {"follow": True, "cause": row.reset_cause}}}}
        return [
            dg.RunRequest(
                run_key=key,
                job_name=made.names.of("reset_region"),
                run_config=config,
                tags={"crkafka/region": row.name},
            )
        ]
    if row.phase is Phase.STOPPED:
        key = run_key(row, f"stopped@{row.phase_since:.3f}")
        tags = {"crkafka/region": row.name, "crkafka/stop_reason": row.stop_reason[:200]}
        return [dg.RunRequest(run_key=key, job_name=made.names.of("stopped_alarm"), tags=tags)]
    return []


def sensor(made: Made, reset: dg.JobDefinition, alarm: dg.JobDefinition) -> dg.SensorDefinition:
    @dg.sensor(
        name=made.names.of("watch"),
        jobs=[reset, alarm],
        minimum_interval_seconds=1,
        default_status=made.status,
        required_resource_keys=made.resources,
        description="Declares members lost, ends cuts whose run died, lets tables follow a reset, alarms when the region has stopped.",
    )
    def watch(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        region = made.region(context)
        try:
            done = tend(region, region.read(look))
            seen = region.read(look)
        except CrkafkaError as error:
            return dg.SkipReason(str(error))
        for words in done:
            context.log.warning(words)
        found = requests(made, seen, context.instance)
        if found:
            return dg.SensorResult(run_requests=found)
        if seen.fencing:
            done.append(f"{seen.fencing} lets a table follow the rewind")
        return dg.SkipReason(
            "; ".join([*done, f"{seen.region.phase}, epoch {seen.region.epoch}, {len(seen.live)} members"])
        )

    return watch
