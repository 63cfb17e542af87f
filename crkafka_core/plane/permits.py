"""Permits to write declared tables, and what a finished commit acknowledges (SPEC K6, X4, T1).

A commit has three steps: a permit (a number of its own, under the table's writer lease), the write itself, and the finish,
which compares lease, number and line of descent. A permit that is never finished is overtaken by the next one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from crkafka_core.control import Reader, Tx
from crkafka_core.model import limits
from crkafka_core.model.errors import LeaseLost, NotRunning, Refused, Stale
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Checkpoint, Lease, Region, Table, TableCommit
from crkafka_core.plane import contents, epochs, events, leases, reading, restored, tables
from crkafka_core.plane.tables import ADVANCE, DONE, FAILED, FENCE, OPEN, REWRITE


@dataclass(frozen=True)
class Permit:
    """The right to commit once to a table."""

    table: Table
    commit: TableCommit
    lease: Lease
    plan: reading.ReadPlan
    """Which checkpoints to write; empty for a fence."""


def permit_commit(
    tx: Tx,
    name: str,
    *,
    holder: str,
    token: str,
    ids: Collection[int] | None = None,
    upto: int | None = None,
    limit: int | None = None,
) -> Permit | None:
    """Permit one write: of what follows the acknowledged checkpoint, or with `ids` a rewrite of live ones; None if there is nothing. The
    same token finds its own permit again. Another writer's lease refuses, naming the holder (SPEC K6)."""
    region = tx.region()
    restored.refuse(region)
    table = tables.of(tx, name)
    if table.owes_fence:
        why = f"Table {name} of region {region.name} has not followed the rewind of epoch {table.rewind_epoch}."
        raise NotRunning(why, hint="It takes a fence first; `crkafka reset --to head` or the Spark host makes it.")
    if (mine := _mine(tx, table, token)) is not None:
        plan = reading.plan(tx, region, ids=mine.checkpoints)
        return Permit(table, mine, _take(tx, table, holder, token), plan)
    if ids is None:
        table = _begun(tx, region, table)
        plan = _next(tx, region, table, upto, limit)
    else:
        plan = reading.plan(tx, region, ids=ids)
    return _issue(tx, table, plan, ADVANCE if ids is None else REWRITE, holder, token) if plan.line else None


def permit_together(tx: Tx, names: Collection[str], *, holder: str, token: str, limit: int, most: int) -> list[Permit]:
    """Permit one write of what follows to those of the tables that are where the first is, and that no other writes or fences. At most
    `limit` checkpoints, and `most` bytes of segments; none where one checkpoint has more. The same token finds its own permits again, of
    the same checkpoints: what was merged meanwhile is not theirs."""
    region = tx.region()
    restored.refuse(region)
    declared = [t for t in tx.select(Table, ("name", "in", list(names))) if not t.owes_fence]
    if mine := [(table, commit) for table in declared if (commit := _mine(tx, table, token)) is not None]:
        same = reading.plan(tx, region, ids=mine[0][1].checkpoints)
        return [Permit(table, commit, _take(tx, table, holder, token), same) for table, commit in mine]
    first = min((t.acknowledged for t in declared), default=0)
    level = [_begun(tx, region, t) for t in declared if t.acknowledged == first]
    plan = _next(tx, region, level[0], None, limit) if level else None
    while plan is not None and plan.bytes > most and len(plan.line) > 1:
        plan = _next(tx, region, level[0], None, len(plan.line) // 2)
    if plan is None or not plan.line or plan.bytes > most:
        return []
    others = {lease.kind for lease in tx.select(Lease, ("until", ">", tx.now()), ("token", "!=", token))}
    free = [table for table in level if tables.kind_of_lease(table.name) not in others]
    return [_issue(tx, table, plan, ADVANCE, holder, token) for table in free]


def _begun(tx: Tx, region: Region, table: Table) -> Table:
    """One that has nothing yet begins where the history does: what led to its first checkpoint cannot be read any more (SPEC T2)."""
    if table.acknowledged and tables.last_write(tx, table) is not None:
        return table
    forgotten = contents.before_line(tx, region)
    if table.acknowledged >= forgotten:
        return table
    begun = replace(table, acknowledged=forgotten)
    tx.put(begun)
    text = f"{table.name}: behind checkpoint {forgotten}, since what led to it is not archived any more"
    events.log(tx, "table begins", text, checkpoint=forgotten)
    return begun


def began_late(reader: Reader, table: Table) -> bool:
    """Whether what it has acknowledged came by no commit: it begins behind what is forgotten."""
    upto = table.acknowledged
    return upto > 0 and not tables.advances(reader, ("table", "=", table.name), ("upto", "=", upto))


def _next(tx: Tx, region: Region, table: Table, upto: int | None, limit: int | None) -> reading.ReadPlan:
    end = region.head if upto is None else upto
    if end <= table.acknowledged:
        return reading.plan(tx, region, ids=())
    waiting = [i for i in tables.behind(tx, region, table) if i <= end]
    if upto is not None and upto not in waiting:
        raise reading.refusal(tx, region, upto)
    if limit is not None:
        waiting = waiting[:limit]
    return reading.plan(tx, region, after=table.acknowledged, upto=waiting[-1])


def permit_fence(tx: Tx, name: str, *, holder: str, token: str) -> Permit | None:
    """Permit the fence that a rewind asks for; None if the table needs none (SPEC X4). It takes over the writer's lease: a late finish is
    refused by its number, a late write by the format."""
    region = tx.region()
    restored.refuse(region)
    table = tables.of(tx, name)
    if not table.owes_fence:
        return None
    held, data = tx.get(Lease, tables.kind_of_lease(name), ""), tables.fence_data(table)
    if held is not None and held.token != token and held.data_json != data:
        tx.put(replace(held, until=0.0))
    nothing = reading.ReadPlan(region=region.name, uid=region.uid, line=())
    if (mine := _mine(tx, table, token)) is not None:
        return Permit(table, mine, _take(tx, table, holder, token, data), nothing)
    return _issue(tx, table, nothing, FENCE, holder, token)


def _mine(tx: Tx, table: Table, token: str) -> TableCommit | None:
    mine = tx.select(TableCommit, ("table", "=", table.name), ("token", "=", token), ("status", "=", OPEN), limit=1)
    return mine[0] if mine else None


def _take(tx: Tx, table: Table, holder: str, token: str, data: str = "{}") -> Lease:
    length = limits.of(tx.region()).driver_lease
    return leases.take(tx, tables.kind_of_lease(table.name), holder=holder, token=token, length=length, data=data)


def take(tx: Tx, name: str, *, holder: str, token: str) -> Lease:
    """The writer's lease alone: for what changes no rows, and no writer may do at the same time."""
    restored.refuse(tx.region())
    return _take(tx, tables.of(tx, name), holder, token)


def _issue(tx: Tx, table: Table, plan: reading.ReadPlan, kind: str, holder: str, token: str) -> Permit:
    """The writer's lease, and a commit with a number of its own, which overtakes what is unfinished."""
    lease = _take(tx, table, holder, token, tables.fence_data(table) if kind == FENCE else "{}")
    unfinished = tx.select(TableCommit, ("table", "=", table.name), ("status", "=", OPEN))
    number = table.commits + 1
    ends = {ADVANCE: (table.acknowledged, max(plan.checkpoints, default=0)), FENCE: (0, tx.region().head)}
    after, upto = ends.get(kind, (0, 0))
    tx.put(*(replace(c, status=FAILED, at=tx.now()) for c in unfinished))
    ids = json.dumps(plan.checkpoints)
    commit = TableCommit(table.region, table.name, number, kind, after, upto, ids, token, OPEN, at=tx.now())
    tx.add(commit)
    tx.put(replace(table, commits=number))
    return Permit(table, commit, lease, plan)


def renew(tx: Tx, permit: Permit) -> Lease:
    """Renew the lease; refused once another process writes, or a rewind has asked for a fence."""
    table = tables.of(tx, permit.table.name)
    if permit.commit.kind != FENCE and table.owes_fence:
        why = f"Region {table.region} was rewound: table {table.name} takes a fence first."
        raise LeaseLost(why, hint="Stop; nothing is lost.")
    return leases.renew(tx, permit.lease, limits.of(tx.region()).driver_lease)


def _still(reader: Reader, region: Region, permit: Permit) -> tuple[Table, TableCommit]:
    table = tables.of(reader, permit.table.name)
    commit = reader.get(TableCommit, table.name, permit.commit.number)
    if commit is None or commit.token != permit.commit.token:
        why = f"Commit {permit.commit.number} to table {table.name} is unknown here."
        raise LeaseLost(why, hint="Stop; write nothing more.")
    if commit.status == DONE:
        return table, commit
    leases.check(reader, permit.lease)
    if commit.status != OPEN:
        why = f"Commit {commit.number} to table {table.name} was overtaken."
        raise LeaseLost(why, hint="Stop; the next one goes on.")
    if commit.kind != FENCE and table.owes_fence:
        why = f"Region {region.name} was rewound while commit {commit.number} to {table.name} was written."
        raise Stale(why, hint="The fence removes it.")
    return table, commit


def note_counts(tx: Tx, counted: Iterable[tuple[Permit, Mapping[int, int]]]) -> None:
    """Store the rows by checkpoint of files before their first commit, so that a commit found later is known by its rows."""
    for permit, counts in counted:
        _, commit = _still(tx, tx.region(), permit)
        stored = json.dumps({i: counts.get(i, 0) for i in commit.checkpoints})
        tx.put(replace(commit, counts_json=stored, rows=sum(counts.values())))


def finish_commit(
    tx: Tx,
    permit: Permit,
    *,
    version: str,
    rows: int,
    bad: Mapping[int, int] | None = None,
    counts: Mapping[int, int] | None = None,
) -> Table:
    """Count the write: the only moment at which it is acknowledged. The same permit finished again changes nothing. Without a version
    nothing had to be written. `bad`: checkpoint → records that could not be decoded."""
    region = tx.region()
    table, commit = _still(tx, region, permit)
    if commit.status == DONE:
        return table
    # What was written must still be what belongs in the table: live, with the same records erased, behind what is acknowledged.
    ids = commit.checkpoints
    live = set(tx.line(region.head, after=min(ids) - 1))
    if gone := [i for i in ids if i not in live]:
        left = f"Checkpoint {gone[0]} of region {region.name} is not live any more"
        raise Stale(f"{left}; commit {commit.number} to {table.name} is void.")
    read = {c.id: c.erased_json for c in permit.plan.line}
    erased = tx.select(Checkpoint, ("id", "in", ids), ("erased_json", "!=", "{}"))
    if any(c.erased_json != read.get(c.id, "{}") for c in erased):
        why = f"Records were erased while commit {commit.number} to table {table.name} was written."
        raise Stale(why, hint="Write again: what it wrote does not count, and is replaced.")
    if commit.kind == ADVANCE and table.acknowledged != commit.after:
        since = f"while commit {commit.number} went on from {commit.after}"
        raise Stale(f"Table {table.name} was advanced to {table.acknowledged} {since}.")
    stored = json.dumps({i: counts.get(i, 0) for i in ids}) if counts else ""
    tx.put(replace(commit, status=DONE, version=version, rows=rows, at=tx.now(), counts_json=stored))
    acknowledged = commit.upto if commit.kind == ADVANCE else table.acknowledged
    done = replace(table, version=version or table.version, acknowledged=acknowledged)
    tx.put(done)
    evidence = {"table": table.name, "number": commit.number, "version": version, "rows": rows}
    text = f"{table.name}: {plural(rows, 'row')} of {plural(len(ids), 'checkpoint')}"
    events.log(tx, "table " + commit.kind, text, checkpoint=max(ids), data=evidence)
    _log_bad_records(tx, commit, bad)
    leases.release(tx, permit.lease)
    return done


def _log_bad_records(tx: Tx, commit: TableCommit, bad: Mapping[int, int] | None) -> None:
    counts = {checkpoint: count for checkpoint, count in sorted((bad or {}).items()) if count}
    if counts:
        ids, total = commit.checkpoints, sum(counts.values())
        evidence = {"table": commit.table, "bad": total, "new": commit.kind == ADVANCE, "of": counts}
        several = f" of {len(ids)} checkpoints" if len(ids) > 1 else ""
        text = f"{commit.table}: {plural(total, 'record')}{several} could not be decoded"
        events.log(tx, events.BAD, text, checkpoint=max(ids), data=evidence)


def finish_fence(tx: Tx, permit: Permit, *, version: str, acknowledged: int | None = None) -> Table:
    """The table follows the rewind; when all do, the region leaves REWINDING (SPEC X4). `acknowledged`: the checkpoint to which it went
    back, where that is further than it had to."""
    region = tx.region()
    table, commit = _still(tx, region, permit)
    if commit.status == DONE:
        return table
    # It removed what its own rewind left behind: a lower rewind since then needs another fence.
    shared = fenced_to(tx, region, permit)
    if acknowledged is not None:
        shared = min(shared, acknowledged)
    followed = max(table.fenced_epoch, permit.table.rewind_epoch)
    done = replace(table, fenced_epoch=followed, acknowledged=shared, version=version)
    tx.put(replace(commit, status=DONE, version=version, at=tx.now()))
    tx.put(done)
    evidence = {"table": table.name, "number": commit.number}
    events.log(tx, events.FENCED, f"{table.name} follows to {shared}", checkpoint=shared, data=evidence)
    leases.release(tx, permit.lease)
    epochs.after_fence(tx)
    return done


def fenced_to(reader: Reader, region: Region, permit: Permit) -> int:
    """The latest checkpoint of which rows stay in the table with this fence."""
    return contents.common(reader, replace(region, head=permit.commit.upto), permit.table.acknowledged)


def acknowledge(
    tx: Tx,
    name: str,
    number: int,
    *,
    holds: int,
    version: str,
    without: int = 0,
    bad: Mapping[int, int] | None = None,
    counts: Mapping[int, int] | None = None,
) -> bool:
    """Acknowledge a commit that the table shows and SQL has not acknowledged; False: it is not the table's last one any more.

    Its writer died before it could finish, or the table was declared again where it lies. `without`: the first checkpoint of which it
    brought rows that have been erased since; only the one before is acknowledged, and a fence removes the rest. `counts`: checkpoint →
    rows, where they were not stored before the commit.
    """
    region = tx.region()
    table = tables.of(tx, name)
    commit = tx.get(TableCommit, name, number)
    if commit is None or commit.status == DONE or last_number(tx, table) > number:
        return False
    acknowledged = holds
    if table.version:  # what was acknowledged after an advance without a write stays acknowledged
        acknowledged = table.acknowledged if commit.kind == REWRITE else max(holds, table.acknowledged)
    _refuse_hole(tx, region, table, acknowledged)
    if counts:
        commit = replace(commit, counts_json=json.dumps(counts), rows=sum(counts.values()))
    tx.put(replace(commit, status=DONE, version=version, at=tx.now()))
    if without:
        before = [i for i in tx.line(acknowledged) if i < without]
        acknowledged = before[-1] if before else contents.before_line(tx, region)
    tx.put(replace(table, version=version, acknowledged=acknowledged))
    evidence = {"table": name, "number": number, "version": version}
    text = f"{name}: commit {number} was in the table, and not acknowledged yet"
    events.log(tx, "table " + commit.kind, text, checkpoint=holds, data=evidence)
    _log_bad_records(tx, commit, bad)
    if without or contents.common(tx, region, acknowledged) != acknowledged:
        owe_fence(tx, name)
    return True


def _refuse_hole(reader: Reader, region: Region, table: Table, upto: int) -> None:
    """Refuse a table with the rows up to a checkpoint behind which the history has forgotten some."""
    if upto and reader.get(Checkpoint, upto) is None and upto != contents.before_line(reader, region):
        raise Refused(
            f"Table {table.name} at {table.path} has the rows up to checkpoint {upto}, and what came after it is not in the history any "
            "more: records would be missing.",
            hint=f"`crkafka tables undeclare {table.name}`, and name a new path: it is filled from what is kept, and Kafka. What is there "
            "stays.",
        )


def leave_undone(tx: Tx, name: str, number: int) -> None:
    """Note a commit that the table shows as known, and as undone by the next one: it brought records that have been erased since."""
    commit = tx.get(TableCommit, name, number)
    if commit is not None and commit.status != DONE:
        tx.put(replace(commit, status=DONE, version="", checkpoints_json="[]", counts_json="", rows=0, at=tx.now()))


def owe_fence(tx: Tx, name: str) -> None:
    """Let the table take a fence though no rewind has asked for it: it shows rows that have to leave."""
    region = tx.region()
    table = tables.of(tx, name)
    if not table.owes_fence:
        tx.put(replace(table, rewind_epoch=region.epoch, fenced_epoch=min(table.fenced_epoch, region.epoch - 1)))


def number_above(tx: Tx, name: str, number: int) -> None:
    """The table has seen this number, which a newer control plane gave: what comes next is above it (SPEC G10)."""
    table = tables.of(tx, name)
    tx.put(replace(table, commits=max(table.commits, number)))


def last_number(reader: Reader, table: Table) -> int:
    """Number of the last acknowledged commit that wrote anything."""
    last = tables.last_done(reader, table, ("version", "!=", ""))
    return last.number if last else 0


def fail_commit(tx: Tx, permit: Permit, why: str) -> None:
    """Give up a permit, so that the next writer need not wait for the lease's end. What it wrote does not count."""
    commit = tx.get(TableCommit, permit.table.name, permit.commit.number)
    if commit is None or commit.status != OPEN or commit.token != permit.commit.token:
        return
    tx.put(replace(commit, status=FAILED, at=tx.now()))
    evidence = {"table": permit.table.name, "number": commit.number}
    events.log(tx, "table commit failed", f"{permit.table.name}: {why}", data=evidence)
    leases.release(tx, permit.lease)
