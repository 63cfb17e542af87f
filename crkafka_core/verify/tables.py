"""Tables of one shape at a moment at which SQL and their own logs agree, for `verify` to compare with the records (SPEC K6)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa

from crkafka_core.config.json_columns import PREFIX
from crkafka_core.config.location import in_catalog
from crkafka_core.config.shapes import GOOD, by_value, has_records, name_of
from crkafka_core.control import Reader
from crkafka_core.lake.formats import folder_of, open_log
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.iceberg.table import IcebergLog
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Checkpoint, Region, Table, TableCommit
from crkafka_core.plane import contents, tables
from crkafka_core.plane.reading import KafkaRange
from crkafka_core.verify.table_files import DataFile, DeltaFiles, IcebergFiles, NotCompared, Snapshot
from crkafka_core.verify.verdict import Findings

PATIENCE = 60.0
"""Seconds for which a table that is being written is waited for."""
_SOON = 0.2
_pause = time.sleep


def named(tables: Sequence[str]) -> str:
    """The tables for a sentence."""
    return f"table{'s' if len(tables) > 1 else ''} {', '.join(tables)}"


class State:
    """Tables of one shape as SQL has them, in one snapshot."""

    def __init__(self, reader: Reader, row: Region, family: Sequence[str]) -> None:
        self.uid, self.line = row.uid, frozenset(reader.line(row.head))
        self.family = tuple(tables.of(reader, name) for name in family)
        self.commits = {t.name: tuple(tables.commits(reader, t)) for t in self.family}
        self.written = any(tables.writer(reader, name) for name in family)
        """A writer holds one of the tables at this moment."""
        self.fence_due = any(t.owes_fence for t in self.family)
        """A rewind has not been followed yet."""
        writes = [(t.acknowledged, tables.last_write(reader, t)) for t in self.family]
        self.torn = len({(number, last.token if last is not None else "") for number, last in writes}) > 1
        """The last pass has been acknowledged for some of the tables only."""
        least = min(self.family, key=lambda t: t.acknowledged)
        self.live = tuple(contents.live_in(reader, row, least))
        """Checkpoints whose rows all of the tables have."""
        self.pieces = tuple(contents.pieces(reader, row, self.live))
        self.belongs = contents.belonging(reader, row, least)
        self.forgotten = contents.before_line(reader, row) > 0
        self.counting = {t.name: contents.counting(reader, row, t) for t in self.family}
        """Table → checkpoint → the commit that counts for it."""
        self.empty = frozenset(reader.column(Checkpoint, "id", ("rows", "=", 0)))
        """Checkpoints without rows."""
        self.counts = {i: list[tuple[str, int]]() for i in self.live if least.shape}
        """Live checkpoint of tables with a shape → token and rows of the commit that counts for it, of each table that has one."""
        for t in self.family:
            by_number = {c.number: (c.token, c.counts) for c in self.commits[t.name]}
            for i in self.counts.keys() & self.counting[t.name].keys():
                token, rows = by_number[self.counting[t.name][i]]
                self.counts[i].append((token, rows.get(i, 0)))

    def counted(self, commit: TableCommit) -> dict[int, int]:
        """Checkpoint → its rows as they were counted with the commit, without those that have no rows."""
        counts = commit.counts  # of each table with a shape
        return {i: counts.get(i, 0) for i in commit.checkpoints if i not in self.empty}

    def same(self, other: State) -> bool:
        return (self.family, self.commits) == (other.family, other.commits)


class Tables:
    """The tables of one shape, or one plain table, at one moment, with the findings about them."""

    def __init__(
        self, region: Handle, state: State, snapshots: Mapping[str, Snapshot | None], findings: Findings
    ) -> None:
        self.region, self.state, self.snapshots, self.findings = region, state, snapshots, findings
        table, config = state.family[0], region.config
        declared = config.table(name_of(table.shape) or table.name, table.shape)
        self.topics = declared.topics if declared is not None else None
        self.typed = bool(name_of(table.shape)) or has_records(table.shape) or by_value(table.shape)
        self.adopted = tables.adopts(table)
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


def steady(region: Handle, family: Sequence[str], findings: Findings) -> Tables:
    """The tables with all commits acknowledged in SQL. `NotCompared` if no such moment comes."""
    end, ask = time.monotonic() + PATIENCE, partial(State, family=family)
    while True:
        before = region.plane.read(ask)
        _check_comparable(region, before)
        snapshots = {t.name: _snapshot(region, t) for t in before.family}
        after = region.plane.read(ask)
        if not before.same(after):
            unsteady = "they change all the time"
        elif any(_has_unacknowledged(after, t, snapshots.get(t.name)) for t in after.family):
            unsteady = "a commit is not acknowledged, and the next writer finishes it"
        elif after.torn:
            unsteady = "one has what another lacks, and the next writer finishes it"
        else:
            return Tables(region, after, snapshots, findings)
        if time.monotonic() > end or (before.same(after) and not after.written):
            raise NotCompared(unsteady)
        _pause(_SOON)


def _check_comparable(region: Handle, state: State) -> None:
    """Refuse tables that SQL and the configuration alone show not to be comparable."""
    if unread := [t.path for t in state.family if in_catalog(t.path) and t.layout != tables.FILES]:
        raise NotCompared(f"the catalog of {unread[0]} cannot be reached")
    shape = state.family[0].shape
    typed = name_of(shape)
    needed = [typed] if typed else [t.name for t in state.family if t.shape]
    if absent := [name for name in needed if region.config.table(name, shape) is None]:
        why = "is not in the configuration any more, which says of which records and keys its rows are"
        raise NotCompared(f"{absent[0]} {why}")
    if state.fence_due:
        raise NotCompared("a rewind is still to be followed")


def _snapshot(region: Handle, table: Table) -> Snapshot | None:
    options = region.config.resolve().storage_options
    if table.format == "delta":
        return DeltaFiles.open(table.path, options)
    if not in_catalog(table.path):
        return IcebergFiles.open(folder_of(table.path, options))
    log = open_log(region, table)
    current = log.newest() if isinstance(log, IcebergLog) else None
    return None if current is None else IcebergFiles(log.storage, current[0].content)


def _has_unacknowledged(state: State, table: Table, snapshot: Snapshot | None) -> bool:
    """Whether the snapshot has a commit of ours later than the last acknowledged; earlier numbers come from a restore."""
    entries = snapshot.since(table.version) if snapshot is not None else ()
    last = max((c.number for c in state.commits[table.name] if c.status == tables.DONE), default=0)
    return any(entry.uid == state.uid and entry.permit > last for entry in entries)
