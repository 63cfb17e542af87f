"""One way into a table: permit → files → one commit of the format's own log → acknowledged (SPEC K6, X4).

Every write is `_Write`: it looks at the table, reads the stamp that the table shows, and commits directly after what it looked at. After a
refusal, or no answer, it looks again, and the stamp tells whether the commit is there. A writer that dies after the commit leaves a
stamp that SQL does not know; who comes next has SQL acknowledge it, and asks for another permit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from crkafka_core.control import Reader
from crkafka_core.lake import again, files, formats, standing, writing
from crkafka_core.lake.again import Fetch
from crkafka_core.lake.audit import TableAudit
from crkafka_core.lake.formats import Logs
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold
from crkafka_core.lake.port import DataFile, Moved, NewFile, Snapshot, Stamp, TableLog, Unknown, mark_of
from crkafka_core.lake.raw import RAW
from crkafka_core.lake.standing import NotAcknowledged, Standing
from crkafka_core.lake.staying import Staying
from crkafka_core.lake.writing import Committed, Fenced, Written
from crkafka_core.model.errors import Refused
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import contents, permits, tables
from crkafka_core.plane.permits import Permit

_log = logging.getLogger(__name__)
T = TypeVar("T")
AT_ONCE = 200
"""Checkpoints that one commit takes at most, when a table is behind."""
_PERMITS = 5
"""Permits that one call asks for at most, when commits show up that SQL has not acknowledged."""
_LOOKS = 10
"""Times that others may commit between our look and our commit, one after the other, before the write is given up."""


@dataclass(frozen=True)
class Means:
    """What a table is written with: tests have their own."""

    logs: Logs = formats.open_log
    fetch: Fetch | None = None
    """None: Kafka."""


MEANS = Means()


def advance(
    region: Handle, name: str, *, limit: int | None = AT_ONCE, upto: int | None = None, means: Means = MEANS
) -> Committed | None:
    """Bring in what follows the table's acknowledged checkpoint; at most `limit` checkpoints, and not past `upto`. None: nothing new."""
    if region.plane.read(lambda _, row: row.phase) is not Phase.REWINDING and _owes_fence(region, name):
        # Not for a rewind: it was declared again.
        fence(region, name, means=means)
    ask = writing.asking(name, limit=limit, upto=upto)

    def write(permit: Permit, hold: Hold) -> Written:
        if not permit.plan.rows:
            return Written("", 0)
        version = _Write(region, means, permit, hold).run(lambda *_: (permit.commit.upto, None))
        return Written(version, sum(permit.plan.rows_for_tables.values()))

    return _acknowledging(region, name, means, lambda: writing.commit(region, name, ask, write))


def rewrite(
    region: Handle,
    name: str,
    ids: Collection[int],
    *,
    means: Means = MEANS,
    also: Collection[int] = (),
    settles: int = -1,
) -> Committed | None:
    """Replace the rows of these live checkpoints, as a replay does; those that the table has not acknowledged come with its next advance.

    A repair has rows of `also`, and those without a number, leave as well, and settles what others committed up to a version.
    """
    repairs = settles >= 0
    reached = region.plane.read(lambda reader, _: tables.of(reader, name).acknowledged)
    ids = [number for number in sorted(ids) if number <= reached]
    if not ids:
        return None

    def write(permit: Permit, hold: Hold) -> Written:
        holds, gone = permit.table.acknowledged, {*permit.plan.checkpoints, *also}
        staying = standing.staying_at(region, holds, gone, unnumbered=not repairs)
        version = _Write(region, means, permit, hold, settles).run(lambda *_: (holds, staying))
        return Written(version, sum(permit.plan.rows_for_tables.values()))

    return _acknowledging(
        region, name, means, lambda: writing.commit(region, name, writing.asking(name, ids=ids), write)
    )


def erase(region: Handle, name: str, ids: Collection[int], *, means: Means = MEANS) -> Committed | None:
    """Take the records that are noted as erased out of the files that hold rows of these checkpoints; what stays need not come again."""

    def write(permit: Permit, hold: Hold) -> Written:
        staying = Staying.without_erased(permit.plan.selection.erased)
        doing = _Write(region, means, replace(permit, plan=replace(permit.plan, segments=(), ranges=())), hold)
        version = doing.run(lambda *_: (permit.table.acknowledged, staying))
        return Written(version, sum(permit.plan.rows_for_tables.values()))

    return _acknowledging(
        region, name, means, lambda: writing.commit(region, name, writing.asking(name, ids=sorted(ids)), write)
    )


def fence(region: Handle, name: str, *, means: Means = MEANS, repairs: bool = False) -> Table:
    """Let the table follow the latest rewind: afterwards it holds exactly the rows of its acknowledged checkpoints."""

    def write(permit: Permit, hold: Hold) -> Fenced:
        doing = _Write(region, means, permit, hold)
        holds = region.plane.read(lambda reader, row: permits.fenced_to(reader, row, permit))

        def decide(snapshot: Snapshot, of: Standing) -> tuple[int, Staying]:
            nonlocal holds
            if of is Standing.NEWER:
                holds = standing.whole_to(region, doing.log.storage, snapshot, holds)
            return holds, standing.staying_at(region, holds, unnumbered=not repairs)

        return Fenced(doing.run(decide), holds)

    return _acknowledging(region, name, means, lambda: writing.fence(region, name, write), fencing=True)


def mend(region: Handle, name: str, found: TableAudit, *, means: Means = MEANS) -> Committed | None:
    """Take out all that does not belong there, bring in what is missing, and settle what others did. None: the table holds no rows."""

    def last(reader: Reader, row: Region) -> list[int]:
        return contents.live_in(reader, row, tables.of(reader, name))[-1:]

    ids = sorted(found.wrong) or region.plane.read(last)
    if ids:
        return rewrite(region, name, ids, means=means, also=found.strangers, settles=int(found.version))
    region.plane.do(lambda tx: permits.owe_fence(tx, name))
    fence(region, name, means=means, repairs=True)
    return None


def _acknowledging(region: Handle, name: str, means: Means, once: Callable[[], T], *, fencing: bool = False) -> T:
    """Do it when SQL has acknowledged all that the table shows; what cannot be leaves the table by a fence first."""
    for _ in range(_PERMITS):
        try:
            return once()
        except NotAcknowledged as error:
            _log.info("%s", error)
            log = means.logs(region, region.plane.read(lambda reader, row: tables.of(reader, name)))
            standing.acknowledge(region, name, log)
            if not fencing and _owes_fence(region, name):
                fence(region, name, means=means)
    raise Refused(
        f"Commits of this region keep coming to table {name} which the control plane has not acknowledged.",
        hint="It is tried again; whose they are, the table's history tells.",
    )


def _owes_fence(region: Handle, name: str) -> bool:
    return region.plane.read(lambda reader, _: tables.of(reader, name).owes_fence)


Decide = Callable[[Snapshot, Standing], tuple[int, "Staying | None"]]
"""The checkpoint that the table has acknowledged with the commit, and which rows stay; None: all, since the commit only adds."""


class _Write:
    """One write that is permitted: its files, and the commit, which may be tried on several snapshots, one after the other."""

    def __init__(self, region: Handle, means: Means, permit: Permit, hold: Hold, settles: int = -1) -> None:
        self._region, self._means, self._permit, self._hold, self._settles = region, means, permit, hold, settles
        self._folder = f"{permit.plan.uid}/{permit.commit.number:08d}-{mark_of(permit.commit.token):016x}"
        self._attempts = 0

    @cached_property
    def log(self) -> TableLog:
        return self._means.logs(self._region, self._permit.table)

    @cached_property
    def _made(self) -> list[NewFile]:
        """The files of what is permitted; made once, whatever becomes of the first commit."""
        plan, storage = self._permit.plan, self.log.storage
        made = files.adopted(self._region.storage(), plan.segments, plan, storage, self._folder)
        fetch = self._means.fetch or again.from_kafka(self._region.config)
        return made + again.fetched(fetch, plan, storage, self._folder)

    def run(self, decide: Decide) -> str:
        """Commit; the table's version then."""
        for _ in range(_LOOKS):
            try:
                done = self._once(decide)
            except (Moved, Unknown) as error:
                _log.info("%s", error)
            else:
                if done is not None:
                    return str(done)
        table = self._permit.table
        raise Refused(
            f"Other programs keep committing to table {table.name} at {table.path}.",
            hint="It is tried again; who it is, the table's history tells.",
        )

    def _once(self, decide: Decide) -> int | None:
        """On the table as it is; None: it was just made."""
        commit, snapshot = self._permit.commit, self.log.look()
        shown, of = standing.check(self._region, self._permit, snapshot)
        if snapshot is None:
            assert self.log.placed_late or self._made is not None  # what is missing is found before a table is made
            self.log.create(RAW, (), replace(self._stamp(0), permit=0), {})
            return None
        if shown is not None and (shown.permit, shown.token) == (commit.number, mark_of(commit.token)):
            return shown.version  # the answer to an earlier attempt was lost
        holds, staying = decide(snapshot, of)
        leaving, rest = self._parted(snapshot, staying)
        add = [*self._made, *rest]
        self._hold.check()
        stamp = replace(self._stamp(holds), settled=self._settled(snapshot, shown))
        about = {
            "kind": commit.kind,
            "after": commit.after,
            "upto": commit.upto,
            "rows": sum(file.rows for file in add),
        }
        return snapshot.commit(add, leaving, stamp, info=about, keep=self._in_reach).version

    def _in_reach(self) -> set[int]:
        return self._region.plane.read(lambda reader, _: tables.versions_in_reach(reader, self._permit.table))

    def _stamp(self, holds: int) -> Stamp:
        commit = self._permit.commit
        return Stamp(self._permit.plan.uid, commit.table, commit.number, mark_of(commit.token), holds)

    def _parted(self, snapshot: Snapshot, staying: Staying | None) -> tuple[list[DataFile], list[NewFile]]:
        """Files that leave, and new ones with what stays of them."""
        if staying is None:
            return [], []
        storage, there = self.log.storage, list(snapshot.files())
        lost = (
            files.missing(storage, there) if self._settles >= 0 or self._permit.commit.kind == tables.FENCE else set()
        )
        if self._settles >= 0:  # a repair
            leaving, torn = files.parted(storage, [file for file in there if file.path not in lost], staying)
            leaving += [file for file in there if file.path in lost]
        else:
            leaving, torn = files.parted(storage, there, staying, lost)
        self._attempts += 1
        kept = f"{self._folder}/kept-{self._attempts}"
        rest = (files.rest_of(storage, file, staying, f"{kept}-{i:05d}.parquet") for i, file in enumerate(torn))
        return leaving, [file for made in rest for file in made]

    def _settled(self, snapshot: Snapshot, shown: Stamp | None) -> int:
        """Up to which version others' commits are accounted for: with this commit all, if none of them is open."""
        base = shown.settled if shown is not None else -1
        if self._settles < 0 and shown is not None and base < shown.version:
            return base
        base = max(base, self._settles)
        entries = snapshot.since(base)
        if entries is None or any(entry.stamp is None and entry.changes_rows for entry in entries):
            return base
        return snapshot.version + 1
