"""A raw Delta or Iceberg table adopts segments as its data files: no row is written a second time (SPEC K6).

An advance: a permit in SQL → the table owns each segment under a name of its own (a link, or a copy inside the object store) →
one commit of the format's own log, directly after the snapshot that was looked at → the acknowledgement in SQL. A crash after any of
them is gone on from: a name that is there is not made again, and SQL is told of a commit that it did not hear of (`last_commit`).
Delta's log is written without Spark; what opens another format's is given (`logs`).

Nobody's files are shared: retirement, orphans, the deletion of the region, and the user's compaction and clean-up each have their own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa

from crkafka_core.control import Reader, Tx
from crkafka_core.machine import holder
from crkafka_core.model.errors import Refused
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Region, Segment, Table
from crkafka_core.model.selection import EVERYTHING
from crkafka_core.plane import contents, erasure, permits, reading, tables
from crkafka_core.plane.contents import Piece
from crkafka_core.plane.permits import Permit
from crkafka_core.plane.reading import ReadPlan
from crkafka_core.tables import files, last_commit, leftover, places, writing
from crkafka_core.tables.content import Content, content_of
from crkafka_core.tables.delta_log import log_of, open_log
from crkafka_core.tables.files import Added
from crkafka_core.tables.handle import Handle
from crkafka_core.tables.hold import Hold
from crkafka_core.tables.last_commit import NotAcknowledged, Standing
from crkafka_core.tables.leftover import Leaving
from crkafka_core.tables.log import Logs, Moved, NeedsSpark, Snapshot, TableLog
from crkafka_core.tables.on_snapshot import check, on_a_snapshot
from crkafka_core.tables.stamp import Stamp
from crkafka_core.tables.writing import Committed, Fenced, Written

_log = logging.getLogger(__name__)
T = TypeVar("T")
AT_ONCE = 200
"""Checkpoints that one commit takes at most, when a table is behind."""
_ATTEMPTS = 5
"""Permits that one call asks for at most, when commits are found that SQL did not hear of."""

Fetch = Callable[[ReadPlan, str], None]
"""Reads archived checkpoints from Kafka again, into Parquet files below a folder of the table (in full), one folder for each."""


@dataclass(frozen=True)
class Means:
    """What is there to write a table with."""

    logs: Logs = open_log
    fetch: Fetch | None = None


def advance(
    region: Handle, name: str, *, limit: int | None = AT_ONCE, upto: int | None = None, fetch: Fetch | None = None,
    logs: Logs = open_log,
) -> Committed | None:  # fmt: skip
    """Adopt what follows the table's acknowledged checkpoint; at most `limit` checkpoints, and not past `upto`. None: nothing new."""
    means = Means(logs, fetch)

    def once() -> Committed | None:
        return writing.commit(
            region,
            name,
            lambda tx, token: permits.permit_commit(tx, name, holder=holder(), token=token, limit=limit, upto=upto),
            lambda permit, hold: _advance(region, permit, hold, means),
        )

    if region.plane.read(lambda _, row: row.phase) is not Phase.REWINDING and _owes_fence(region, name):
        fence(region, name, fetch=fetch, logs=logs)  # not for a rewind: it was declared again
    return _once_sql_knows(region, name, once, means)


def fence(region: Handle, name: str, *, fetch: Fetch | None = None, logs: Logs = open_log) -> Table:
    """Let the table follow the latest rewind: afterwards it holds exactly the rows of its acknowledged checkpoints."""
    means = Means(logs, fetch)
    return _once_sql_knows(
        region,
        name,
        lambda: writing.fence(region, name, lambda permit, hold: Fenced(_fence(region, permit, hold, means))),
        means,
        fencing=True,
    )


def mend(
    region: Handle, name: str, checkpoints: Collection[int] = (), *, fetch: Fetch | None = None, logs: Logs = open_log
) -> Committed | None:
    """Take out all that does not belong there, bring in what is missing, and these checkpoints anew; None: the table is empty."""

    def ask(tx: Tx, token: str) -> Permit | None:
        table = tables.of(tx, name)
        ids = checkpoints or contents.live_in(tx, tx.region(), table)[-1:]
        return permits.permit_commit(tx, name, holder=holder(), token=token, ids=ids) if ids else None

    def once() -> Committed | None:
        return writing.commit(
            region, name, ask, lambda permit, hold: _mend(region, permit, hold, frozenset(checkpoints), means)
        )

    means = Means(logs, fetch)
    done = _once_sql_knows(region, name, once, means)
    if done is None:  # all that may be there does not belong there
        region.plane.do(lambda tx: permits.owe_fence(tx, name))
        fence(region, name, fetch=fetch, logs=logs)
    return done


def make_fenced(region: Handle, permit: Permit, column: str) -> str:
    """Make a Delta table that Spark will write, with nothing but the fence in it: a first write under way is refused by the log then.

    It has the column of the checkpoint's number; the others come with the first rows.
    """
    stamp, table = Stamp.of(_uid(region), permit.commit), permit.table
    log = log_of(region, table)
    snapshot = log.snapshot()
    if snapshot is None:
        log.create(stamp, pa.schema([(column, pa.int64())]))
        snapshot = log.snapshot()
    if snapshot is None or snapshot.files():
        raise Moved(f"Table {table.name} was made by somebody else meanwhile; it is fenced with the next try.")
    return str(snapshot.commit((), (), stamp, _about(permit, 0)))


def _once_sql_knows(region: Handle, name: str, once: Callable[[], T], means: Means, *, fencing: bool = False) -> T:
    """Do it when SQL knows all that the table shows; what cannot be vouched for leaves the table first."""
    for _ in range(_ATTEMPTS):
        try:
            return once()
        except NotAcknowledged as error:
            _log.info("%s", error)
            if not last_commit.acknowledge(region, name, means.logs):
                region.plane.do(lambda tx: permits.owe_fence(tx, name))
            if not fencing and _owes_fence(region, name):
                fence(region, name, fetch=means.fetch, logs=means.logs)
    raise Refused(
        f"Somebody else keeps writing to table {name}, and does not say so to the control plane.",
        hint="It is tried again; who it is, the table's history tells.",
    )


def _owes_fence(region: Handle, name: str) -> bool:
    table = region.plane.read(lambda reader, row: tables.of(reader, name))
    return table.owes_fence


def _advance(region: Handle, permit: Permit, hold: Hold, means: Means) -> Written:
    plan, stamp = permit.plan, Stamp.of(permit.plan.uid, permit.commit)
    if not plan.rows:
        return Written("", 0)
    log, made = means.logs(region, permit.table), list[Added]()
    if plan.ranges:
        _check_first(region, permit, log, stamp)  # perhaps the table has them: then nothing is fetched
    made += _adopt_segments(region, log, stamp, plan.segments)
    made += _fetch_archived(region, log, stamp, {r.checkpoint for r in plan.ranges}, means.fetch)

    def once(snapshot: Snapshot) -> Written:
        check(region, permit, snapshot, stamp)
        hold.check()
        rows = sum(plan.rows_for_tables.values())
        version = snapshot.commit(made, (), stamp, _about(permit, rows), holds=permit.commit.upto)
        return Written(str(version), rows)

    return on_a_snapshot(log, stamp, once)


def _fence(region: Handle, permit: Permit, hold: Hold, means: Means) -> str:
    stamp, log = Stamp.of(_uid(region), permit.commit), means.logs(region, permit.table)

    def once(snapshot: Snapshot) -> str:
        facts, standing = check(region, permit, snapshot, stamp)
        shown = facts.holds if standing is Standing.UNACKNOWLEDGED else 0

        def ask(reader: Reader, row: Region) -> tuple[Content, list[Piece], int]:
            row, table = replace(row, head=permit.commit.upto), permit.table
            gone = contents.leaving(reader, row, table, shown)
            return (
                content_of(reader, row, table),
                contents.pieces(reader, row, gone),
                permits.fenced_to(reader, row, permit),
            )

        content, gone, holds = region.plane.read(ask)
        there, storage = snapshot.files(), log.storage()
        found = content.among(there)
        if standing is Standing.NEWER or not holds:  # nothing belongs there: neither what names no checkpoint
            leaving = leftover.foreign(permit.table, storage, found, _lost, forgotten=content.forgotten)
        else:
            left = {piece.checkpoint for piece in gone}
            inside = places.sort_files(there, content.uid, lambda c: c in left, gone).pieces
            leaving = leftover.superseded(permit.table, storage, found, inside, forgotten=content.forgotten)
        return _commit_replacement(region, permit, hold, log, snapshot, leaving, 0, holds, means.fetch)

    return on_a_snapshot(log, stamp, once)


def _lost(there: int, wanted: int) -> bool:
    """Rows that a newer control plane took out, or brought in beside others; fewer than were merged were deleted by a person."""
    return there > wanted or there == 0 < wanted


def _mend(region: Handle, permit: Permit, hold: Hold, checkpoints: frozenset[int], means: Means) -> Written:
    stamp, log = Stamp.of(permit.plan.uid, permit.commit), means.logs(region, permit.table)

    def once(snapshot: Snapshot) -> Written:
        check(region, permit, snapshot, stamp)
        content = region.plane.read(lambda reader, row: content_of(reader, row, permit.table))
        found, storage = content.among(snapshot.files()), log.storage()
        leaving = leftover.foreign(permit.table, storage, found, int.__ne__, forgotten=content.forgotten)
        leaving.take_marked(found, content.pieces, checkpoints)
        rows, holds = sum(permit.plan.rows_for_tables.values()), permit.table.acknowledged
        return Written(
            _commit_replacement(region, permit, hold, log, snapshot, leaving, rows, holds, means.fetch), rows
        )

    return on_a_snapshot(log, stamp, once)


def _commit_replacement(
    region: Handle, permit: Permit, hold: Hold, log: TableLog, snapshot: Snapshot, leaving: Leaving, rows: int, holds: int,
    fetch: Fetch | None,
) -> str:  # fmt: skip
    """The commit that takes out what leaves and brings in what has to be there instead; its version."""
    stamp = Stamp.of(_uid(region), permit.commit)
    snapshot.check_removable(leaving.files)
    archived = {piece.checkpoint for piece in leaving.returning if piece.segment is None}
    add = leftover.rewritten(log.storage(), log.table, leaving, stamp)
    kept = [piece.segment for piece in leaving.returning if piece.segment is not None]
    add += _adopt_segments(region, log, stamp, kept, again=True)
    add += _fetch_archived(region, log, stamp, archived, fetch)
    hold.check()
    return str(snapshot.commit(add, leaving.files, stamp, _about(permit, rows), holds=holds))


def _adopt_segments(
    region: Handle, log: TableLog, stamp: Stamp, segments: Sequence[Segment], *, again: bool = False
) -> list[Added]:
    """Have the table own these segments; `again`: it had them before."""
    storage, own = region.storage(), log.storage(stamp)

    def name(segment: Segment) -> str:
        usual = files.name_of(segment)
        used = not log.reuses_names and (again or own.exists(usual))
        return files.other_name_of(segment, stamp) if used else usual

    rest = region.plane.read(lambda reader, _: erasure.without(reader, {s.checkpoint for s in segments}))
    made = []
    for segment in segments:
        selection = rest.get(segment.checkpoint, EVERYTHING)
        if erasure.touches(selection, segment):
            made += files.adopt_rest(storage, segment, own, files.other_name_of(segment, stamp), selection)
        else:
            made.append(files.adopt(storage, segment, own, name(segment)))
    return made


def _fetch_archived(
    region: Handle, log: TableLog, stamp: Stamp, checkpoints: Collection[int], fetch: Fetch | None
) -> list[Added]:
    """Rows of archived checkpoints, read from Kafka again, as files of the table."""
    if not checkpoints:
        return []
    table = log.table
    if fetch is None:
        raise NeedsSpark(
            f"Table {table.name} lacks checkpoint {min(checkpoints)}, whose segments are retired: its rows are read again from Kafka.",
            hint=f"`crkafka tables advance {table.name}` does it, with Spark.",
        )
    plan = region.plane.read(lambda reader, row: reading.plan(reader, row, ids=checkpoints))
    folder, storage = f"{stamp.uid}/fetched/{stamp.number:012d}-{stamp.token[-8:]}", log.storage(stamp)
    try:
        fetch(plan, f"{storage.url}/{folder}")
        return files.fetched(storage, folder, plan, stamp)
    finally:
        storage.delete_folder(folder)


def _check_first(region: Handle, permit: Permit, log: TableLog, stamp: Stamp) -> None:
    """Find out before much is done that it would not count."""
    snapshot = log.snapshot()
    if snapshot is not None:
        check(region, permit, snapshot, stamp)


def _about(permit: Permit, rows: int) -> dict[str, object]:
    commit = permit.commit
    return {"kind": commit.kind, "after": commit.after, "upto": commit.upto, "rows": rows}


def _uid(region: Handle) -> str:
    return region.plane.read(lambda _, row: row.uid)
