"""Tables at one moment at which SQL and their own logs agree, for `in_tables` to compare (SPEC K6)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from crkafka_core.config.location import in_catalog
from crkafka_core.config.shapes import name_of
from crkafka_core.control import Reader
from crkafka_core.lake.folder import folder_of
from crkafka_core.lake.formats import open_log
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.iceberg.table import IcebergLog
from crkafka_core.model.rows import Checkpoint, Region, Table, TableCommit
from crkafka_core.plane import contents, tables
from crkafka_core.verify.table_files import DeltaFiles, IcebergFiles, NotCompared, Snapshot

PATIENCE = 60.0
"""Seconds for which a table that is being written is waited for."""
_SOON = 0.2
_pause = time.sleep


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
        self.forgotten = contents.forgotten(reader, row)
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


def steady(region: Handle, family: Sequence[str]) -> tuple[State, dict[str, Snapshot | None]]:
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
            return after, snapshots
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
