"""The offset manager: (topic, partition) → next offset, for assigned partitions only (SPEC M3)."""

from __future__ import annotations

from collections.abc import Mapping

from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import Batch, Run


class NotContinued(CrkafkaError):
    """What came does not continue what was submitted, and nothing of it is. Reaction: a reset, which fetches it again (SPEC M3, X3)."""


class OffsetManager:
    """Owned by the holder of the permit. `since` is where the number that is filled began, so that from, to and rows are at hand."""

    def __init__(self) -> None:
        self.next: dict[TP, int] = {}
        self.since: dict[TP, int] = {}
        self.rows: dict[TP, int] = {}
        self.leader_epochs: dict[TP, int] = {}
        """Of the record before `next`, where it is known: by it a log that was cut and has grown again is noticed (SPEC S4)."""

    def place(self, offsets: Mapping[TP, int], leader_epochs: Mapping[TP, int] | None = None) -> None:
        """These partitions are assigned, and start here; all others are forgotten."""
        self.next = dict(offsets)
        self.since = dict(offsets)
        self.rows = dict.fromkeys(offsets, 0)
        self.leader_epochs = dict(leader_epochs or {})

    def refuse_cuts(self, batch: Batch) -> None:
        """What comes from before where its partition stands was read already, and not from a later leader (SPEC S4)."""
        for run in batch.runs:
            stands, known = self.next[run.tp], self.leader_epochs.get(run.tp, -1)
            if run.first < stands and 0 <= known < run.leader_epoch:
                raise NotContinued(
                    f"{run.tp} stands at offset {stands}, and a later leader than the one of the record before that wrote offset "
                    f"{run.first}: the log was cut.",
                    hint="The region resets by itself, and goes by `data_loss`.",
                )

    def refuse_holes(self, batch: Batch) -> None:
        """Each run must continue from where its partition stands, or from before it: else records were lost on the way (SPEC M3)."""
        nexts: dict[TP, int] = {}
        for run in batch.runs:
            stands = nexts.get(run.tp, self.next[run.tp])
            if run.since is None or run.since > stands:
                came = run.first if run.since is None else run.since
                raise NotContinued(
                    f"{run.tp} stands at offset {stands}, and what was fetched continues from {came}: nothing of it is submitted.",
                    hint="The region resets by itself; if this comes again and again, it is a fault of crkafka: please report it.",
                )
            nexts[run.tp] = run.next

    def record(self, run: Run) -> None:
        self.next[run.tp] = run.next
        self.rows[run.tp] += run.rows
        self.leader_epochs[run.tp] = run.leader_epoch

    def take(self) -> dict[TP, tuple[int, int, int]]:
        """(from, to, rows) of each partition since the last cut; the next one begins where this ends."""
        part = {tp: (self.since[tp], offset, self.rows[tp]) for tp, offset in self.next.items()}
        self.since = dict(self.next)
        self.rows = dict.fromkeys(self.next, 0)
        return part
