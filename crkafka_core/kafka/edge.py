"""Interfaces of what a member needs of Kafka, implemented by `GroupConsumer` and `KafkaAdmin`, and by the simulation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol

from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP

if TYPE_CHECKING:
    from crkafka_core.segments.batch import Batch

Isolation = Literal["read_committed", "read_uncommitted"]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    id: str
    """Unique for each topic, also for one recreated under its old name (docs/clients.md C-R9); empty if the broker gives none."""
    partitions: tuple[int, ...]

    def tps(self, topic: str) -> frozenset[TP]:
        return frozenset(TP(topic, partition) for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset of a group with its metadata (SPEC D2)."""

    offset: int
    metadata: str
    leader_epoch: int = -1
    """Leader epoch of the record before `offset`; −1 if the commit has none (SPEC S4)."""


class Kind(StrEnum):
    """Which callback ran."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One rebalance callback: `assigned` has all partitions held now, `revoked` those that were taken."""

    kind: Kind
    partitions: frozenset[TP]
    generation: int
    """As seen inside the callback, with KIP-848 the member epoch; −1 if it is unknown (docs/clients.md C-R3)."""


@dataclass(frozen=True, slots=True)
class Polled:
    batch: Batch | None = None
    """Records of flowing, held partitions, or None."""
    rebalances: tuple[Rebalance, ...] = ()
    """In the order in which the callbacks ran."""
    errors: tuple[CrkafkaError, ...] = ()
    """Errors of the group, the client and its connections; an unreachable broker at most every ten seconds."""
    ends: Mapping[TP, int] = field(default_factory=dict)
    """Partitions whose end was reached (`_PARTITION_EOF`), with the offset of the end (SPEC V3)."""
    disturbed: bool = False
    """A callback ran or the call failed, so that records may be lost: seek all held partitions (SPEC M5)."""
    dropped: int = 0
    """Number of records that the client delivered and this poll dropped."""
    troubles: Mapping[TP, CrkafkaError] = field(default_factory=dict)
    """Held partitions that give nothing now, and why. The client goes on fetching them."""


class Consumer(Protocol):
    """One consumer of a group, owned by one thread (calls are documented in `consumer.py`)."""

    def subscribe(self, topics: Sequence[str] = (), *, pattern: str | None = None) -> None: ...
    def poll(self, max_records: int = ..., timeout: float = ...) -> Polled: ...
    def seek(self, offsets: Mapping[TP, int], leader_epochs: Mapping[TP, int] | None = None) -> None: ...
    def flow(self, tps: Iterable[TP]) -> None: ...
    def commit(
        self,
        offsets: Mapping[TP, int],
        metadata: Mapping[TP, str] | None = None,
        leader_epochs: Mapping[TP, int] | None = None,
        patience: float | None = None,
    ) -> None: ...
    def known_ends(self) -> dict[TP, int]: ...
    def close(self) -> None: ...


class Admin(Protocol):
    """Queries independent of a consumer (documented in `admin.py`)."""

    def cluster_id(self) -> str: ...
    def topics(self, names: Iterable[str] = (), *, pattern: str | None = None) -> dict[str, TopicInfo]: ...
    def compacted(self, topics: Iterable[str]) -> dict[str, bool]: ...
    def watermarks(self, tps: Iterable[TP], isolation: Isolation = ...) -> dict[TP, tuple[int, int]]: ...
    def known_watermarks(
        self, tps: Iterable[TP], isolation: Isolation = ...
    ) -> tuple[dict[TP, tuple[int, int]], dict[TP, CrkafkaError]]: ...
    def cut_below(self, offsets: Mapping[TP, tuple[int, int]]) -> dict[TP, int]: ...
    def offsets_for_time(self, tps: Iterable[TP], millis: int) -> dict[TP, int]: ...
    def committed(self, group_id: str, tps: Iterable[TP]) -> dict[TP, Committed]: ...
    def describe_group(self, group_id: str) -> Any: ...
    def client_ids(self, group_id: str) -> list[str]: ...
    def close(self) -> None: ...
