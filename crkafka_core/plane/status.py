"""A region now, from one read of its control plane: what `show`, metrics, probes, reports and Dagster's checks all ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crkafka_core.control import Reader
from crkafka_core.model.offsets import TP, unpack
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, Group, Lease, Member, MemberStatus, PauseMark, Region, Table
from crkafka_core.plane import alarms, cuts, epochs, hosts, lateness, leases, merging, pauses, retire, roster, settling
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

    @property
    def machine(self) -> str:
        """Where it runs; of a task in Spark its process stands behind that."""
        return self.host.partition(" pid ")[0]


@dataclass(frozen=True)
class Status:
    """What `Region.status()` returns; `crkafka show` adds the last checkpoints and events."""

    region: Region
    now: float
    waits_for: str
    """What keeps the region from resuming or cutting, or why it is at rest; empty when nothing does."""
    alarm: str
    """What needs attention now; empty when all is well (SPEC G8, X8)."""
    no_merge: str
    """That no checkpoint was merged for three periods; empty when all is well (SPEC X6)."""
    last_cut_missed: str
    """That the last stop came about without the promised last cut, and why; empty otherwise (SPEC G9)."""
    cut_due_at: float | None
    """0.0 is now, None is never."""
    head: Checkpoint | None
    open_cut: Checkpoint | None
    missing: tuple[str, ...]
    members: tuple[MemberView, ...]
    groups: tuple[Group, ...]
    tables: tuple[Table, ...]
    lags: tuple[TableLag, ...]
    unfenced: tuple[str, ...]
    pauses: tuple[PauseMark, ...]
    leases: tuple[Lease, ...]
    held: tuple[str, ...]
    """Holders of old checkpoints that would be retired."""
    held_since: float
    """When the oldest of those checkpoints was merged."""

    @property
    def topics(self) -> dict[str, tuple[int, int]]:
        """Topic → how many of its partitions live members hold, and their lag, as reported last."""
        topics: dict[str, tuple[int, int]] = {}
        for member in self.live:
            for topic, partitions in (member.metrics.get("partitions") or {}).items():
                count, lag = topics.get(topic, (0, 0))
                lag += sum(max(0, int(high) - int(position)) for position, high in partitions.values())
                topics[topic] = count + len(partitions), lag
        return topics

    @property
    def kafka_away(self) -> str:
        """That a member's client does not reach Kafka, as it reported last."""
        return next((str(m.metrics["kafkaAway"]) for m in self.live if m.metrics.get("kafkaAway")), "")

    @property
    def live(self) -> tuple[MemberView, ...]:
        """The members that are neither lost nor gone."""
        return tuple(m for m in self.members if m.status is MemberStatus.LIVE)


def status_of(reader: Reader, region: Region) -> Status:
    tables = reader.select(Table)
    retirement = retire.plan(reader, region)
    open_cut = reader.get(Checkpoint, region.open_cut) if region.open_cut else None
    return Status(
        region=region,
        now=reader.now(),
        waits_for=waits_for(reader, region),
        alarm=alarms.current(reader, region),
        no_merge=alarms.no_merge(reader, region),
        last_cut_missed=alarms.last_cut_missed(reader, region),
        cut_due_at=cuts.due_at(region, period=region.period or None, counted=True),
        head=reader.get(Checkpoint, region.head) if region.head else None,
        open_cut=open_cut,
        missing=tuple(merging.waits_for(reader)) if open_cut else (),
        members=tuple(_member(m) for m in sorted(roster.all_of(reader), key=lambda m: roster.index(m.name))),
        groups=tuple(reader.select(Group, ("region", "=", region.name))),
        tables=tuple(tables),
        lags=tuple(lateness.lags(reader, region)),
        unfenced=tuple(t.name for t in epochs.unfenced(reader)),
        pauses=tuple(pauses.all_of(reader)),
        leases=tuple(
            lease
            for kind in (leases.DRIVER, "retire", "reader", *(f"writer:{t.name}" for t in tables))
            for lease in leases.held(reader, kind)
        ),
        held=retirement.held,
        held_since=retirement.held_since,
    )


def waits_for(reader: Reader, region: Region) -> str:
    """What keeps the region from resuming or cutting, and what to do where it would wait for ever; why it stopped, if it has."""
    if region.phase in (Phase.IDLE, Phase.STOPPED):
        return region.stop_reason or hosts.between(reader)
    unready = settling.unready(reader, region)
    if not unready:  # what a rewind superseded may first have to start Spark
        owed = [table.name for table in epochs.unfenced(reader)] if region.phase is Phase.REWINDING else []
        return f"what was superseded leaves {', '.join(owed)} first" if owed else ""
    who = hosts.missing(reader, region) or hosts.starting(reader, region)
    return who or "; ".join(filter(None, (unready, settling.held_up(reader))))


def _member(row: Member) -> MemberView:
    held = tuple(sorted(unpack(row.assignment_json))) if row.assignment_json else None
    reached = (row.epoch, row.base, row.rebalances, row.registered_at)
    return MemberView(row.name, row.status, row.host, row.incarnation, row.generation, held, *reached, row.metrics)
