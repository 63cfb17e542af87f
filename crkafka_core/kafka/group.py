"""Kafka's view of a group: state, members, offsets, lag, and what a broker did not answer (SPEC U5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException

from crkafka_core.kafka.edge import Admin, Committed
from crkafka_core.kafka.errors import error_of
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.model.visible import one_line


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    client_id: str
    instance_id: str
    host: str
    partitions: frozenset[TP]


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """A group's offsets in one partition; None is unknown."""

    tp: TP
    committed: int | None
    metadata: str
    earliest: int | None
    last_stable: int | None
    high_watermark: int | None

    @property
    def lag(self) -> int | None:
        """Upper bound of the records up to the last stable offset: offsets are not dense (docs/clients.md C-K5)."""
        if self.last_stable is None:
            return None
        start = self.committed if self.committed is not None else self.earliest
        return max(0, self.last_stable - start) if start is not None else None


@dataclass(frozen=True, slots=True)
class GroupReport:
    group_id: str
    state: str
    """Empty, PreparingRebalance, CompletingRebalance, Stable, Dead, or Unknown."""
    coordinator: str
    assignor: str
    members: tuple[GroupMember, ...]
    partitions: tuple[PartitionProgress, ...]
    gaps: tuple[str, ...]
    """Parts without an answer, and why."""

    @property
    def lag(self) -> int | None:
        """Sum of the known lags; None if none is known."""
        known = [p.lag for p in self.partitions if p.lag is not None]
        return sum(known) if known else None


def report(admin: Admin, group_id: str, tps: Iterable[TP] = ()) -> GroupReport:
    """The group now, with these partitions and all that are assigned to its members."""
    gaps: list[str] = []
    state, coordinator, assignor = "Unknown", "", ""
    members: tuple[GroupMember, ...] = ()
    try:
        described = admin.describe_group(group_id)
        state = described.state.name.title().replace("_", "").replace("Rebalancing", "Rebalance")
        node = described.coordinator
        coordinator = f"{node.host}:{node.port}" if node is not None else ""
        assignor = described.partition_assignor or ""
        members = tuple(sorted(map(_member, described.members), key=lambda m: (m.client_id, m.member_id)))
    except (KafkaException, CrkafkaError) as error:
        gaps.append(f"state and members: {_why(error)}")
    asked = sorted({*tps, *(tp for m in members for tp in m.partitions)})
    committed: Mapping[TP, Committed] = {}
    try:
        committed = admin.committed(group_id, asked)
    except CrkafkaError as error:
        gaps.append(f"committed offsets: {_why(error)}")
    stable, silent = admin.known_watermarks(asked)
    high, later = admin.known_watermarks(stable, "read_uncommitted")
    if why := {_why(error) for error in (silent | later).values()}:
        gaps.append(f"end offsets: {'; '.join(sorted(why))}")
    partitions = []
    for tp in asked:
        commit = committed.get(tp)
        at, metadata = (None, "") if commit is None else (commit.offset, commit.metadata)
        earliest, last_stable = stable.get(tp, (None, None))
        partitions.append(PartitionProgress(tp, at, metadata, earliest, last_stable, high.get(tp, (None, None))[1]))
    return GroupReport(group_id, state, coordinator, assignor, members, tuple(partitions), tuple(gaps))


def _member(member: Any) -> GroupMember:
    tps = frozenset(TP(p.topic, p.partition) for p in (member.assignment.topic_partitions if member.assignment else ()))
    names = (member.member_id, member.client_id, member.group_instance_id, member.host)
    member_id, client_id, instance_id, host = (one_line(str(name or "")) for name in names)
    return GroupMember(member_id, client_id, instance_id, host.lstrip("/"), tps)


def _why(error: Exception) -> str:
    return str(error_of(error, "describing the group") if isinstance(error, KafkaException) else error)
