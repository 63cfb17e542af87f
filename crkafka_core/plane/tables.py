"""Declared tables: which commits are permitted, and what a finished one acknowledges (SPEC K6, X4, T1).

A commit has three steps: a permit (a number of its own, under the table's writer lease), the write itself, and the finish,
which compares lease, number and line of descent. A permit that is never finished is overtaken by the next one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from crkafka_core.control import Reader, Tx
from crkafka_core.model.errors import LeaseLost, NoSuchCheckpoint, NotRunning, Refused, Stale
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Lease, MergedOffset, Region, Table, TableCommit
from crkafka_core.plane import events, leases, limits, reading, resets, starts

ADVANCE, REWRITE, FENCE = "advance", "rewrite", "fence"
OPEN, DONE, FAILED = "OPEN", "DONE", "FAILED"


@dataclass(frozen=True)
class Permit:
    """The right to commit once to a table."""

    table: Table
    """As it was when permitted."""
    commit: TableCommit
    lease: Lease
    plan: reading.ReadPlan
    """Which checkpoints to write; empty for a fence."""
    overtaken: tuple[TableCommit, ...] = ()
    """Permits that were never finished: their writes may be there, or may still come (SPEC K6)."""


def declare(tx: Tx, name: str, format: str, path: str, *, by: str = "") -> Table:
    """Declare a table; it starts at birth, owes no fence, and holds back retirement from now on."""
    region = tx.region()
    old = tx.get(Table, region.name, name)
    if old is not None:
        if (old.format, old.path) != (format, path):
            raise Refused(
                f"Table {name} of region {region.name} is declared as {old.format} at {old.path}.",
                hint=f"{format} at {path} would be another table, filled from birth: give it a name of its own, "
                f"or `crkafka undeclare {name}` first; what the old one holds is not deleted.",
            )
        return old
    table = Table(region=region.name, name=name, format=format, path=path)
    before = commits(tx, table)
    table = replace(table, commits=before[-1].number if before else 0)
    tx.add(table)
    events.log(tx, "table declared", f"{name}: {format} at {path}", by=by)
    return table


def undeclare(tx: Tx, name: str, *, by: str = "") -> None:
    """Forget a table that is gone: it holds nothing back any more, and owes no fence (SPEC X4)."""
    table = of(tx, tx.region().name, name)
    tx.delete(Table, ("region", "=", table.region), ("name", "=", name))
    held = tx.get(Lease, table.region, _kind(name), "")
    if held is not None:
        tx.put(replace(held, until=0.0, token=""))
    forgotten = [replace(c, status=FAILED) for c in commits(tx, table)]
    if forgotten:
        tx.put(*forgotten)  # kept: declared again, its commits go on from these numbers, or the format would drop them
    events.log(tx, "table undeclared", name, by=by)
    resets.after_fence(tx)


def of(reader: Reader, region: str, name: str) -> Table:
    """The declared table of this name."""
    table = reader.get(Table, region, name)
    if table is None:
        there = ", ".join(t.name for t in reader.select(Table, ("region", "=", region))) or "none"
        raise Refused(f"Region {region} declares no table {name!r}.", hint=f"Declared: {there}.")
    return table


def unfenced(reader: Reader, region: str) -> list[Table]:
    """Tables that have not followed the latest rewind yet."""
    return resets.unfenced(reader, region)


def behind(reader: Reader, region: Region, table: Table) -> list[int]:
    """Checkpoints on the line that the table has not acknowledged, oldest first."""
    return reader.line(region.name, region.head, after=table.acknowledged)


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
    """Permit one write: of what follows the acknowledged checkpoint, or with `ids` a rewrite of live ones; None if there is nothing.

    The same token finds its own permit again. Another writer's lease refuses, naming the holder (SPEC K6).
    """
    region = tx.region()
    table = of(tx, region.name, name)
    if table.rewind_epoch > table.fenced_epoch:
        raise NotRunning(
            f"Table {name} of region {region.name} has not followed the rewind of epoch {table.rewind_epoch}.",
            hint="It takes a fence first; `crkafka reset` or the Spark host makes it.",
        )
    mine = _mine(tx, table, token)
    if mine is not None:
        ids = json.loads(mine.checkpoints_json)
        plan = reading.plan(tx, region, ids=ids)
        return Permit(table, mine, _take(tx, table, holder, token), plan)
    if ids is None:
        plan = _next(tx, region, table, upto, limit)
        kind, after, last = ADVANCE, table.acknowledged, plan.checkpoints[-1] if plan.line else table.acknowledged
    else:
        plan = reading.plan(tx, region, ids=ids)
        kind, after, last = REWRITE, 0, 0
    if not plan.line:
        return None
    lease = _take(tx, table, holder, token)
    return _permit(tx, table, lease, plan, kind=kind, after=after, upto=last, token=token)


def _next(tx: Tx, region: Region, table: Table, upto: int | None, limit: int | None) -> reading.ReadPlan:
    end = region.head if upto is None else upto
    if end <= table.acknowledged:
        return reading.plan(tx, region, ids=())
    waiting = [i for i in behind(tx, region, table) if i <= end]
    if upto is not None and upto not in waiting:
        raise reading.refusal(tx, region, upto)
    if limit is not None:
        waiting = waiting[:limit]
    return reading.plan(tx, region, after=table.acknowledged, upto=waiting[-1])


def permit_fence(tx: Tx, name: str, *, holder: str, token: str) -> Permit | None:
    """Permit the fence that a rewind asks for; None when the table owes none (SPEC X4).

    It takes the writer's lease away from whoever has it: a late finish is refused by its number, a late write by the format.
    """
    region = tx.region()
    table = of(tx, region.name, name)
    if table.rewind_epoch <= table.fenced_epoch:
        return None
    nothing = reading.ReadPlan(region=region.name, uid=region.uid, line=())
    mine = _mine(tx, table, token)
    if mine is not None:
        return Permit(
            table,
            mine,
            _take(tx, table, holder, token, data=_fence(table)),
            nothing,
            _overtaken(tx, table, mine.number),
        )
    held = tx.get(Lease, region.name, _kind(name), "")
    if held is not None and held.until > tx.now() and held.token != token and held.data_json != _fence(table):
        tx.put(replace(held, until=0.0))
    lease = _take(tx, table, holder, token, data=_fence(table))
    return _permit(tx, table, lease, nothing, kind=FENCE, after=0, upto=region.head, token=token)


def _fence(table: Table) -> str:
    return json.dumps({"fence": table.rewind_epoch})


def _mine(tx: Tx, table: Table, token: str) -> TableCommit | None:
    found = tx.select(
        TableCommit,
        ("region", "=", table.region),
        ("table", "=", table.name),
        ("token", "=", token),
        ("status", "=", OPEN),
        limit=1,
    )
    return found[0] if found else None


def _take(tx: Tx, table: Table, holder: str, token: str, data: str = "{}") -> Lease:
    length = limits.of(tx.region()).driver_lease
    return leases.take(tx, _kind(table.name), holder=holder, token=token, length=length, data=data)


def writer(reader: Reader, region: str, name: str) -> str:
    """Who writes the table at this moment; empty when nobody does."""
    return next((lease.holder for lease in leases.held(reader, region, _kind(name))), "")


def fencer(reader: Reader, table: Table) -> str:
    """Who makes the fence that the table owes; empty when nobody does."""
    held = leases.held(reader, table.region, _kind(table.name))
    return next((lease.holder for lease in held if lease.data_json == _fence(table)), "")


def _kind(name: str) -> str:
    return f"writer:{name}"


def _overtaken(tx: Reader, table: Table, number: int) -> tuple[TableCommit, ...]:
    """Permits before `number`, since the last finished commit, that did not finish."""
    rows = tx.select(
        TableCommit,
        ("region", "=", table.region),
        ("table", "=", table.name),
        ("number", "<", number),
        ("status", "!=", DONE),
    )
    done = tx.select(
        TableCommit, ("region", "=", table.region), ("table", "=", table.name), ("number", "<", number), ("status", "=", DONE),
        order=("number",), desc=True, limit=1,
    )  # fmt: skip
    since = done[0].number if done else 0
    return tuple(c for c in rows if c.number > since)


def _permit(
    tx: Tx, table: Table, lease: Lease, plan: reading.ReadPlan, *, kind: str, after: int, upto: int, token: str
) -> Permit:
    number = table.commits + 1
    unfinished = tx.select(
        TableCommit, ("region", "=", table.region), ("table", "=", table.name), ("status", "=", OPEN)
    )
    if unfinished:
        tx.put(*(replace(c, status=FAILED) for c in unfinished))
    commit = TableCommit(
        region=table.region, table=table.name, number=number, kind=kind, after=after, upto=upto,
        checkpoints_json=json.dumps(plan.checkpoints), token=token, status=OPEN, at=tx.now(),
    )  # fmt: skip
    tx.add(commit)
    tx.put(replace(table, commits=number))
    return Permit(table, commit, lease, plan, _overtaken(tx, table, number))


def renew(tx: Tx, permit: Permit) -> Lease:
    """Go on writing; refused once somebody else writes, or a rewind has asked for a fence."""
    table = of(tx, permit.table.region, permit.table.name)
    if permit.commit.kind != FENCE and table.rewind_epoch > table.fenced_epoch:
        raise LeaseLost(
            f"Region {table.region} was rewound: table {table.name} takes a fence first.", hint="Stop; nothing is lost."
        )
    return leases.renew(tx, permit.lease, limits.of(tx.region()).driver_lease)


def check_finish(reader: Reader, region: Region, permit: Permit) -> None:
    """Whether a commit of this permit would still count; asked before the format's own commit and again after it."""
    _still(reader, region, permit)


def _still(reader: Reader, region: Region, permit: Permit) -> tuple[Table, TableCommit]:
    table = of(reader, permit.table.region, permit.table.name)
    commit = reader.get(TableCommit, table.region, table.name, permit.commit.number)
    if commit is None or commit.token != permit.commit.token:
        raise LeaseLost(
            f"Commit {permit.commit.number} to table {table.name} is unknown here.", hint="Stop; write nothing more."
        )
    if commit.status == DONE:
        return table, commit
    leases.check(reader, permit.lease)
    if commit.status != OPEN:
        raise LeaseLost(
            f"Commit {commit.number} to table {table.name} was overtaken.", hint="Stop; the next one goes on."
        )
    if commit.kind != FENCE and table.rewind_epoch > table.fenced_epoch:
        raise Stale(
            f"Region {region.name} was rewound while commit {commit.number} to {table.name} was written.",
            hint="The fence removes it.",
        )
    return table, commit


def finish_commit(tx: Tx, permit: Permit, *, version: str, rows: int, folder: str = "") -> Table:
    """Count the write: the only moment at which it is acknowledged. The same permit finished again changes nothing."""
    region = tx.region()
    table, commit = _still(tx, region, permit)
    if commit.status == DONE:
        return table
    ids = json.loads(commit.checkpoints_json)
    live = set(tx.line(region.name, region.head, after=min(ids) - 1))
    gone = [i for i in ids if i not in live]
    if gone:
        raise Stale(
            f"Checkpoint {gone[0]} of region {region.name} is not live any more; commit {commit.number} to {table.name} is void."
        )
    if commit.kind == ADVANCE and table.acknowledged != commit.after:
        raise Stale(
            f"Table {table.name} was advanced to {table.acknowledged} while commit {commit.number} went on from {commit.after}."
        )
    tx.put(replace(commit, status=DONE, version=version, rows=rows, folder=folder, at=tx.now()))
    done = replace(table, version=version, acknowledged=commit.upto if commit.kind == ADVANCE else table.acknowledged)
    tx.put(done)
    events.log(
        tx, "table " + commit.kind, f"{table.name}: {rows} rows of {len(ids)} checkpoints", checkpoint=max(ids),
        data={"table": table.name, "number": commit.number, "version": version, "rows": rows},
    )  # fmt: skip
    leases.release(tx, permit.lease)
    return done


def finish_fence(tx: Tx, permit: Permit, *, version: str) -> Table:
    """The table follows the rewind; when all do, the region leaves REWINDING (SPEC X4)."""
    region = tx.region()
    table, commit = _still(tx, region, permit)
    if commit.status == DONE:
        return table
    shared = common(tx, region, table.acknowledged)
    done = replace(
        table, fenced_epoch=max(table.fenced_epoch, permit.table.rewind_epoch), acknowledged=shared, version=version
    )
    tx.put(replace(commit, status=DONE, version=version, at=tx.now()))
    tx.put(done)
    events.log(
        tx,
        "table fence",
        f"{table.name} follows to {shared}",
        checkpoint=shared,
        data={"table": table.name, "number": commit.number},
    )
    leases.release(tx, permit.lease)
    resets.after_fence(tx)
    return done


def fail_commit(tx: Tx, permit: Permit, why: str) -> None:
    """Give up a permit, so that the next writer need not wait for the lease's end. What it wrote does not count."""
    commit = tx.get(TableCommit, permit.table.region, permit.table.name, permit.commit.number)
    if commit is None or commit.status != OPEN or commit.token != permit.commit.token:
        return
    tx.put(replace(commit, status=FAILED))
    events.log(
        tx,
        "table commit failed",
        f"{permit.table.name}: {why}",
        data={"table": permit.table.name, "number": commit.number},
    )
    leases.release(tx, permit.lease)


def common(reader: Reader, region: Region, acknowledged: int) -> int:
    """The latest checkpoint that leads both to `acknowledged` and to the head, or birth."""
    if not acknowledged or acknowledged == region.head:
        return acknowledged
    on_line = set(reader.line(region.name, region.head))
    shared = [i for i in reader.line(region.name, acknowledged) if i in on_line]
    return shared[-1] if shared else 0


def landed(reader: Reader, region: Region, tps: AbstractSet[TP]) -> dict[TP, int]:
    """Where all declared tables have acknowledged everything below, of these partitions; nothing when they are at the head.

    Read in each cut while a table is behind, so it follows the line only from there; while records flow every table is on it.
    """
    declared = reader.select(Table, ("region", "=", region.name))
    behind = min((t.acknowledged for t in declared), default=region.head)
    if behind == region.head or not tps:
        return {}
    oldest = reader.line(region.name, region.head, after=behind)[0]
    first = {
        TP(m.topic, m.partition): m.from_offset
        for m in reader.select(
            MergedOffset,
            ("region", "=", region.name),
            ("checkpoint", "=", oldest),
            ("topic", "in", sorted({tp.topic for tp in tps})),
        )
    }
    if tps <= first.keys():
        return {tp: first[tp] for tp in tps}
    # What came later, or is archived: nothing of it is known to be in the tables.
    initial = {tp: row.offset for tp, row in starts.known(reader, region.name).items()}
    return {tp: offset for tp, offset in (initial | first).items() if tp in tps}


def live_in(reader: Reader, region: Region, table: Table) -> list[int]:
    """Checkpoints whose rows belong into the table now: on the line, acknowledged, not empty."""
    if not table.acknowledged:
        return []
    line = set(reader.line(region.name, common(reader, region, table.acknowledged)))
    if not line:
        return []
    rows = reader.select(Checkpoint, ("region", "=", region.name), ("rows", ">", 0), ("id", "<=", max(line)))
    return [c.id for c in rows if c.id in line]


def counted_in(reader: Reader, region: Region, table: Table) -> dict[int, int]:
    """Checkpoint → rows that the table must hold, as merged."""
    live = set(live_in(reader, region, table))
    if not live:
        return {}
    found = reader.select(Checkpoint, ("region", "=", region.name), ("rows", ">", 0), ("id", "<=", max(live)))
    return {c.id: c.rows for c in found if c.id in live}


def belonging(reader: Reader, region: Region, table: Table) -> Callable[[int], bool]:
    """Whether rows of a checkpoint belong into the table: it is live, or so old that even its row is forgotten (SPEC T2).

    What a rewind left behind is never forgotten, and no table is behind what is: retirement waits for it (SPEC T1).
    """
    live = set(live_in(reader, region, table))
    line = reader.line(region.name, region.head)
    oldest = reader.get(Checkpoint, region.name, line[0]) if line else None
    begins = min(oldest.parent if oldest else 0, table.acknowledged)
    known = {c.id for c in reader.select(Checkpoint, ("region", "=", region.name), ("id", "<=", begins))}
    return lambda checkpoint: checkpoint in live or (checkpoint <= begins and checkpoint not in known)


def shaped(reader: Reader, table: Table) -> bool:
    """Whether a commit wrote other rows than were merged: the program that does it knows the table's rows, nobody else."""
    merged = {c.id: c.rows for c in reader.select(Checkpoint, ("region", "=", table.region))}
    done = ((c.rows, json.loads(c.checkpoints_json)) for c in commits(reader, table) if c.status == DONE)
    return any(rows != sum(merged[i] for i in ids) for rows, ids in done if merged.keys() >= set(ids))


def superseded(reader: Reader, region: str) -> list[int]:
    """Checkpoints that a rewind left behind: their rows leave every table."""
    return [
        c.id for c in reader.select(Checkpoint, ("region", "=", region), ("status", "=", CheckpointStatus.SUPERSEDED))
    ]


def counting(reader: Reader, region: Region, table: Table) -> dict[int, int]:
    """Live checkpoint → number of the commit that counts for it: the last one done (Parquet reads by it)."""
    belongs = belonging(reader, region, table)
    counts: dict[int, int] = {}
    for commit in commits(reader, table):
        if commit.status == DONE and commit.kind != FENCE:
            counts.update({i: commit.number for i in json.loads(commit.checkpoints_json) if belongs(i)})
    return counts


def commits(reader: Reader, table: Table) -> list[TableCommit]:
    """All permits of a table, by number."""
    return reader.select(TableCommit, ("region", "=", table.region), ("table", "=", table.name), order=("number",))


def check_ids(reader: Reader, region: Region, table: Table, ids: Sequence[int]) -> None:
    """Refuse what is not in the table yet, where a caller needs it there."""
    missing = [i for i in ids if i not in set(live_in(reader, region, table))]
    if missing:
        raise NoSuchCheckpoint(
            f"Checkpoint {missing[0]} of region {region.name} is not in table {table.name}, which is at {table.acknowledged}.",
            hint="Advance the table first.",
        )
