"""What SQL and the own log of tables say of them, at one moment at which both agree: what `in_tables` compares (SPEC K6)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from crkafka_core.config.location import in_catalog
from crkafka_core.config.shapes import name_of
from crkafka_core.control import Reader
from crkafka_core.lake.folder import folder_of
from crkafka_core.lake.formats import open_log
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.iceberg.table import IcebergLog
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.rows import Checkpoint, Region, Table, TableCommit
from crkafka_core.plane import contents, tables
from crkafka_core.plane.contents import Piece
from crkafka_core.verify.delta_files import DeltaFiles
from crkafka_core.verify.iceberg_files import IcebergFiles, OnlySpark, Unreadable
from crkafka_core.verify.verdict import Findings

Snapshot = DeltaFiles | IcebergFiles
PATIENCE = 60.0
"""Seconds for which a table that is being written is waited for."""
_SOON = 0.2
_pause = time.sleep


def families(reader: Reader, row: Region) -> list[tuple[str, ...]]:
    """Tables that are written together, since each row is in one of them."""
    return sorted(tuple(t.name for t in family) for family in tables.families(reader.select(Table)))


@dataclass(frozen=True)
class State:
    """Tables of one shape as SQL has them, in one snapshot."""

    uid: str
    family: tuple[Table, ...]
    written: bool
    """Somebody does, at this moment."""
    owes: bool
    """A rewind is to be followed yet."""
    torn: bool
    """A pass has been acknowledged for some of them only."""
    commits: Mapping[str, tuple[TableCommit, ...]]
    line: frozenset[int]
    live: tuple[int, ...]
    """Checkpoints with rows that all of the tables have."""
    pieces: tuple[Piece, ...]
    belongs: Callable[[int], bool]
    forgotten: bool
    counting: Mapping[str, Mapping[int, int]]
    """Table → checkpoint → the commit that counts for it."""
    empty: frozenset[int]
    """Checkpoints without rows."""
    given: Mapping[int, int]
    """Checkpoint → rows that one pass gave all of the tables."""

    @property
    def words(self) -> str:
        return f"table{'s' if len(self.family) > 1 else ''} {', '.join(t.name for t in self.family)}"

    def filled(self, commit: TableCommit) -> list[int]:
        """What the commit wrote, without checkpoints that have no rows."""
        return [i for i in commit.checkpoints if i not in self.empty]

    def counted(self, commit: TableCommit) -> dict[int, int] | None:
        """Checkpoint → rows, as counted when the commit was acknowledged; None: only all of them together were."""
        filled = self.filled(commit)
        if commit.counts_json:
            counts = commit.counts
            return {i: counts.get(i, 0) for i in filled}
        return {filled[0]: commit.rows} if len(filled) == 1 else None

    def same(self, other: State) -> bool:
        return (self.family, self.commits) == (other.family, other.commits)


def _state(reader: Reader, row: Region, family: Sequence[str]) -> State:
    declared = tuple(tables.of(reader, name) for name in family)
    least = min(declared, key=lambda t: t.acknowledged)
    live = contents.live_in(reader, row, least)
    passes = {
        (t.acknowledged, last.token if (last := tables.last_write(reader, t)) is not None else "") for t in declared
    }
    return State(
        row.uid,
        declared,
        any(tables.writer(reader, name) for name in family),
        any(t.owes_fence for t in declared),
        len(passes) > 1,
        {t.name: tuple(tables.commits(reader, t)) for t in declared},
        frozenset(reader.line(row.head)),
        tuple(live),
        tuple(contents.pieces(reader, row, live)),
        contents.belonging(reader, row, least),
        contents.forgotten(reader, row),
        {t.name: contents.counting(reader, row, t) for t in declared},
        frozenset(reader.column(Checkpoint, "id", ("rows", "=", 0))),
        contents.given(reader, row, declared) if declared[0].shape else {},
    )


def steady(region: Handle, family: Sequence[str], found: Findings) -> tuple[State, dict[str, Snapshot | None]] | None:
    """The tables at a moment at which SQL knows all that is in them; None, with a note, where there is none, or no way to read them."""
    end, ask = time.monotonic() + PATIENCE, partial(_state, family=family)
    while True:
        before = region.plane.read(ask)
        if unread := [t for t in before.family if in_catalog(t.path) and t.layout != tables.FILES]:
            found.note(f"{before.words}: the catalog of {unread[0].path} cannot be reached; they were not compared")
            return None
        if absent := _not_configured(region, before):
            found.note(
                f"{before.words}: {absent} is not in the configuration any more, which says of which records and keys its rows are; "
                "they were not compared"
            )
            return None
        if before.owes:
            found.note(f"{before.words}: a rewind is still to be followed, and they were not compared")
            return None
        snapshots = _snapshots(region, before, found)
        if snapshots is None:
            return None
        after = region.plane.read(ask)
        if not before.same(after):
            unsteady = "they change all the time"
        elif any(_of_ours_unacknowledged(after, t, snapshots.get(t.name)) for t in after.family):
            unsteady = "a commit is not acknowledged, and the next writer finishes it"
        elif after.torn:
            unsteady = "one has what another lacks, and the next writer finishes it"
        else:
            return after, snapshots
        if time.monotonic() > end or (before.same(after) and not after.written):
            found.note(f"{before.words}: {unsteady}; they were not compared")
            return None
        _pause(_SOON)


def _snapshots(region: Handle, state: State, found: Findings) -> dict[str, Snapshot | None] | None:
    """By table; None, with a note or a finding, where one cannot be read."""
    try:
        return {t.name: _snapshot(region, t) for t in state.family}
    except ConfigError as error:
        found.note(f"{state.words}: could not be compared: {error.message}")
    except OnlySpark as only:
        found.note(f"{state.words}: {only}; they were not compared")
    except Unreadable as damaged:
        found.add("K6", f"{state.words}: {damaged}")
    return None


def _snapshot(region: Handle, table: Table) -> Snapshot | None:
    if table.format == "delta":
        return DeltaFiles.open(table.path, region.config.resolve().storage_options)
    if in_catalog(table.path):
        log = open_log(region, table)
        current = log.newest() if isinstance(log, IcebergLog) else None
        return None if current is None else IcebergFiles(log.storage, current[0].content)
    storage = folder_of(table.path, region.config.resolve().storage_options)
    return IcebergFiles.open(storage)


def _not_configured(region: Handle, state: State) -> str:
    """A table with a shape or types of which the configuration knows nothing."""
    typed = name_of(state.family[0].shape)
    shape = state.family[0].shape
    needed = [typed] if typed else [t.name for t in state.family if t.shape]
    return next((name for name in needed if region.config.table(name, shape) is None), "")


def _of_ours_unacknowledged(state: State, table: Table, snapshot: Snapshot | None) -> bool:
    """Older ones show where another program has taken the table back."""
    entries = snapshot.since(table.version) if snapshot is not None else ()
    last = max((c.number for c in state.commits[table.name] if c.status == tables.DONE), default=0)
    return any(entry.uid == state.uid and entry.permit > last for entry in entries)
