"""What a table shows of our last commit, compared with what SQL has acknowledged: read before every commit (SPEC K6, G6, G10)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

import pyarrow.compute as pc

from crkafka_core.config.shapes import topic_of
from crkafka_core.control import Reader
from crkafka_core.lake import files
from crkafka_core.lake.columns import Place, keys_of, parts_of
from crkafka_core.lake.files import Staying
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.port import CHECKPOINT, KEYS, DataFile, Snapshot, Stamp, TableLog, mark_of
from crkafka_core.lake.writing import PermitOutdated
from crkafka_core.model.errors import LeaseLost, Refused, WentBack
from crkafka_core.model.rows import Region, Table, TableCommit
from crkafka_core.plane import checkpoints, contents, numbers, permits, restored, tables
from crkafka_core.plane.permits import Permit
from crkafka_core.segments.batch import SCHEMA
from crkafka_core.segments.storage import Storage


class Standing(Enum):
    """Of the last commit of ours that a table shows."""

    NONE = "none"
    ACKNOWLEDGED = "acknowledged"
    UNACKNOWLEDGED = "unacknowledged"
    """SQL permitted it, and does not know that it was made."""
    NEWER = "newer"
    """SQL never permitted it: it went back in time."""


class OtherRegion(Refused):
    """The table holds another region's rows (SPEC G6). Reaction: another path, or adopt them."""


def standing(reader: Reader, table: Table, stamp: Stamp | None) -> Standing:
    """Of what the table shows."""
    if stamp is None:
        return Standing.NONE
    commit = reader.get(TableCommit, table.name, stamp.permit)
    if commit is None or mark_of(commit.token) != stamp.token:
        return Standing.NEWER
    return Standing.ACKNOWLEDGED if commit.status == tables.DONE else Standing.UNACKNOWLEDGED


def check(region: Handle, permit: Permit, snapshot: Snapshot | None) -> tuple[Stamp | None, Standing]:
    """The stamp that a table shows, and what SQL knows of it; refused where our commit may not follow it."""
    table, uid, number = permit.table, permit.plan.uid, permit.commit.number
    check_place(table, snapshot)
    if snapshot is None:
        return None, Standing.NONE
    check_columns(region, table, snapshot)
    stamp = snapshot.stamp(uid, table.name)
    if snapshot.owner() not in (None, Stamp(uid, table.name, 0, 0, 0).owner):
        raise _other_owner(table, snapshot, uid)
    if stamp is None and table.version:
        raise older_copy(table, 0, table.version)
    if stamp is None or (stamp.permit, stamp.token) == (number, mark_of(permit.commit.token)):
        return stamp, Standing.NONE

    def ask(reader: Reader, row: Region) -> tuple[Standing, int, bool, int]:
        now = tables.of(reader, table.name)
        # After a restored backup the table may be newer than SQL (SPEC G10).
        follows = permit.commit.kind == tables.FENCE and restored.went_on(reader, after=now.fenced_epoch)
        return standing(reader, now, stamp), permits.last_number(reader, now), follows, now.acknowledged

    shown, last, follows_restored, acknowledged = region.plane.read(ask)
    if shown is Standing.NEWER:
        _go_on_from_newer(region, permit, stamp, follows_restored=follows_restored)
    elif stamp.permit < last:
        raise older_copy(table, stamp.permit, str(last))
    elif stamp.permit >= number:
        raise LeaseLost(
            f"Table {table.name} has commit {stamp.permit}; commit {number} comes too late.",
            hint="Stop; the later writer goes on.",
        )
    elif shown is Standing.UNACKNOWLEDGED:
        raise PermitOutdated(
            f"Table {table.name} has commit {stamp.permit}, which the control plane has not acknowledged."
        )
    if acknowledged != table.acknowledged:  # by another program that saw it, without the lease
        raise PermitOutdated(
            f"Table {table.name} was acknowledged to {acknowledged} after commit {number} was permitted."
        )
    return stamp, shown


def _go_on_from_newer(region: Handle, permit: Permit, stamp: Stamp, *, follows_restored: bool) -> None:
    """Only the fence after a restored backup does, with a number above; else the region stops before anything is written (SPEC G10)."""
    name = permit.table.name
    if not follows_restored:
        error = newer(permit.table, stamp)
        region.plane.do(lambda tx: restored.notice(tx, str(error), by=f"table {name}"))
        raise error
    if stamp.permit >= permit.commit.number:
        region.plane.do(lambda tx: permits.number_above(tx, name, stamp.permit))
        raise PermitOutdated(f"Table {name} has commit {stamp.permit}, which a newer control plane made.")


def acknowledge(region: Handle, name: str, log: TableLog) -> None:
    """Let SQL know of the commit that the table shows, if it does not.

    What the commit brought and a later erasure took out of its checkpoints is counted: where the table still has it, it is acknowledged
    only to the checkpoint before, and a fence takes out the rest. In a table with one row for each key the next commit undoes it.
    """
    snapshot = log.look()
    if snapshot is None:
        return
    table, stamp, erased, bad, uncounted = region.plane.read(partial(_unacknowledged, region, name, snapshot))
    if stamp is None:
        return
    if erased and keys_of(region.config, table):
        region.plane.do(lambda tx: permits.leave_undone(tx, name, stamp.permit))
        return
    asked = {*erased, *uncounted}
    near = (file for file in snapshot.files() if file.may_have(min(asked), max(asked)))
    counted = count(log.storage, near).rows if asked else Counter[int]()
    wrong = [i for i, rows in erased.items() if counted[i] != rows]
    region.plane.do(
        lambda tx: permits.acknowledge(
            tx,
            name,
            stamp.permit,
            holds=stamp.checkpoint,
            version=str(stamp.version),
            without=min(wrong, default=0),
            bad=bad,
            counts={i: counted[i] for i in uncounted},
        )
    )


def _unacknowledged(
    region: Handle, name: str, snapshot: Snapshot, reader: Reader, row: Region
) -> tuple[Table, Stamp | None, dict[int, int], dict[int, int], list[int]]:
    """The table; the stamp of a commit that SQL does not know; erased and bad records in its checkpoints; checkpoints to be counted."""
    now, stamp = tables.of(reader, name), snapshot.stamp(row.uid, name)
    if stamp is None or standing(reader, now, stamp) is not Standing.UNACKNOWLEDGED:
        return now, None, {}, {}, []
    commit = reader.get(TableCommit, name, stamp.permit)
    assert commit is not None
    # What came with the commit, also what is acknowledged since because all of its records were erased.
    own = commit.checkpoints if commit.kind == tables.ADVANCE else ()
    brought = [i for i in reader.line(stamp.checkpoint) if i > now.acknowledged or i in own]
    erased = checkpoints.within(reader, brought, ("erased_json", "!=", "{}"))
    # How many of the erased records a table of a shape would have had is not known: such a commit is not acknowledged.
    gone = {c.id: -1 if now.shape else c.rows_for_tables for c in erased}
    # The rows of a table of a shape are counted after a commit that took erased records out of it.
    uncounted = commit.kind == tables.REWRITE and now.shape and not commit.counts_json
    bad = _not_decoded(region, reader, row, now, commit)
    return now, stamp, gone, bad, commit.checkpoints if uncounted else []


def _not_decoded(region: Handle, reader: Reader, row: Region, table: Table, commit: TableCommit) -> dict[int, int]:
    """Checkpoint → records that are not among the rows which a commit to a typed table was permitted with, since they are bad."""
    declared, rows = region.config.table(table.name, table.shape), commit.counts if commit.counts_json else {}
    if declared is None or declared.typed is None or not rows:
        return {}
    if declared.topics is None:
        merged = {c.id: c.rows_for_tables for c in checkpoints.within(reader, rows)}
    else:
        merged = contents.of_topics(reader, row, rows, declared.topics)
    return {i: max(0, merged.get(i, 0) - count) for i, count in rows.items()}


@dataclass
class Counted:
    """Rows of some files of a table."""

    rows: Counter[int] = field(default_factory=Counter)
    """By the number of their checkpoint."""
    unnumbered: int = 0
    doubled: set[int] = field(default_factory=set)
    """Checkpoints with a record more than once, where that was asked for."""


def count(table: Storage, present: Iterable[DataFile], *, distinct: Place | None = None) -> Counted:
    """By the bounds in the log where these suffice, else by the column. `distinct`: by every record, which these columns identify."""
    counted, seen = Counted(), dict[tuple[str, int, int], set[int]]()
    for file in present:
        low, high = file.numbers or (0, -1)
        if distinct is None and low == high and file.nulls.get(CHECKPOINT) == 0 and file.rows >= 0:
            counted.rows[low] += file.live
            continue
        for batch in files.numbers_of(table, file):
            for value in pc.value_counts(batch.column(0)).to_pylist():
                if value["values"] is None:
                    counted.unnumbered += value["counts"]
                else:
                    counted.rows[value["values"]] += value["counts"]
        if distinct is not None:
            for batch in files.rows_of(table, file, [CHECKPOINT, *distinct], only=True):
                for number, topic, partition, offset in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                    offsets = seen.setdefault((topic, partition, number or 0), set())
                    if offset in offsets:
                        counted.doubled.add(number or 0)
                    offsets.add(offset)
    return counted


def whole_to(region: Handle, table: Table, storage: Storage, snapshot: Snapshot, holds: int) -> int:
    """The last checkpoint up to which a table has all that was merged: a newer control plane may have taken rows out (SPEC G10)."""

    def ask(reader: Reader, row: Region) -> tuple[list[int], dict[int, int]]:
        line = reader.line(holds) if holds else []
        return line, due(reader, table, line)

    line, rows = region.plane.read(ask)
    present = count(storage, snapshot.files()).rows
    lacking = next((i for i in line if i in rows and present[i] != rows[i]), None)
    return holds if lacking is None else max((i for i in line if i < lacking), default=0)


def due(reader: Reader, table: Table, ids: Collection[int]) -> dict[int, int]:
    """Checkpoint → rows that the table has to have; of a shape, as many as were counted when they were written, where that is known."""
    if table.shape:
        return tables.rows_in(reader, table, ids)
    return {c.id: c.rows_for_tables for c in checkpoints.within(reader, ids)}


def in_reach(region: Handle, table: Table) -> set[int]:
    return region.plane.read(lambda reader, row: contents.versions_in_reach(reader, row, table))


def staying_at(region: Handle, holds: int, without: Collection[int] = (), *, unnumbered: bool = True) -> Staying:
    """Which rows stay in a table that has acknowledged so much (SPEC C8)."""
    dead = region.plane.read(lambda reader, _: numbers.dead(reader))
    return Staying.of(holds, dead.intervals, without, unnumbered=unnumbered)


def newer(table: Table, stamp: Stamp) -> WentBack:
    return WentBack(
        f"Table {table.name} of region {table.region} has commit {stamp.permit}, up to checkpoint {stamp.checkpoint}; the control plane "
        f"never issued it: its last one is {table.commits}.",
        hint=restored.HINT,
    )


def elsewhere(table: Table) -> str:
    """How the rows of a table come into another one, at another path."""
    undeclare, topic = f"`crkafka tables undeclare {table.name}`", topic_of(table.shape)
    if not topic:
        return f"{undeclare}, and declare it at another path"
    return f"{undeclare}, write `except: [{topic}]` beside its template, and declare a table with `topics: [{topic}]` at another path"


def check_place(table: Table, snapshot: Snapshot | None) -> None:
    """A table that has acknowledged rows and is not there is not made again in silence: its folder may only not be mounted here."""
    if table.version and (snapshot is None or snapshot.version < int(table.version)):
        now = "is not there" if snapshot is None else f"is at version {snapshot.version}"
        raise Refused(
            f"Table {table.name} at {table.path} {now}, and version {table.version} of it was acknowledged.",
            hint=f"Is its folder mounted on this machine? If it is lost: {elsewhere(table)}.",
        )


def check_columns(region: Handle, table: Table, snapshot: Snapshot) -> None:
    """Refuse what is no table of these rows any more; an empty one of others gets the columns that it lacks with its first rows."""
    keys, kept_by = ",".join(keys_of(region.config, table)), snapshot.properties.get(KEYS, "")
    if kept_by != keys:
        raise Refused(
            f"Table {table.name} at {table.path} has one row for each {kept_by or 'record'}, and is declared with one for each "
            f"{keys or 'record'}.",
            hint="Nothing was written. Declare it as it was, or as a table of another name.",
        )
    present, declared = list(snapshot.parts), list(parts_of(region.config, table))
    if present != declared:
        words = [", ".join(map(str, parts)) for parts in (present, declared)]
        by = f"is declared with partition_by: [{words[1]}]" if declared else "another program made it"
        raise Refused(
            f"Table {table.name} at {table.path} is partitioned by {words[0] or 'nothing'}: {by}.",
            hint=f"Write `partition_by` as it was, or {elsewhere(table)}; what is there stays as it is.",
        )
    if snapshot.owner() is None and not any(True for _ in snapshot.files()):
        if required := [field.name for field in snapshot.schema if not field.nullable]:
            raise Refused(
                f"Table {table.name} at {table.path} was made with required columns, and a record may lack {', '.join(required)}.",
                hint=f"Let these columns be null, or {elsewhere(table)}.",
            )
        return
    needed = (CHECKPOINT,) if table.shape else (*SCHEMA.names, CHECKPOINT)
    if missing := [name for name in needed if name not in snapshot.schema.names]:
        raise Refused(
            f"Table {table.name} at {table.path} lacks {', '.join(dict.fromkeys(missing))} of the columns of Kafka's records: it was "
            "renamed or dropped, or another program made the table.",
            hint=f"Give a renamed column its name back; else {elsewhere(table)}: what is there stays as it is.",
        )


def older_copy(table: Table, shown: int, acknowledged: str) -> Refused:
    shows = f"shows commit {shown}" if shown else "shows no commit"
    return Refused(
        f"Table {table.name} at {table.path} {shows} of this region, and commit {acknowledged} was acknowledged: an older copy of it was "
        "put back, or another table is there.",
        hint=f"Put the newer one back; if it is gone for good: {elsewhere(table)}.",
    )


def _other_owner(table: Table, snapshot: Snapshot, uid: str) -> OtherRegion:
    """Where the table's log has been cleaned of the stamp, only that it is another's is known."""
    whose = "others"
    for entry in snapshot.since(max(0, snapshot.version - 100)) or ():
        if (last := entry.stamp) is not None:
            whose = f"table {last.table} of this region" if last.uid == uid else f"region uid {last.uid}"
    return OtherRegion(
        f"Table {table.name} at {table.path} holds rows of {whose}; this region is {uid}.",
        hint="Two regions of one name are two regions, and two tables are two: name another path.",
    )
