"""What one poll of the group's consumer gives: records, rebalances, errors (SPEC M5, R4)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import Batch

_MAGIC = b"CGMDv2:"


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
    """The outcome of one poll."""

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


def generation_of(consumer: Any) -> int:
    """Kafka's generation of a consumer, or −1 for an unexpected format, which is private (docs/clients.md C-K15, C-R3)."""
    try:
        metadata = consumer.consumer_group_metadata()
        raw = metadata if isinstance(metadata, bytes) else bytes(metadata)
    except Exception:
        return -1
    if not raw.startswith(_MAGIC) or len(raw) < len(_MAGIC) + 4:
        return -1
    (generation,) = struct.unpack_from("<i", raw, len(_MAGIC))
    return int(generation)
