"""A region as one consistent look at its control plane: what `show` and `watch` display."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crkafka_core.config import RegionConfig
from crkafka_core.control import Reader
from crkafka_core.model.offsets import TP, unpack
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, Event, Group, Lease, Member, MemberStatus, PauseMark, Region, Table
from crkafka_core.plane import (
    alarms,
    checkpoints,
    cuts,
    epochs,
    events,
    hosts,
    lateness,
    leases,
    life,
    members,
    pauses,
    retire,
    triggers,
)
from crkafka_core.plane.lateness import TableLag


@dataclass(frozen=True)
class MemberView:
    """One member, as it last reported."""

    name: str
    status: MemberStatus
    host: str
    incarnation: str
    generation: int
    partitions: tuple[TP, ...] | None
    """None: it has not reported what it holds."""
    epoch: int
    base: int
    rebalances: int
    registered_at: float
    metrics: Mapping[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """Everything from one read."""

    region: Region
    now: float
    """Database time."""
    waits_for: str
    """What keeps the region from resuming or cutting; empty when nothing does."""
    alarm: str
    """What somebody should look at now; empty when all is well (SPEC G8, X8)."""
    cut_due_at: float | None
    """0.0 is now, None is never."""
    head: Checkpoint | None
    open_cut: Checkpoint | None
    missing: tuple[str, ...]
    """Members that the open cut waits for."""
    members: tuple[MemberView, ...]
    groups: tuple[Group, ...]
    tables: tuple[Table, ...]
    lags: tuple[TableLag, ...]
    """How far each table is behind."""
    unfenced: tuple[str, ...]
    """Tables that have not followed the last rewind (SPEC X4)."""
    pauses: tuple[PauseMark, ...]
    leases: tuple[Lease, ...]
    held: tuple[str, ...]
    """Who keeps old checkpoints from being retired."""
    checkpoints: tuple[Checkpoint, ...]
    """The last ones, newest first."""
    events: tuple[Event, ...]
    """The last ones, oldest first."""


def take(reader: Reader, region: Region, config: RegionConfig, *, last: int = 8) -> Snapshot:
    """Look at the region."""
    found = members.all_of(reader)
    at_rest = region.phase in (Phase.IDLE, Phase.STOPPED)
    open_cut = reader.get(Checkpoint, region.open_cut) if region.open_cut else None
    return Snapshot(
        region=region,
        now=reader.now(),
        waits_for=region.stop_reason if at_rest else hosts.waits(reader, region, cuts.unready(reader, region)),
        alarm=alarms.current(reader, region),
        cut_due_at=triggers.due_at(region, period=config.trigger.period, counted=config.trigger.operator_driven),
        head=reader.get(Checkpoint, region.head) if region.head else None,
        open_cut=open_cut,
        missing=tuple(cuts.waits_for(reader, region, region.open_cut)) if open_cut else (),
        members=tuple(_member(m) for m in sorted(found, key=lambda m: members.index(m.name))),
        groups=tuple(life.groups_of(reader)),
        tables=tuple(life.tables_of(reader)),
        lags=tuple(lateness.lags(reader, region)),
        unfenced=tuple(t.name for t in epochs.unfenced(reader)),
        pauses=tuple(pauses.all_of(reader)),
        leases=tuple(
            lease
            for kind in ("driver", "retire", "reader", *(f"writer:{t.name}" for t in life.tables_of(reader)))
            for lease in leases.held(reader, kind)
        ),
        held=retire.plan(reader, region).held,
        checkpoints=tuple(checkpoints.newest(reader, last) if last else ()),
        events=tuple(events.last(reader, last) if last else ()),
    )


def _member(row: Member) -> MemberView:
    return MemberView(
        name=row.name,
        status=row.status,
        host=row.host,
        incarnation=row.incarnation,
        generation=row.generation,
        partitions=tuple(sorted(unpack(row.assignment_json))) if row.assignment_json else None,
        epoch=row.epoch,
        base=row.base,
        rebalances=row.rebalances,
        registered_at=row.registered_at,
        metrics=json.loads(row.metrics_json or "{}"),
    )
