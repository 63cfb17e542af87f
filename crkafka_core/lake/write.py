"""One write that is permitted: its files, and the commit, which may be tried on several snapshots, one after the other (SPEC K6).

It looks at the table, reads the stamp that the table shows, and commits directly after what it looked at. After a refusal, or no answer,
it looks again, and the stamp tells whether the commit is there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TypeVar

import pyarrow as pa

from crkafka_core.lake import files, standing
from crkafka_core.lake.columns import NUMBER, RAW, followed
from crkafka_core.lake.files import Staying
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold
from crkafka_core.lake.made import NOTHING, Files, create, folder_of_commit
from crkafka_core.lake.port import Change, Moved, Snapshot, Stamp, TableLog, TableUnavailable, Unknown, mark_of
from crkafka_core.lake.standing import Standing
from crkafka_core.model.errors import Refused
from crkafka_core.plane import tables
from crkafka_core.plane.permits import Permit

_log = logging.getLogger(__name__)
_LOOKS = 10
"""Times that others may commit between our look and our commit, one after the other, before the write is given up."""
Decide = Callable[[Snapshot, Standing], tuple[int, "Staying | None"]]
"""The checkpoint that the table has acknowledged with the commit, and which rows stay; None: all, since the commit only adds."""

T = TypeVar("T")


def look_until_done(table: str, once: Callable[[], T | None], looks: int = _LOOKS) -> T:
    """The result of `once`, which looks and commits, and is repeated after `Moved`, `Unknown` or None, `looks` times at most."""
    last: Moved | Unknown | None = None
    for _ in range(looks):
        try:
            done = once()
        except (Moved, Unknown) as error:
            _log.info("%s", error)
            last = error
        else:
            if done is not None:
                return done
    if isinstance(last, Unknown):  # its storage or catalog refuses, and no other program is in the way
        raise TableUnavailable(f"Table {table} could not be written: {last.message}", hint="It is tried again.")
    raise Refused(
        f"Other programs keep committing to table {table}.",
        hint="It is tried again; who it is, the table's history tells.",
    )


@dataclass(eq=False)
class Write:
    region: Handle
    log: TableLog
    permit: Permit
    hold: Hold
    make: Callable[[], Files] = lambda: NOTHING
    """Called once, whatever becomes of the first commit."""
    settles: int = -1
    """Of a repair: the version up to which commits of others are settled."""
    _attempts: int = field(default=0, init=False)

    @cached_property
    def _made(self) -> Files:
        return self.make()

    def run(self, decide: Decide) -> str:
        return str(look_until_done(self.permit.table.name, lambda: self._once(decide)))

    def _once(self, decide: Decide) -> int | None:
        """On the table as it is; None: it was just made."""
        commit, snapshot = self.permit.commit, self.log.look()
        shown, is_known = standing.check(self.region, self.permit, snapshot)
        if snapshot is None:
            # What is missing is found before a table is made; files of one whose folder is not known are made afterwards.
            # A fence brings no files, and the columns by which the table is partitioned.
            late = self.log.placed_late and commit.kind != tables.FENCE
            columns = self._least if late else self._made.columns or self._least
            create(self.region, self.log, self.permit, columns)
            return None
        if shown is not None and (shown.permit, shown.token) == (commit.number, mark_of(commit.token)):
            return shown.version  # the answer to an earlier attempt was lost
        holds, staying = decide(snapshot, is_known)
        change = self._change(snapshot, staying)
        self.hold.check()
        stamp = replace(self._stamp(holds), settled=self._settled(snapshot, shown))
        rows = sum(file.rows for file in change.add)
        about = {"kind": commit.kind, "after": commit.after, "upto": commit.upto, "rows": rows}
        keep = partial(standing.in_reach, self.region, self.permit.table)
        change = replace(change, schema=self._evolved(snapshot), info=about, keep=keep)
        return snapshot.commit(stamp, change).version

    @property
    def _least(self) -> pa.Schema:
        """Columns that the table has, whatever its rows."""
        return NUMBER if self.permit.table.shape else RAW

    def _evolved(self, snapshot: Snapshot) -> pa.Schema | None:
        """The table's columns from this commit on, if it brings others, or another program made the table."""
        wanted = self._made.columns or self._least
        if self._made.columns is None and set(wanted.names) <= set(snapshot.schema.names):
            return None
        columns = followed(self.permit.table.name, snapshot.schema, wanted, widens=self.log.widens)
        return None if columns.equals(snapshot.schema) else columns

    def _stamp(self, holds: int) -> Stamp:
        commit = self.permit.commit
        return Stamp(self.permit.plan.uid, commit.table, commit.number, mark_of(commit.token), holds)

    def _change(self, snapshot: Snapshot, staying: Staying | None) -> Change:
        """Add new files, remove files that leave, and add the rows of these that stay."""
        if staying is None:
            return Change(self._made.new)
        storage, present = self.log.storage, list(snapshot.files())
        repairs = self.settles >= 0
        lost = files.missing(storage, present) if repairs or self.permit.commit.kind == tables.FENCE else set()
        if repairs:
            leaving, torn = files.parted(storage, [file for file in present if file.path not in lost], staying)
            leaving += [file for file in present if file.path in lost]
        else:
            leaving, torn = files.parted(storage, present, staying, lost)
        self._attempts += 1
        kept = f"{folder_of_commit(self.permit)}/kept-{self._attempts}"
        rest = (files.rest_of(storage, file, staying, f"{kept}-{i:05d}.parquet") for i, file in enumerate(torn))
        return Change([*self._made.new, *(file for made in rest for file in made)], leaving)

    def _settled(self, snapshot: Snapshot, shown: Stamp | None) -> int:
        """Up to which version others' commits are accounted for: with this commit all, if none of them is open."""
        base = shown.settled if shown is not None else -1
        if self.settles < 0 and shown is not None and base < shown.version:
            return base
        base = max(base, self.settles)
        entries = snapshot.since(base)
        if entries is None or any(entry.stamp is None and entry.changes_rows for entry in entries):
            return base
        return snapshot.version + 1
