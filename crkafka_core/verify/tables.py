"""Tables of one shape at one moment, read from their own files without Spark, for `verify` to compare with the records (SPEC K6).

The code that writes and repairs tables is asked for one thing: where a table's folder is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from crkafka_core.config.json_columns import PREFIX
from crkafka_core.config.location import in_catalog
from crkafka_core.config.shapes import GOOD, by_value, has_records, name_of
from crkafka_core.lake.folder import folder_of
from crkafka_core.lake.formats import open_log
from crkafka_core.lake.handle import Handle
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Table
from crkafka_core.plane import tables
from crkafka_core.segments import rows as parquet
from crkafka_core.segments.storage import Storage
from crkafka_core.verify.entries import DataFile
from crkafka_core.verify.iceberg_files import IcebergFiles, Unreadable
from crkafka_core.verify.steady import Snapshot, State
from crkafka_core.verify.verdict import Findings

NOWHERE = -1
"""Stands for the checkpoint of a row whose checkpoint column is null."""
NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Range:
    """The offsets [start, stop) of a partition that a checkpoint took, and how many records they hold."""

    start: int
    stop: int
    rows: int


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
        self.expected: dict[int, dict[TP, list[Range]]] = {c: defaultdict(list) for c in state.live}
        """Checkpoint → partition → what was merged of it, in the order of offsets."""
        for piece in state.pieces:
            for r in piece.ranges:
                if self.takes(piece.checkpoint, r.topic):
                    self.expected[piece.checkpoint][TP(r.topic, r.partition)].append(Range(r.start, r.stop, r.rows))
        self.skipped = self._skipped(skips=skips)
        """Checkpoints with records that could not be decoded, and are in none of the tables."""
        self._storages: dict[str, Storage] = {}

    def takes(self, checkpoint: int, topic: str) -> bool:
        """Whether records of the topic may be in the tables."""
        return self.topics is None or topic in self.topics or checkpoint in self.of_others

    def _of_other_topics(self, *, skips: bool) -> set[int]:
        if self.topics is None:
            return set()
        due, erased = dict.fromkeys(self.state.live, 0), {p.checkpoint for p in self.state.pieces if p.erased}
        for piece in self.state.pieces:
            due[piece.checkpoint] += sum(r.rows for r in piece.ranges if r.topic in self.topics)
        given = ((i, rows) for i, rows in self.state.given.items() if i in due and i not in erased)
        return {i for i, rows in given if rows > due[i] or (rows < due[i] and not skips)}

    def _skipped(self, *, skips: bool) -> set[int]:
        """Checkpoints with left-out records, by the counts of their commits; else by the present `on_bad_record`."""
        state, skipped = self.state, set[int]()
        if self.adopted:
            return skipped
        written: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        for i in state.live:
            written[tuple(state.counting[t.name].get(i, 0) for t in state.family)].append(i)
        due = {i: sum(r.rows for ranges in self.expected[i].values() for r in ranges) for i in state.live}
        by_number = {t.name: {commit.number: commit for commit in state.commits[t.name]} for t in state.family}
        for numbers, ids in written.items():
            pairs = zip(state.family, numbers, strict=True)
            commits = [by_number[t.name][number] for t, number in pairs if number]
            counted = [state.counted(commit) for commit in commits]
            if len(commits) == len(numbers) and None not in counted:
                skipped |= {i for i in ids if sum(rows[i] for rows in counted if rows is not None) < due[i]}
            elif len(commits) == len(numbers) and all(state.filled(commit) == ids for commit in commits):
                skipped |= set(ids) if sum(commit.rows for commit in commits) < sum(due[i] for i in ids) else set()
            elif skips:
                skipped |= set(ids)
        return skipped

    def say(
        self, tables: Sequence[Table], text: str, checkpoint: int = 0, tp: TP | None = None, offset: int | None = None
    ) -> None:
        who = f"table{'s' if len(tables) > 1 else ''} {', '.join(t.name for t in tables)}"
        self.findings.add("K6", f"{who}: {text}", checkpoint=checkpoint, tp=tp, offset=offset)

    def files(self, table: Table) -> Sequence[DataFile]:
        """Data files of the table's version."""
        snapshot = self.snapshots[table.name]
        return snapshot.files() if snapshot is not None else ()

    def storage(self, table: Table) -> Storage:
        """The storage of the table's folder."""
        if table.name not in self._storages:
            self._storages[table.name] = (
                open_log(self.region, table).storage
                if in_catalog(table.path)
                else folder_of(table.path, self.region.config.resolve().storage_options)
            )
        return self._storages[table.name]

    def batches(self, table: Table, file: DataFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns of a file, without rows that are marked as deleted beside it."""
        snapshot = self.snapshots.get(table.name)
        try:
            for batch in parquet.batches(self.storage(table), file.path, columns, only=True, kept=file.kept):
                if isinstance(snapshot, IcebergFiles) and any(map(snapshot.has_other, batch.schema)):
                    raise parquet.OtherColumns(file.path)
                yield batch
        except (pa.ArrowException, OSError) as error:
            raise Unreadable(f"{file.path} cannot be read: {error}") from error

    def place_columns(self, table: Table) -> list[str]:
        """Columns with a row's topic, partition and offset."""
        prefix = PREFIX if name_of(table.shape) and table.output in ("", GOOD) else ""
        return [prefix + name for name in ("topic", "partition", "offset")]

    def belongs(self, checkpoint: int) -> bool:
        """Whether the checkpoint is on the line, or too old for SQL to know; a commit that is not acknowledged yet may name it."""
        return checkpoint in self.state.line or self.state.belongs(checkpoint)


def whole(values: pa.Array) -> np.ndarray:
    return np.asarray(values.fill_null(NOWHERE)).astype(np.int64)


def groups(*keys: np.ndarray) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """Each combination of values, and the rows that have it."""
    if not len(keys[0]):
        return
    order = np.lexsort(keys[::-1])
    ordered = np.stack([key[order] for key in keys])
    starts = [0, *(np.flatnonzero(np.any(np.diff(ordered, axis=1) != 0, axis=0)) + 1).tolist()]
    for at, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        yield tuple(ordered[:, at].tolist()), order[at:stop]
