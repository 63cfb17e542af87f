"""The segments that a member writes between two cuts: usually one, another past the size limit (SPEC C7, K7)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.model.segment import ClosedSegment, Span, segment_path
from crkafka_core.segments.batch import Batch
from crkafka_core.segments.storage import Storage
from crkafka_core.segments.writer import SegmentWriter, Writer


@dataclass(frozen=True)
class Handed:
    """Segments of one cut: those that are closed, and the last, which is still open; its footer has what was known at the cut."""

    closed: tuple[ClosedSegment, ...] = ()
    writer: Writer | None = None
    spans: Mapping[TP, list[int]] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    merged: int = 0


class OpenSegments:
    """Owned by the holder of the permit; `drop` and `hand_over` are called while the permit is free."""

    def __init__(
        self,
        storage: Storage,
        uid: str,
        incarnation: str,
        max_bytes: int,
        topic_ids: Callable[[], Mapping[str, str]] = dict,
        merged: Callable[[], int] = int,
        open_writer: Callable[[Storage, str], Writer] = SegmentWriter,
    ) -> None:
        """`topic_ids`: of what the member reads under its current start. `merged`: the newest merge that it knows of."""
        self._topic_ids, self._merged = topic_ids, merged
        self._storage, self._open_writer = storage, open_writer
        self._uid, self._incarnation, self._max_bytes = uid, incarnation, max_bytes
        self._sequence = 0
        self._filling: tuple[int, int] | None = None
        """Epoch and number of what was written since segments were last handed over, or dropped."""
        self._writer: Writer | None = None
        self._spans: dict[TP, list[int]] = {}
        self._closed: tuple[ClosedSegment, ...] = ()

    def write(self, batch: Batch, epoch: int, number: int, nexts: Mapping[TP, int]) -> None:
        """Append; `nexts` is where each partition stood before this batch. Another number than before is refused (SPEC C8)."""
        if self._filling not in (None, (epoch, number)):
            raise ValueError(f"rows of epoch {epoch} and checkpoint {number} among those of {self._filling}")
        self._filling = epoch, number
        if self._writer is None:
            self._sequence += 1
            path = segment_path(self._uid, epoch, self._incarnation, number, self._sequence)
            self._writer = self._open_writer(self._storage, path)
        for run in batch.runs:
            span = self._spans.setdefault(run.tp, [nexts[run.tp], 0, 0])
            span[1] = run.next
            span[2] += run.rows
        self._writer.write(batch)
        if self._writer.bytes >= self._max_bytes:
            self._closed = self.close(self._detach())

    def hand_over(self) -> Handed:
        """All segments since the last cut; what is written from now on goes into others (SPEC D5)."""
        handed = self._detach()
        self._closed, self._filling = (), None
        return handed

    @staticmethod
    def close(handed: Handed) -> tuple[ClosedSegment, ...]:
        """Flush the tail to disk. From here on a contribution, or a merge that this member does not know of yet, may name them: only SQL
        knows whether they are orphans, so the member removes them no more (SPEC C7, T3)."""
        if handed.writer is None:
            return handed.closed
        closed = handed.writer.close(handed.topic_ids, handed.merged)
        spans = tuple(Span(tp, *span) for tp, span in handed.spans.items())
        return (*handed.closed, replace(closed, spans=spans))

    def drop(self) -> None:
        """Remove what was never handed over: nothing will ever name it; what is left is an orphan (SPEC T3)."""
        if self._writer is not None:
            self._writer.discard()
        self._writer, self._spans = None, {}
        for segment in self._closed:
            with contextlib.suppress(CrkafkaError):
                self._storage.delete(segment.path)
        self._closed, self._filling = (), None

    def _detach(self) -> Handed:
        handed = Handed(self._closed, self._writer, self._spans, self._topic_ids(), self._merged())
        self._writer, self._spans = None, {}
        return handed
