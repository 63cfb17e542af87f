"""What a table shows of our last commit, compared with what SQL has acknowledged (SPEC K6, G10).

A writer may die between its commit and the acknowledgement, a table may be declared again where it lies, SQL may be an older
backup. Each commit leaves a few facts in the table that outlive its log's own commits, so none of this takes a walk through
them; only whether others have changed rows since does, and where the log does not tell, the rows are counted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum

from crkafka_core.control import Reader
from crkafka_core.lake.handle import Handle
from crkafka_core.model.errors import CrkafkaError, Refused, WentBack
from crkafka_core.model.rows import Region, Table, TableCommit
from crkafka_core.plane import contents, permits, restored, tables
from crkafka_core.plane.contents import Piece
from crkafka_core.tables import places
from crkafka_core.tables.log import Logs, Snapshot, TableLog
from crkafka_core.tables.places import Places
from crkafka_core.tables.stamp import Facts, app_of, mark


class Standing(Enum):
    """Of the last commit of ours that a table shows."""

    NONE = "none"
    ACKNOWLEDGED = "acknowledged"
    UNACKNOWLEDGED = "unacknowledged"
    """SQL permitted it, and does not know that it was made."""
    NEWER = "newer"
    """SQL never permitted it: it went back in time."""


class NotAcknowledged(CrkafkaError):
    """A table shows a commit that SQL had not acknowledged when ours was permitted. Reaction: `acknowledge`, and ask for another permit."""


@dataclass(frozen=True)
class Unacknowledged:
    """A commit that SQL did not hear of."""

    uid: str
    table: Table
    commit: TableCommit
    brought: frozenset[int]
    """Checkpoints with rows that the table has with it, beyond those that are acknowledged."""
    pieces: tuple[Piece, ...]
    """Of these, and of all that is acknowledged."""

    @property
    def one_write(self) -> bool:
        """Nothing but what this commit was permitted to bring, and can be brought again. Else the table was declared again."""
        kept = {piece.checkpoint for piece in self.pieces if piece.segment is not None}
        return self.brought <= set(json.loads(self.commit.checkpoints_json)) & kept


def standing(reader: Reader, table: Table, facts: Facts) -> Standing:
    """Of what the table shows."""
    if not facts.number:
        return Standing.NONE
    commit = reader.get(TableCommit, table.name, facts.number)
    if commit is None or mark(commit.token) != facts.token:
        return Standing.NEWER
    return Standing.ACKNOWLEDGED if commit.status == tables.DONE else Standing.UNACKNOWLEDGED


def shown(facts: Facts, of: Standing) -> int:
    """Up to which checkpoint the table shows what SQL did not hear of; 0: there is nothing."""
    return facts.holds if of is Standing.UNACKNOWLEDGED else 0


def newer(table: Table, facts: Facts) -> WentBack:
    """What is said of a table that is newer than SQL."""
    return WentBack(
        f"Table {table.name} of region {table.region} has commit {facts.number}, up to checkpoint {facts.holds}; the control plane never "
        f"issued it: its last one is {table.commits}.",
        hint=restored.HINT,
    )


def unacknowledged(reader: Reader, region: Region, table: Table, facts: Facts) -> Unacknowledged:
    """What SQL knows of a commit that it did not hear of."""
    commit = reader.get(TableCommit, table.name, facts.number)
    assert commit is not None
    shown = set(reader.line(facts.holds)) if facts.holds else set()
    known = set(reader.line(table.acknowledged)) if table.acknowledged else set()
    pieces = contents.pieces(reader, region, shown | known)
    brought = {piece.checkpoint for piece in pieces} & (shown - known)
    return Unacknowledged(region.uid, table, commit, frozenset(brought), tuple(pieces))


def acknowledge(region: Handle, name: str, logs: Logs) -> bool:
    """Let SQL hear of what the table shows; False: not all of it is there any more, and the rest has to leave."""
    table = region.plane.read(lambda reader, row: tables.of(reader, name))
    log = logs(region, table)
    snapshot = log.snapshot()
    if snapshot is None:
        return True

    def ask(reader: Reader, row: Region) -> tuple[Facts, Unacknowledged | None]:
        facts = snapshot.facts(app_of(row.uid, name))
        now = tables.of(reader, name)
        unheard = standing(reader, now, facts) is Standing.UNACKNOWLEDGED
        return facts, unacknowledged(reader, row, now, facts) if unheard else None

    facts, unheard = region.plane.read(ask)
    if unheard is None:
        return True
    as_written = not any(piece.erased for piece in unheard.pieces) and snapshot.untouched_since(facts.version)
    if as_written or _all_there(log, snapshot, unheard):
        version = str(facts.version)  # what others did since is not vouched for by it
        region.plane.do(lambda tx: permits.acknowledge(tx, name, facts.number, holds=facts.holds, version=version))
        return True
    if unheard.one_write:
        return False
    raise Refused(
        f"Table {name} at {table.path} was declared again, and its rows are not those that it had with its last commit: somebody else "
        "has changed it since.",
        hint=f"RESTORE it to its version {facts.version}, or declare {name} at another path: it is filled from birth there.",
    )


def _all_there(log: TableLog, snapshot: Snapshot, unheard: Unacknowledged) -> bool:
    """Whether the rows of all that it brought are there, as many as were merged."""
    there = places.sort_files(snapshot.files(), unheard.uid, lambda _: True, unheard.pieces)
    at = Places([piece for piece in there.pieces if piece.rows > 0 or piece.erased])
    groups = {n for n, group in enumerate(at.groups) if any(p.checkpoint in unheard.brought for p in group)}
    near = [file for file in there.others if at.near(file, groups)]
    count = places.count(unheard.table.name, log.storage(), near, at)
    as_many = all(count.total[g] == sum(piece.rows for piece in at.groups[g]) for g in groups)
    return as_many and not groups & count.doubled
