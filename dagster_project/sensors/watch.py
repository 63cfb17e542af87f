"""What must not wait for a person: lost members, stuck cuts, missing fences of tables, a stopped region (SPEC G4, G7, X4, X8)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

import dagster as dg

from crkafka_core.control import Reader, Tx
from crkafka_core.member.observer import LossWatch
from crkafka_core.model import limits
from crkafka_core.model.errors import CrkafkaError, Stale
from crkafka_core.model.phase import FLOWING, Phase
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Member, Region
from crkafka_core.plane import advance, epochs, members, roster, tables
from dagster_project import opened
from dagster_project.names import FOLLOWS
from dagster_project.resources import RegionResource
from dagster_project.sensors.shared import SensorSetup, attempt, on_its_way, run_key

BY = "the Dagster sensor"
LOOP_S = 5
"""Seconds between two looks of the daemon at its sensors (docs/clients.md C-D1)."""


@dataclass(frozen=True)
class WatchState:
    """What the sensor acts on, from one read; it is read each second, so it is no more than that."""

    region: Region
    now: float
    live: tuple[Member, ...]
    due: bool
    """Whether the region can be advanced."""
    fencing: str
    """Who is making a table's fence at this moment."""
    waits_for_fence: bool
    """Whether somebody has to let a table follow: the region waits for it, or no host does it beside the region, as of one that was
    declared again."""


def state_of(reader: Reader, region: Region) -> WatchState:
    live = tuple(roster.live(reader))
    owed = epochs.unfenced(reader) if region.phase is Phase.REWINDING or region.phase in FLOWING else []
    fencing = next((who for t in owed if (who := tables.fencer(reader, t))), "")
    left = bool(owed) and (region.phase is Phase.REWINDING or not all(tables.feeder_of(reader, t) for t in owed))
    return WatchState(region, reader.now(), live, advance.due(reader, region, live), fencing, left)


def tend(region: RegionResource, state: WatchState, every: int) -> list[str]:
    """Advance the region and declare members lost where due; what was done, in words. `every`: seconds between two looks at leases."""
    done: list[str] = []
    if state.due:
        phase = region.plane.do(advance.advance)
        if phase is not state.region.phase:
            done.append(f"{state.region.phase} → {phase}")
    patience = max(limits.of(state.region).session_timeout, 3 * every)
    losses = opened.once("losses", f"{state.region.uid} {patience}", lambda: LossWatch(patience))
    for member in losses.lost(list(state.live), time.monotonic()):
        try:
            region.plane.do(partial(_lose, member=member))
            done.append(f"{member.name} is lost")
        except Stale:
            continue
    return done


def _lose(tx: Tx, *, member: Member) -> None:
    members.lose(tx, member.name, member.incarnation, renewals=member.renewals, by=BY, why="its lease was not renewed")


def requests(setup: SensorSetup, state: WatchState, context: dg.SensorEvaluationContext) -> list[dg.RunRequest]:
    """Runs that the region waits for."""
    row = state.region
    if state.waits_for_fence:
        if state.fencing or on_its_way(context.instance, setup.names.tags, setup.names.of("reset_region")):
            return []
        since = row.phase_since if row.phase is Phase.REWINDING else row.created_at
        key = run_key(row, "rewind", attempt(state.now, since))
        config = {"ops": {"reset": {"config": {"cause": row.reset_cause}}}}
        return [
            dg.RunRequest(
                run_key=key,
                job_name=setup.names.of("reset_region"),
                run_config=config,
                tags={**setup.names.tags, FOLLOWS: str(row.epoch)},
            )
        ]
    if row.phase is Phase.STOPPED:
        key = run_key(row, f"stopped@{row.phase_since:.3f}")
        tags = {**setup.names.tags, "crkafka/stop_reason": row.stop_reason[:200]}
        return [dg.RunRequest(run_key=key, job_name=setup.names.of("stopped_alarm"), tags=tags)]
    return []


def sensor(setup: SensorSetup, reset: dg.JobDefinition, alarm: dg.JobDefinition) -> dg.SensorDefinition:
    @dg.sensor(
        name=setup.names.of("watch"),
        jobs=[reset, alarm],
        minimum_interval_seconds=setup.every(1),
        default_status=setup.status,
        description="Declares silent members lost, and ends cuts whose run has died. Launches reset_region while tables have to follow a "
        "rewind, and stopped_alarm when the region has stopped.",
    )
    def watch(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        region = setup.region
        try:
            done = tend(region, region.read(state_of), setup.every(LOOP_S))
            state = region.read(state_of)
        except CrkafkaError as error:
            return dg.SkipReason(str(error))
        for words in done:
            context.log.warning(words)
        launches = requests(setup, state, context)
        if launches:
            return dg.SensorResult(run_requests=launches)
        if state.fencing:
            done.append(f"{state.fencing} rewinds a table")
        return dg.SkipReason(
            "; ".join([*done, f"{state.region.phase}, epoch {state.region.epoch}, {plural(len(state.live), 'member')}"])
        )

    return watch
