"""The segments that a member writes between two cuts: usually one, another past the size limit (SPEC C7, K7)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace

from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.model.segment import ClosedSegment, Span
from crkafka_core.model.segment_name import segment_path
from crkafka_core.segments.batch import Batch
from crkafka_core.segments.storage import Storage
from crkafka_core.segments.writer import SegmentWriter, Writer


class OpenSegments:
    """Owned by the process thread; `drop` comes while the permit is free."""

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
        self._open_writer = open_writer
        self._storage = storage
        self._uid = uid
        self._incarnation = incarnation
        self._max_bytes = max_bytes
        self._sequence = 0
        self._filling: tuple[int, int] | None = None
        """Epoch and number of what was written since segments were last handed over, or dropped."""
        self._writer: Writer | None = None
        self._spans: dict[TP, list[int]] = {}
        self._closed: list[ClosedSegment] = []

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
            self._finish()

    def close(self) -> tuple[ClosedSegment, ...]:
        """Flush the tail to disk; hands over all segments since the last cut.

        From here on a contribution may name them, and a merge that this member has not heard of yet: whether they are orphans
        is for SQL to say, so they are no longer ours to remove (SPEC C7, T3).
        """
        self._finish()
        handed, self._closed, self._filling = tuple(self._closed), [], None
        return handed

    def drop(self) -> None:
        """Remove what was never handed over: nothing will ever name it; what is left is an orphan (SPEC T3)."""
        if self._writer is not None:
            self._writer.discard()
        self._writer, self._spans = None, {}
        for segment in self._closed:
            with contextlib.suppress(CrkafkaError):
                self._storage.delete(segment.path)
        self._closed, self._filling = [], None

    def _finish(self) -> None:
        if self._writer is None:
            return
        closed = self._writer.close(self._topic_ids(), self._merged())
        self._closed.append(replace(closed, spans=tuple(Span(tp, *span) for tp, span in self._spans.items())))
        self._writer, self._spans = None, {}
