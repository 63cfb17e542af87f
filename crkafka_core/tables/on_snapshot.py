"""A commit of ours on a version of a table: which it may be made on, and anew when somebody else was quicker (SPEC K6, G6, G10)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from crkafka_core.control import Reader
from crkafka_core.lake.handle import Handle
from crkafka_core.model.errors import Refused, WentBack
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import permits, restored, tables
from crkafka_core.plane.permits import Permit
from crkafka_core.segments.batch import SEGMENT
from crkafka_core.tables import last_commit
from crkafka_core.tables.last_commit import NotAcknowledged, Standing
from crkafka_core.tables.log import Moved, Snapshot, TableLog
from crkafka_core.tables.stamp import Facts, Stamp, check_owner, check_there, dropped, older_copy, other_owner

_log = logging.getLogger(__name__)
S = TypeVar("S", bound=Snapshot)
T = TypeVar("T")
_LOOKS = 10
"""Times that somebody else may commit between our look and our commit, one after the other, before we give up."""


def on_a_snapshot(log: TableLog, stamp: Stamp, once: Callable[[Snapshot], T]) -> T:
    """Do it on the table as it is, which is made if it is not there; look anew when somebody else was quicker."""
    return on_what_is_there(log.table, log.snapshot, lambda: log.create(stamp), once)


def on_what_is_there(table: Table, look: Callable[[], S | None], make: Callable[[], None], once: Callable[[S], T]) -> T:
    """The same for a table that is looked at, and made, in a way of its own."""

    def one_look() -> T | None:
        snapshot = look()
        check_there(table, "" if snapshot is None else str(snapshot.version))
        if snapshot is not None:
            return once(snapshot)
        make()
        return None

    return until_done(table, one_look)


def until_done(table: Table, one_look: Callable[[], T | None]) -> T:
    """Look anew as often as somebody else was quicker, or as nothing was there to commit on (None)."""
    for _ in range(_LOOKS):
        try:
            done = one_look()
        except Moved as moved:
            _log.info("%s", moved)
        else:
            if done is not None:
                return done
    raise Refused(
        f"Somebody else keeps committing to table {table.name} at {table.path}.",
        hint="It is tried again; who it is, the table's history tells.",
    )


def check(region: Handle, permit: Permit, snapshot: Snapshot, stamp: Stamp) -> tuple[Facts, Standing]:
    """Whether the commit may be made on this snapshot, by what the table itself says of the last one."""
    table, facts = permit.table, snapshot.facts(stamp.app)
    check_columns(table, snapshot)
    if not facts.number:
        check_owner(table, snapshot.since(""), stamp.uid)
        if facts.owner:  # of whom the log tells nothing any more
            raise other_owner(table, None, stamp.uid)
    standing, follows_restored, waits, last, acknowledged = region.plane.read(partial(_standing, permit, facts))
    if standing is Standing.NEWER:
        if not follows_restored:
            raise _went_back(region, table, facts)
        if facts.number >= stamp.number:
            region.plane.do(lambda tx: permits.number_above(tx, table.name, facts.number))
            raise NotAcknowledged(f"Table {table.name} has commit {facts.number}, which a newer control plane made.")
    elif facts.number < last:
        raise older_copy(table, facts.number, last)
    if facts.number >= stamp.number:
        raise dropped(stamp)
    if waits:
        raise NotAcknowledged(f"Table {table.name} has commit {facts.number}, of which the control plane was not told.")
    # By whoever found it, without a lease: what was permitted is not what is lacking.
    if acknowledged != table.acknowledged:
        raise NotAcknowledged(
            f"Table {table.name} has commit {facts.number}, of which the control plane was told after commit {stamp.number} was permitted."
        )
    return facts, standing


def _standing(permit: Permit, facts: Facts, reader: Reader, row: Region) -> tuple[Standing, bool, bool, int, int]:
    """Of the last commit that the table shows; whether ours is the fence after a restored backup; whether that one is to be
    acknowledged first; the commit and the checkpoint that SQL has acknowledged.
    """
    table, fencing = permit.table, permit.commit.kind == tables.FENCE
    standing = last_commit.standing(reader, table, facts)
    waits = standing is Standing.UNACKNOWLEDGED and facts.number < permit.commit.number
    if waits and fencing:  # what one commit brought, the fence takes out again
        waits = not last_commit.unacknowledged(reader, row, table, facts).one_write
    acknowledged = tables.of(reader, table.name).acknowledged
    follows_restored = fencing and permits.after_restored(reader, table)
    return standing, follows_restored, waits, permits.last_number(reader, table), acknowledged


def check_columns(table: Table, snapshot: Snapshot) -> None:
    """Refuse what is no table of Kafka's records any more."""
    if snapshot.partition_columns:
        raise Refused(
            f"Table {table.name} at {table.path} is partitioned by {', '.join(snapshot.partition_columns)}: an older crkafka or "
            "another program made it.",
            hint=f"Declare {table.name} with another path; what is there stays as it is.",
        )
    if missing := [field.name for field in SEGMENT if field.name not in snapshot.columns]:
        raise Refused(
            f"Table {table.name} at {table.path} lacks {', '.join(missing)} of the columns of Kafka's records: it was renamed or dropped, "
            "or another program made the table.",
            hint=f"Give a renamed column its name back; else declare {table.name} with another path: what is there stays as it is.",
        )


def _went_back(region: Handle, table: Table, facts: Facts) -> WentBack:
    """The region stops before anything is written or deleted (SPEC G10)."""
    error = last_commit.newer(table, facts)
    region.plane.do(lambda tx: restored.notice(tx, str(error), by=f"table {table.name}"))
    return error
