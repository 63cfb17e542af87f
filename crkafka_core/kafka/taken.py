"""What one look for records gives, whichever way they come: a batch, and what came in their place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import KafkaError

from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import Batch


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that came in a record's place; the end of a partition is one too."""

    tp: TP
    offset: int
    error: KafkaError
    before: int = 0
    """How many records of the look came before it."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Records and failures of one look."""

    batch: Batch | None = None
    failures: tuple[Failure, ...] = ()
    lost: bool = False
    """Records were too large to be taken at once, and were let go: seek, and they come in smaller pieces."""


class Records(Protocol):
    """The records of one consumer; belongs to the consumer's thread."""

    def hold(self, tps: Iterable[TP]) -> None:
        """Said right after these partitions are assigned, of exactly those that are."""

    def serve(self) -> Taken:
        """Run the callbacks that are due. What comes with them is rarely anything."""

    def take(self, most: int, timeout: float) -> Taken:
        """Up to so many records; returns when they are there or the time has passed."""

    def close(self) -> None:
        """Before the consumer is closed."""
