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
from functools import cached_property
from itertools import chain
from typing import TypeVar

import pyarrow as pa

from crkafka_core.control import Reader, Tx
from crkafka_core.lake import writing
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold
from crkafka_core.lake.writing import Committed, Fenced, Written
from crkafka_core.model.errors import Refused
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Region, Segment, Table
from crkafka_core.model.selection import EVERYTHING
from crkafka_core.plane import contents, erasure, permits, reading, tables
from crkafka_core.plane.permits import Permit
from crkafka_core.plane.reading import ReadPlan
from crkafka_core.tables import files, last_commit, leftover
from crkafka_core.tables.content import Content, content_of
from crkafka_core.tables.delta_log import log_of, open_log
from crkafka_core.tables.files import Added
from crkafka_core.tables.last_commit import NotAcknowledged, Standing
from crkafka_core.tables.leftover import Leaving
from crkafka_core.tables.log import DataFile, Logs, Moved, NeedsSpark, Snapshot, TableLog, lost
from crkafka_core.tables.on_snapshot import check, on_a_snapshot
from crkafka_core.tables.stamp import SETTLES, Facts, Stamp

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

    logs: Logs
    fetch: Fetch | None


def advance(
    region: Handle,
    name: str,
    *,
    limit: int | None = AT_ONCE,
    upto: int | None = None,
    fetch: Fetch | None = None,
    logs: Logs = open_log,
) -> Committed | None:
    """Adopt what follows the table's acknowledged checkpoint; at most `limit` checkpoints, and not past `upto`. None: nothing new."""
    means = Means(logs, fetch)

    def once() -> Committed | None:
        return writing.commit(
            region,
            name,
            writing.asking(name, limit=limit, upto=upto),
            lambda permit, hold: _Commit(region, means, permit, hold).advance(),
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
        lambda: writing.fence(region, name, lambda permit, hold: _Commit(region, means, permit, hold).fence()),
        means,
        fencing=True,
    )


def mend(
    region: Handle,
    name: str,
    checkpoints: Collection[int] = (),
    *,
    anew: Collection[int] = (),
    settles: str = "",
    fetch: Fetch | None = None,
    logs: Logs = open_log,
) -> Committed | None:
    """Take out all that does not belong there, bring in what is missing, of these checkpoints above all; None: the table is empty.

    Of those that are to come `anew` no row is believed that is in a file which others may have written. `settles`: up to which version
    of the table these are all that others may have changed.
    """

    def ask(tx: Tx, token: str) -> Permit | None:
        table = tables.of(tx, name)
        ids = checkpoints or contents.live_in(tx, tx.region(), table)[-1:]
        return writing.asking(name, ids=ids)(tx, token) if ids else None

    def once() -> Committed | None:
        chosen, again = frozenset(checkpoints), frozenset(anew)
        return writing.commit(
            region, name, ask, lambda permit, hold: _Commit(region, means, permit, hold, settles).mend(chosen, again)
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
    stamp, table = Stamp.of(permit.plan.uid, permit.commit), permit.table
    log = log_of(region, table)
    snapshot = log.snapshot()
    if snapshot is None:
        log.create(stamp, pa.schema([(column, pa.int64())]))
        snapshot = log.snapshot()
    if snapshot is None or snapshot.files():
        raise Moved(f"Table {table.name} was made by somebody else meanwhile; it is fenced with the next try.")
    return str(snapshot.commit((), (), stamp, _told_in_the_log(permit, 0)))


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


class _Commit:
    """One that is permitted; each of its kinds may be tried on several snapshots, one after the other."""

    def __init__(self, region: Handle, means: Means, permit: Permit, hold: Hold, settles: str = "") -> None:
        """`settles`: see `mend`."""
        self._region, self._means, self._permit, self._hold, self._settles = region, means, permit, hold, settles
        self._stamp = Stamp.of(permit.plan.uid, permit.commit)

    @cached_property
    def _log(self) -> TableLog:
        return self._means.logs(self._region, self._permit.table)

    def advance(self) -> Written:
        plan = self._permit.plan
        if not plan.rows:
            return Written("", 0)
        if plan.ranges:
            self._check_first()  # perhaps the table has them: then nothing is fetched
        made = self._adopt(plan.segments) + self._fetch({r.checkpoint for r in plan.ranges})
        rows = sum(plan.rows_for_tables.values())

        def once(snapshot: Snapshot) -> Written:
            self._check(snapshot)
            return Written(self._put(snapshot, made, (), rows, self._permit.commit.upto), rows)

        return on_a_snapshot(self._log, self._stamp, once)

    def fence(self) -> Fenced:
        permit, log = self._permit, self._log

        def once(snapshot: Snapshot) -> Fenced:
            facts, standing = self._check(snapshot)

            def ask(reader: Reader, row: Region) -> tuple[Content, int]:
                row = replace(row, head=permit.commit.upto)
                content = content_of(reader, row, permit.table, last_commit.shown(facts, standing))
                return content, permits.fenced_to(reader, row, permit)

            content, holds = self._region.plane.read(ask)
            there, forgotten = snapshot.files(), content.forgotten
            if standing is Standing.NEWER or not holds:  # nothing belongs there: neither what names no checkpoint
                there, missing = self._apart(there)
                by_name = content.among(there)
                leaving = leftover.foreign(permit.table, log.storage(), by_name, _lost, forgotten=forgotten)
                leaving.files.extend(missing)
            else:
                by_name, gone = content.among(there), content.gone_inside(there)
                source = self._region.storage()
                leaving = leftover.superseded(
                    permit.table, log.storage(), by_name, gone, source=source, forgotten=forgotten
                )
            return Fenced(self._replace(snapshot, leaving, 0, holds))

        return on_a_snapshot(log, self._stamp, once)

    def mend(self, checkpoints: Collection[int], anew: Collection[int]) -> Written:
        table, log = self._permit.table, self._log

        def once(snapshot: Snapshot) -> Written:
            self._check(snapshot)
            content = self._region.plane.read(lambda reader, row: content_of(reader, row, table))
            there, missing = self._apart(snapshot.files())
            by_name, forgotten = content.among(there), content.forgotten
            leaving = leftover.foreign(table, log.storage(), by_name, int.__ne__, forgotten=forgotten, anew=anew)
            leaving.take_marked(by_name, content.pieces, checkpoints)
            leaving.files.extend(missing)
            rows = sum(self._permit.plan.rows_for_tables.values())
            return Written(self._replace(snapshot, leaving, rows, table.acknowledged), rows)

        return on_a_snapshot(log, self._stamp, once)

    def _check(self, snapshot: Snapshot) -> tuple[Facts, Standing]:
        return check(self._region, self._permit, snapshot, self._stamp)

    def _apart(self, files: Sequence[DataFile]) -> tuple[list[DataFile], list[DataFile]]:
        """Those that are in storage, and those that are not."""
        missing = lost(self._log.storage(), files)
        return [f for f in files if f.path not in missing], [f for f in files if f.path in missing]

    def _check_first(self) -> None:
        """Find out before much is done that it would not count."""
        snapshot = self._log.snapshot()
        if snapshot is not None:
            self._check(snapshot)

    def _replace(self, snapshot: Snapshot, leaving: Leaving, rows: int, holds: int) -> str:
        """The commit that takes out what leaves and brings in what has to be there instead; its version."""
        snapshot.check_removable(leaving.files)
        add = leftover.rewritten(self._log.storage(), self._log.table, leaving, self._stamp)
        add += self._adopt([p.segment for p in leaving.returning if p.segment is not None], again=True)
        add += self._fetch({p.checkpoint for p in leaving.returning if p.segment is None})
        new = {file.name for file in add}  # of a lost file the very name comes again
        gone = {file.path: file for file in leaving.files if file.path not in new}
        return self._put(snapshot, add, list(gone.values()), rows, holds)

    def _put(
        self, snapshot: Snapshot, add: Sequence[Added], remove: Collection[DataFile], rows: int, holds: int
    ) -> str:
        self._hold.check()
        told = _told_in_the_log(self._permit, rows) | ({SETTLES: self._settles} if self._settles else {})
        return str(snapshot.commit(add, remove, self._stamp, told, holds=holds))

    def _adopt(self, segments: Sequence[Segment], *, again: bool = False) -> list[Added]:
        """Have the table own these segments; `again`: it had them before."""
        storage, own = self._region.storage(), self._log.storage(self._stamp)

        def name(segment: Segment) -> str:
            usual = files.name_of(segment)
            used = not self._log.reuses_names and (again or own.exists(usual))
            return files.other_name_of(segment, self._stamp) if used else usual

        ids = {s.checkpoint for s in segments}
        rest = self._region.plane.read(lambda reader, _: erasure.without(reader, ids))

        def adopted(segment: Segment) -> list[Added]:
            selection = rest.get(segment.checkpoint, EVERYTHING)
            if erasure.touches(selection, segment):
                return files.adopt_rest(storage, segment, own, files.other_name_of(segment, self._stamp), selection)
            return [files.adopt(storage, segment, own, name(segment))]

        return list(chain.from_iterable(own.each(adopted, segments)))

    def _fetch(self, checkpoints: Collection[int]) -> list[Added]:
        """Rows of archived checkpoints, read from Kafka again, as files of the table."""
        if not checkpoints:
            return []
        stamp, name = self._stamp, self._permit.table.name
        if self._means.fetch is None:
            raise NeedsSpark(
                f"Table {name} lacks checkpoint {min(checkpoints)}, whose segments are retired: its rows are read again from Kafka.",
                hint=f"`crkafka tables advance {name}` does it, with Spark.",
            )
        plan = self._region.plane.read(lambda reader, row: reading.plan(reader, row, ids=checkpoints))
        folder, storage = f"{stamp.uid}/fetched/{stamp.number:012d}-{stamp.token[-8:]}", self._log.storage(stamp)
        try:
            self._means.fetch(plan, f"{storage.url}/{folder}")
            return files.fetched(storage, folder, plan, stamp)
        finally:
            storage.delete_folder(folder)


def _lost(there: int, wanted: int) -> bool:
    """Rows that a newer control plane took out, or brought in beside others; fewer than were merged were deleted by a person."""
    return there > wanted or there == 0 < wanted


def _told_in_the_log(permit: Permit, rows: int) -> dict[str, object]:
    commit = permit.commit
    return {"kind": commit.kind, "after": commit.after, "upto": commit.upto, "rows": rows}
