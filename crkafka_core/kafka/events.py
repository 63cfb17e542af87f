"""What one poll of the group's consumer gives: records, rebalances, errors (SPEC M5, R4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import Batch


class Kind(StrEnum):
    """Which callback ran."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One rebalance callback. With an eager assignor `assigned` names all that is held now, `revoked` all that was."""

    kind: Kind
    partitions: frozenset[TP]
    generation: int
    """As seen inside the callback; −1 if it is unknown. `revoked` shows the old one (docs/clients.md C-R3)."""


@dataclass(frozen=True, slots=True)
class Polled:
    """The outcome of one poll."""

    batch: Batch | None = None
    """Records of flowing, held partitions; None if there are none."""
    rebalances: tuple[Rebalance, ...] = ()
    """In the order in which the callbacks ran."""
    errors: tuple[CrkafkaError, ...] = ()
    """Of the group, the client and its connections, by reaction; those that only say "not reachable" come at most every ten seconds."""
    ends: Mapping[TP, int] = field(default_factory=dict)
    """Partitions whose end was reached (`_PARTITION_EOF`), with the offset of the end (SPEC V3)."""
    disturbed: bool = False
    """A callback ran or the call failed, so that records may have been dropped: seek what is still held (SPEC M5)."""
    dropped: int = 0
    """Records that this call returned and that were dropped."""
    troubles: Mapping[TP, CrkafkaError] = field(default_factory=dict)
    """Held partitions that give nothing now, and why. The client goes on asking for them."""
