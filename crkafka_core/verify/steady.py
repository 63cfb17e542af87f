"""Tables at one moment at which SQL and their own logs agree, for `in_tables` to compare (SPEC K6)."""

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
    """A writer holds one of the tables at this moment."""
    fence_due: bool
    """A rewind has not been followed yet."""
    torn: bool
    """The last pass has been acknowledged for some of the tables only."""
    commits: Mapping[str, tuple[TableCommit, ...]]
    line: frozenset[int]
    live: tuple[int, ...]
    """Checkpoints whose rows all of the tables have."""
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
        """Checkpoints that the commit wrote, without those that have no rows."""
        return [i for i in commit.checkpoints if i not in self.empty]

    def counted(self, commit: TableCommit) -> dict[int, int] | None:
        """Checkpoint → rows, as counted when the commit was acknowledged; None if only their sum was counted."""
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


def steady(
    region: Handle, family: Sequence[str], findings: Findings
) -> tuple[State, dict[str, Snapshot | None]] | None:
    """The tables with all commits acknowledged in SQL; None, with a note, if no such moment comes or files cannot be read."""
    end, ask = time.monotonic() + PATIENCE, partial(_state, family=family)
    while True:
        before = region.plane.read(ask)
        if unread := [t for t in before.family if in_catalog(t.path) and t.layout != tables.FILES]:
            findings.note(f"{before.words}: the catalog of {unread[0].path} cannot be reached; they were not compared")
            return None
        if absent := _not_configured(region, before):
            findings.note(
                f"{before.words}: {absent} is not in the configuration any more, which says of which records and keys its rows are; "
                "they were not compared"
            )
            return None
        if before.fence_due:
            findings.note(f"{before.words}: a rewind is still to be followed, and they were not compared")
            return None
        snapshots = _snapshots(region, before, findings)
        if snapshots is None:
            return None
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
            findings.note(f"{before.words}: {unsteady}; they were not compared")
            return None
        _pause(_SOON)


def _snapshots(region: Handle, state: State, findings: Findings) -> dict[str, Snapshot | None] | None:
    """Table → snapshot; None, with a note or a finding, if one cannot be read."""
    try:
        return {t.name: _snapshot(region, t) for t in state.family}
    except ConfigError as error:
        findings.note(f"{state.words}: could not be compared: {error.message}")
    except OnlySpark as only:
        findings.note(f"{state.words}: {only}; they were not compared")
    except Unreadable as damaged:
        findings.add("K6", f"{state.words}: {damaged}")
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
    """The first name that the configuration no longer declares, of the typed table or of tables with a shape; empty: none."""
    shape = state.family[0].shape
    typed = name_of(shape)
    needed = [typed] if typed else [t.name for t in state.family if t.shape]
    return next((name for name in needed if region.config.table(name, shape) is None), "")


def _has_unacknowledged(state: State, table: Table, snapshot: Snapshot | None) -> bool:
    """Whether the snapshot has a commit of ours later than the last acknowledged; earlier numbers come from a restore."""
    entries = snapshot.since(table.version) if snapshot is not None else ()
    last = max((c.number for c in state.commits[table.name] if c.status == tables.DONE), default=0)
    return any(entry.uid == state.uid and entry.permit > last for entry in entries)
