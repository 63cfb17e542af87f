"""Puts a Delta table that keeps one row for each key back to what it was, by its log alone, without Spark (SPEC K6, X4).

A commit that takes out the files that are there now and not in the older version, and brings in those that were, directly after the
snapshot that was looked at. It carries a number of the table's own transactions, so that who comes late is refused (docs/clients.md C-P5):
each permit has two, that of putting back, or of its fence, and that of the MERGE after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from crkafka_core.lake import writing
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold
from crkafka_core.lake.writing import Fenced
from crkafka_core.model.errors import Refused, Stale
from crkafka_core.model.rows import Table
from crkafka_core.plane import permits
from crkafka_core.plane import tables as plane
from crkafka_core.plane.permits import Permit
from crkafka_core.plane.table_versions import State, how_to_fill_anew, state_at
from crkafka_core.segments.storage import Stored
from crkafka_core.tables import file_statistics
from crkafka_core.tables.delta_log import DeltaLog, Snapshot, VersionGone, log_of
from crkafka_core.tables.file_statistics import NewFile
from crkafka_core.tables.log import DataFile, MarkedRows
from crkafka_core.tables.on_snapshot import on_what_is_there
from crkafka_core.tables.stamp import PUT_BACK, LogEntry, Stamp, check_known, check_owner, dropped, older_copy

KEYS = "crkafka.keys"
"""Property of the table: the columns by which it is kept."""


def number_of_merge(stamp: Stamp) -> int:
    """Its transaction's, which is above that of putting back before it."""
    return 2 * stamp.number + 1


def acknowledged(region: Handle, log: DeltaLog, permit: Permit, stamp: Stamp, keys: Sequence[str], column: str) -> int:
    """Let the table be what SQL has acknowledged: made if it is not there, put back if anybody has changed its rows since. Its version."""

    def once(snapshot: Snapshot) -> int:
        seen = _ours(region, permit.table, snapshot, stamp, keys)
        check_known(permit.table, seen, permit.commit.number)
        if any(s.changes_rows for s in seen):
            state = State(permit.table.acknowledged, permit.table.version)
            return put_back(log, snapshot, state, stamp, 2 * stamp.number)
        return snapshot.version

    return on_what_is_there(log.table, log.snapshot, lambda: _make(log, stamp, keys, column), once)


def merged(log: DeltaLog, stamp: Stamp, version: int) -> str:
    """The version with our MERGE; refused if it is not there, or anybody else has changed rows since that one."""
    snapshot = log.snapshot()
    if snapshot is None or snapshot.facts(stamp.app).number != number_of_merge(stamp):
        raise dropped(stamp)
    if any(s.changes_rows and s.stamp != stamp for s in snapshot.since(str(version))):
        raise Refused(
            f"Table {stamp.table} was written by somebody else meanwhile: its history names them.",
            hint="This commit is not acknowledged. Write again: what they did is undone first.",
        )
    return str(snapshot.version)


def fence(region: Handle, name: str, keys: Sequence[str], column: str) -> Table:
    """Let the table follow the latest rewind: it is what it was at the latest acknowledged commit that is on the line."""

    def write(permit: Permit, hold: Hold) -> Fenced:
        uid = region.plane.read(lambda _, row: row.uid)
        stamp, log = Stamp.of(uid, permit.commit), log_of(region, permit.table)
        state = region.plane.read(
            lambda reader, row: state_at(reader, replace(row, head=permit.commit.upto), permit.table)
        )

        def once(snapshot: Snapshot) -> Fenced:
            _ours(region, permit.table, snapshot, stamp, keys)
            if not keys and state.checkpoint != permit.table.acknowledged:
                raise Stale(f"Region {region.plane.region} was rewound meanwhile.", hint="Mend again, after the fence.")
            hold.check()
            version = put_back(log, snapshot, state, stamp, number_of_merge(stamp) if keys else stamp.number)
            return Fenced(str(version), state.checkpoint)

        return on_what_is_there(log.table, log.snapshot, lambda: _make(log, stamp, keys, column), once)

    return writing.fence(region, name, write)


def undo(region: Handle, log: DeltaLog, name: str, column: str) -> bool:
    """Let a table with a row for each record be what SQL has acknowledged: the files of that version. False: it is, or its log cannot."""
    table = region.plane.read(lambda reader, _: plane.of(reader, name))
    snapshot = log.snapshot()
    if not table.version or table.owes_fence or snapshot is None or snapshot.partition_columns:
        return False
    if snapshot.untouched_since(int(table.version)):
        return False
    try:
        _difference(log, snapshot, State(table.acknowledged, table.version))
    except (Gone, MarkedRows):
        return False
    region.plane.do(lambda tx: permits.owe_fence(tx, name))
    fence(region, name, (), column)
    return True


def put_back(log: DeltaLog, snapshot: Snapshot, state: State, stamp: Stamp, number: int) -> int:
    """The commit that makes the table what it was in that version; its own version."""
    if snapshot.facts(stamp.app).number >= number:
        raise dropped(stamp)
    back, gone = _difference(log, snapshot, state)
    return snapshot.exchange(back, gone, stamp, number, {"kind": PUT_BACK, "to": state.version})


def _difference(log: DeltaLog, snapshot: Snapshot, state: State) -> tuple[list[NewFile], list[DataFile]]:
    """What has to come back, and what has to leave."""
    there = {file.path: file for file in snapshot.files()}
    wanted = {file.path: file for file in _files_at(log, snapshot, state)}
    if any(file.kept is not None for file in (*there.values(), *wanted.values())):
        raise MarkedRows(
            f"Table {log.table.name} at {log.table.path} has deletion vectors, which only Spark can write.",
            hint=f"ALTER TABLE delta.`{log.table.path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false'), then "
            f"REORG TABLE delta.`{log.table.path}` APPLY (PURGE).",
        )
    back = [file for path, file in wanted.items() if path not in there]
    storage = log.storage()
    if not all(storage.exists(file.path) for file in back):
        raise gone_for_good(log.table, state, "its files were vacuumed", _KEEP)
    gone = [file for path, file in there.items() if path not in wanted]
    return file_statistics.from_footers(storage, (Stored(file.path, file.bytes) for file in back)), gone


def _files_at(log: DeltaLog, snapshot: Snapshot, state: State) -> list[DataFile]:
    if state.version and snapshot.untouched_since(int(state.version)):
        return snapshot.files()  # compacted meanwhile, perhaps; and the older files need not be there any more
    try:
        return log.at(state.version).files() if state.version else []
    except VersionGone as gone:
        raise gone_for_good(log.table, state, "the log has been cleaned of it", _KEEP) from gone


class Gone(Refused):
    """A version to go back to is not kept any more. Reaction: the table is made anew."""


_KEEP = "delta.deletedFileRetentionDuration and delta.logRetentionDuration"


def gone_for_good(table: Table, state: State, why: str, keep: str) -> Gone:
    """`keep`: what says how long older versions are kept."""
    return Gone(
        f"Table {table.name} at {table.path} cannot go back to checkpoint {state.checkpoint}, its version {state.version}: {why}.",
        hint=f"{how_to_fill_anew(table.name)} Old versions are kept by {keep}.",
    )


def _make(log: DeltaLog, stamp: Stamp, keys: Sequence[str], column: str) -> None:
    log.create(stamp, pa.schema([(column, pa.int64())]), {KEYS: ",".join(keys)})


def _ours(region: Handle, table: Table, snapshot: Snapshot, stamp: Stamp, keys: Sequence[str]) -> list[LogEntry]:
    """What came after the acknowledged version; refused if the table is not ours, of these keys, or an older copy of it."""
    seen = snapshot.since(table.version)
    number = snapshot.facts(stamp.app).number
    check_number(region, table, number // 2 if keys else number)
    check_owner(table, seen, stamp.uid)
    check_keys(table, snapshot.property(KEYS), keys)
    return seen


def check_number(region: Handle, table: Table, shown: int) -> None:
    """Refuse an older copy, also where harmless commits have brought its version up again: its own last number tells (SPEC K6)."""
    made = region.plane.read(lambda reader, _: permits.made(reader, table)) if table.version else 0
    if shown < made:
        raise older_copy(table, shown, made)


def check_keys(table: Table, kept_by: str, keys: Sequence[str]) -> None:
    """Refuse to keep a table by other keys than it was made for, or to append to one that is kept by keys."""
    wanted = ",".join(keys)
    if kept_by != wanted:
        raise Refused(
            f"Table {table.name} at {table.path} has one row for each {kept_by or 'record'}, and is declared with one for each "
            f"{wanted or 'record'}.",
            hint="Nothing was written. Declare it as it was, or as a table of another name.",
        )
