"""The message queue between the event thread and the process thread: batches, bounded by records and by bytes (SPEC M2)."""

from __future__ import annotations

from collections import deque

from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import Batch

Queued = tuple[int, Batch]
"""(serial of the stamp under which it was fetched, batch)."""


class MessageQueue:
    """Not safe by itself: the submitter's condition guards it."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self.max_records, self.max_bytes = max_records, max_bytes
        self.records = self.bytes = 0
        self._batches: deque[Queued] = deque()

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def full(self) -> bool:
        return self.records >= self.max_records or self.bytes >= self.max_bytes

    @property
    def roomy(self) -> bool:
        """At most half full: the event thread may fill it again, without a pause for each batch."""
        return self.records <= self.max_records / 2 and self.bytes <= self.max_bytes / 2

    @property
    def tps(self) -> frozenset[TP]:
        return frozenset(tp for _, batch in self._batches for tp in batch.tps)

    def put(self, serial: int, batch: Batch) -> None:
        self._batches.append((serial, batch))
        self._count(batch, 1)

    def put_back(self, serial: int, batch: Batch) -> None:
        """What was taken and not used: it stays first."""
        self._batches.appendleft((serial, batch))
        self._count(batch, 1)

    def take(self) -> Queued:
        serial, batch = self._batches.popleft()
        self._count(batch, -1)
        return serial, batch

    def clear(self) -> None:
        self._batches.clear()
        self.records = self.bytes = 0

    def _count(self, batch: Batch, sign: int) -> None:
        self.records += sign * batch.rows
        self.bytes += sign * batch.nbytes
