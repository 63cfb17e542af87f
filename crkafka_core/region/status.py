"""A region at a glance: phase, members, the open cut, what it waits for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from crkafka_core.control import Reader
from crkafka_core.model.offsets import TP, unpack
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, Region
from crkafka_core.plane import alarms, cuts, lateness, members, retire
from crkafka_core.plane.epochs import unfenced
from crkafka_core.plane.lateness import TableLag


@dataclass(frozen=True)
class MemberStatus:
    """One operator name."""

    name: str
    status: str
    incarnation: str
    host: str
    epoch: int
    base: int
    generation: int
    held: tuple[TP, ...] | None
    rebalances: int
    metrics: dict[str, Any]


@dataclass(frozen=True)
class Status:
    """What `crkafka show` prints."""

    name: str
    uid: str
    phase: Phase
    wanted: str
    epoch: int
    head: int
    open_cut: Checkpoint | None
    waits_for: str
    """What keeps it from running or from a cut, in words."""
    alarm: str
    """What somebody should look at now (SPEC G8, X8); empty when all is well."""
    no_merge: str
    """That no checkpoint was merged for three periods, in words; empty when all is well (SPEC X6)."""
    last_cut_missed: str
    """That the last stop came about without the promised last cut, and why; empty otherwise (SPEC G9)."""
    stop_reason: str
    members_wanted: int
    members: tuple[MemberStatus, ...]
    unfenced: tuple[str, ...]
    tables: tuple[TableLag, ...]
    retirement_held_by: tuple[str, ...]
    consecutive_resets: int
    last_cut_at: float
    now: float


def status_of(reader: Reader, region: Region) -> Status:
    """One snapshot."""
    phase = region.phase
    return Status(
        name=region.name,
        uid=region.uid,
        phase=phase,
        wanted=region.wanted,
        epoch=region.epoch,
        head=region.head,
        open_cut=reader.get(Checkpoint, region.open_cut) if region.open_cut else None,
        waits_for="" if phase in (Phase.IDLE, Phase.STOPPED) else cuts.unready(reader, region),
        alarm=alarms.current(reader, region),
        no_merge=alarms.no_merge(reader, region),
        last_cut_missed=alarms.last_cut_missed(reader, region),
        stop_reason=region.stop_reason,
        members_wanted=region.members_wanted,
        members=tuple(
            MemberStatus(
                m.name, m.status, m.incarnation, m.host, m.epoch, m.base, m.generation,
                tuple(sorted(unpack(m.assignment_json))) if m.assignment_json else None, m.rebalances, json.loads(m.metrics_json),
            )
            for m in members.all_of(reader)
        ),
        tables=tuple(lateness.lags(reader, region)),
        unfenced=tuple(t.name for t in unfenced(reader)),
        retirement_held_by=retire.plan(reader, region).held,
        consecutive_resets=region.consecutive,
        last_cut_at=region.last_cut_at,
        now=reader.now(),
    )  # fmt: skip
