"""Tables of one shape at one moment, read from their own files without Spark, for `verify` to compare with the records (SPEC K6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from crkafka_core.config.json_columns import PREFIX
from crkafka_core.config.shapes import GOOD, by_value, has_records, name_of
from crkafka_core.lake.handle import Handle
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Table
from crkafka_core.plane import tables
from crkafka_core.plane.reading import KafkaRange
from crkafka_core.verify.steady import State
from crkafka_core.verify.table_files import DataFile, Snapshot
from crkafka_core.verify.verdict import Findings


def named(tables: Sequence[str]) -> str:
    """The tables for a sentence."""
    return f"table{'s' if len(tables) > 1 else ''} {', '.join(tables)}"


class Tables:
    """The tables of one shape, or one plain table, at one moment, with the findings about them."""

    def __init__(
        self, region: Handle, state: State, snapshots: Mapping[str, Snapshot | None], findings: Findings
    ) -> None:
        self.region, self.state, self.snapshots, self.findings = region, state, snapshots, findings
        table, config = state.family[0], region.config
        declared = config.table(name_of(table.shape) or table.name, table.shape)
        self.topics = declared.topics if declared is not None else None
        self.typed, self.adopted = (
            bool(name_of(table.shape)) or has_records(table.shape) or by_value(table.shape),
            tables.adopts(table),
        )
        self.placed = self.typed or not table.shape
        """Each row is a record, and names its topic, partition and offset."""
        self.keys = {
            t.name: tuple(c.keys or ()) for t in state.family if (c := config.table(t.name, t.shape)) is not None
        }
        """Table → its key columns: it has one row for each of their values; () if it has no key."""
        skips = declared is not None and declared.on_bad_record == "skip"
        self.of_others = self._of_other_topics(skips=skips)
        """Checkpoints written under an earlier configuration with other topics; which ones is not known."""
        self.expected: dict[int, dict[TP, list[KafkaRange]]] = {c: defaultdict(list) for c in state.live}
        """Checkpoint → partition → what was merged of it, in the order of offsets."""
        for r in (r for piece in state.pieces for r in piece.ranges):
            if self.takes(r.checkpoint, r.topic):
                self.expected[r.checkpoint][r.tp].append(r)
        self.skipped = self._skipped(skips=skips)
        """Checkpoints with records that could not be decoded, and are in none of the tables."""

    def takes(self, checkpoint: int, topic: str) -> bool:
        """Whether records of the topic may be in the tables."""
        return self.topics is None or topic in self.topics or checkpoint in self.of_others

    def _of_other_topics(self, *, skips: bool) -> set[int]:
        """Checkpoints of which one pass gave the tables other numbers of rows than the present topics have."""
        if self.topics is None:
            return set()
        due, others = dict.fromkeys(self.state.live, 0), set[int]()
        for piece in self.state.pieces:
            due[piece.checkpoint] += sum(r.rows for r in piece.ranges if r.topic in self.topics)
        for checkpoint in self.state.counts.keys() - {p.checkpoint for p in self.state.pieces if p.erased}:
            tokens, rows = zip(*self.state.counts[checkpoint], strict=True) if self._complete(checkpoint) else ((), ())
            if len(set(tokens)) == 1 and (sum(rows) > due[checkpoint] or (sum(rows) < due[checkpoint] and not skips)):
                others.add(checkpoint)
        return others

    def _skipped(self, *, skips: bool) -> set[int]:
        """Checkpoints with left-out records, by the counts of their commits; else by the present `on_bad_record`."""
        skipped = set[int]()
        for checkpoint, written in self.state.counts.items():
            due = sum(r.rows for ranges in self.expected[checkpoint].values() for r in ranges)
            if sum(rows for _, rows in written) < due if self._complete(checkpoint) else skips:
                skipped.add(checkpoint)
        return skipped

    def _complete(self, checkpoint: int) -> bool:
        """Whether a commit counts for the checkpoint in each of the tables."""
        return len(self.state.counts[checkpoint]) == len(self.state.family)

    def say(
        self, tables: Sequence[Table], text: str, checkpoint: int = 0, tp: TP | None = None, offset: int | None = None
    ) -> None:
        self.findings.add("K6", f"{named([t.name for t in tables])}: {text}", checkpoint, tp, offset)

    def files(self, table: Table) -> Sequence[DataFile]:
        """Data files of the table's version."""
        snapshot = self.snapshots[table.name]
        return snapshot.files() if snapshot is not None else ()

    def batches(self, table: Table, file: DataFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns of a file of the table's version."""
        snapshot = self.snapshots[table.name]
        assert snapshot is not None  # it has the file
        return snapshot.batches(file, columns)

    def place_columns(self, table: Table) -> list[str]:
        """Columns with a row's topic, partition and offset."""
        prefix = PREFIX if name_of(table.shape) and table.output in ("", GOOD) else ""
        return [prefix + name for name in ("topic", "partition", "offset")]

    def belongs(self, checkpoint: int) -> bool:
        """Whether the checkpoint is on the line, or too old for SQL to know; a commit that is not acknowledged yet may name it."""
        return checkpoint in self.state.line or self.state.belongs(checkpoint)
