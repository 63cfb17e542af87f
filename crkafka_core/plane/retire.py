"""Retiring old checkpoints: what is kept, who holds them, what may be collected; and rows that are of no use any more (SPEC T1-T3)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from crkafka_core.control import Cond, Reader, Tx
from crkafka_core.model import limits
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import (
    Checkpoint,
    CheckpointStatus,
    Lease,
    MergedOffset,
    Region,
    Reset,
    Segment,
    Start,
    StartReason,
    Table,
    TableCommit,
)
from crkafka_core.model.segment import SegmentName
from crkafka_core.plane import advance, checkpoints, epochs, erasure, events, leases, permits, tables

EVENTS = 10_000
RESETS = 10_000
"""Epochs whose cause is kept; budgets look at those since the last start or within minutes, whichever is less."""
ABORTED = 1_000
"""Checkpoint numbers within which an aborted cut keeps its row, and so its note."""
COMMITS = 1_000
"""Commits that are kept of a table, and as many after the last one that wrote to it."""
AT_ONCE = 500
"""Superseded checkpoints that one collection deletes; the next one goes on."""
READER_OVER = 86_400.0
"""Seconds after its end in which a reader, or a stream, may still come back for its lease."""


@dataclass(frozen=True)
class Plan:
    """What retirement would do now."""

    retire: tuple[int, ...]
    held: tuple[str, ...]
    """The holders of checkpoints that would be retired, in words."""
    held_since: float = 0.0
    """When the oldest held checkpoint was merged."""


def plan(reader: Reader, region: Region) -> Plan:
    """Checkpoints older than the last `retain` merged ones, up to the first that is held (SPEC T1). It is part of each look at the region,
    so it reads ids alone, and nothing that grows with the history."""
    limit = limits.of(region)
    merged = checkpoints.ids_with(reader, CheckpointStatus.MERGED)
    candidates = merged[: max(0, len(merged) - max(1, limit.retain))]
    bound, held = _bound(reader, region)
    stopped = [c for c in candidates if c > bound]
    deletable: list[int] = []  # superseded, and something of it is left
    superseded = checkpoints.ids_with(reader, CheckpointStatus.SUPERSEDED)
    if superseded and not epochs.unfenced(reader):
        kept = set(reader.column(MergedOffset, "checkpoint", ("checkpoint", "<=", superseded[-1])))
        deletable = [c for c in superseded if c in kept]
    # What a rewind left behind is in no table, but may still be read (fault 52).
    read, readers = _lowest(_readers(reader, region), region.filling)
    first = reader.get(Checkpoint, stopped[0]) if stopped else None
    return Plan(
        tuple(sorted([c for c in candidates if c <= bound] + [c for c in deletable if c <= read])),
        tuple(held) if stopped else tuple(readers) if any(c > read for c in deletable) else (),
        first.merged_at if first else 0.0,
    )


def _bound(reader: Reader, region: Region) -> tuple[int, list[str]]:
    """The last checkpoint that is not held, and the holders of those after it."""
    declared = reader.select(Table)
    bounds = [(t.acknowledged, f"table {t.name} has acknowledged {t.acknowledged}") for t in declared]
    return _lowest([*bounds, *_readers(reader, region)], region.head)


def _readers(reader: Reader, region: Region) -> list[tuple[int, str]]:
    held = ((lease, int(json.loads(lease.data_json).get("after", 0))) for lease in leases.held(reader, "reader"))
    return [(after, f"{lease.holder} reads what comes after {after}") for lease, after in held]


def _lowest(bounds: Sequence[tuple[int, str]], free: int) -> tuple[int, list[str]]:
    if not bounds:
        return free, []
    bound = min(b for b, _ in bounds)
    return bound, [why for b, why in bounds if b == bound]


def retire(tx: Tx, checkpoints: Sequence[int]) -> list[str]:
    """Retire these checkpoints, if they may be still; returns the paths of the region's own segments that are no longer named (SPEC T1-T3).
    Idempotent: what is retired is passed over. Files are deleted by the caller afterwards; one that it does not reach is an orphan."""
    region = tx.region()
    # Records that were erased before a rewind are noted by segments: one merged since the last look at them waits (SPEC K6).
    if not (again := erasure.come_again(tx)):
        erasure.pass_over(tx)
    allowed = set(plan(tx, region).retire) - again.keys()
    paths: list[str] = []
    for checkpoint in sorted(allowed & set(checkpoints)):
        row = tx.get(Checkpoint, checkpoint)
        assert row is not None
        where: Cond = ("checkpoint", "=", checkpoint)
        archive: dict[str, dict[str, list[int]]] = {}
        topics: dict[str, str] = {}
        for o in tx.select(MergedOffset, where):
            if o.rows or o.to_offset != o.from_offset:
                epoch = [o.leader_epoch] if o.leader_epoch >= 0 else []
                archive.setdefault(o.topic, {})[str(o.partition)] = [o.from_offset, o.to_offset, o.rows, *epoch]
                topics[o.topic] = o.topic_id
        paths += [s.path for s in tx.select(Segment, where)]
        epochs.drop_parts(tx, checkpoint)
        tx.delete(MergedOffset, where)
        status = CheckpointStatus.RETIRED if row.status is CheckpointStatus.MERGED else row.status
        tx.put(replace(row, status=status, archive_json=_compact(archive), archive_topics_json=_compact(topics)))
    # A gap is the record of what is not there: a chain of checkpoints has a hole by it (SPEC S4, C3).
    older: list[Cond] = [("epoch", "<", region.epoch), ("base", "<", region.head), ("reason", "!=", StartReason.GAP)]
    tx.delete(Start, *older)
    if allowed:
        text = f"{plural(len(allowed & set(checkpoints)), 'checkpoint')}, {plural(len(paths), 'segment')}"
        events.log(tx, "retired", text, checkpoint=max(allowed))
    forget_history(tx, region)
    return [path for path in paths if (name := SegmentName.parse(path)) is not None and name.uid == region.uid]


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def forget_history(tx: Tx, region: Region) -> None:
    """Archived rows beyond `history` go (SPEC T2), but for what a table has begun to get and lacks: it would end before a hole."""
    keep = limits.of(region).history
    if keep:
        retired: list[Cond] = [("status", "=", CheckpointStatus.RETIRED)]
        kept = tx.column(Checkpoint, "id", *retired, order=("id",), desc=True, limit=keep + 1)
        if len(kept) > keep:
            had = (t.acknowledged for t in tx.select(Table) if tables.last_write(tx, t) is not None)
            tx.delete(Checkpoint, *retired, ("id", "<=", min([kept[-1], *had])))


def named(reader: Reader) -> set[str]:
    """Paths of all segments that a contribution names: whatever lies beside them in an older epoch is an orphan (SPEC T3)."""
    return {s.path for s in reader.select(Segment)}


def clean_up(tx: Tx) -> None:
    """Delete the rows from which nothing is decided any more; cheap, and idempotent (SPEC T2)."""
    region = tx.region()
    events.drop_old(tx, EVENTS)
    # The epoch of the last start is looked at for as long as the region runs (SPEC X6).
    tx.delete(Reset, ("epoch", "<=", region.epoch - RESETS), ("epoch", "!=", region.started_epoch))
    tx.delete(Checkpoint, ("status", "=", CheckpointStatus.ABORTED), ("id", "<", region.filling - ABORTED))
    tx.delete(Lease, ("slot", "!=", ""), ("until", "<", tx.now() - READER_OVER))
    advance.leave_the_future(tx)  # leases of readers, for one, keep checkpoints from being retired
    forget_history(tx, region)  # also while nothing may be retired, since a table waits for what is forgotten
    keep = limits.of(region).history
    if keep and not epochs.unfenced(tx):  # superseded, older than the archive, without segments, and in no table
        left: list[Cond] = [("status", "=", CheckpointStatus.SUPERSEDED), ("id", "<", region.filling - keep)]
        old = tx.column(Checkpoint, "id", *left, order=("id",), limit=AT_ONCE)
        lies = set(tx.column(MergedOffset, "checkpoint", ("checkpoint", "in", old))) if old else set()
        if gone := [checkpoint for checkpoint in old if checkpoint not in lies]:
            tx.delete(Checkpoint, ("id", "in", gone))
    live = tx.column(Checkpoint, "id", ("status", "=", CheckpointStatus.MERGED), order=("id",), limit=1)
    for table in tx.select(Table):
        last = table.commits - COMMITS
        if table.shape:  # it may keep one row for each key
            last = min(last, _still_needed(tx, table, (live or [0])[0]) - 1)
        # The table itself shows the last one that wrote to it, or one soon after that SQL did not hear of, however many have
        # failed since: if it were gone, it would look as if SQL had never issued it.
        shown = permits.last_number(tx, table)
        done: list[Cond] = [("table", "=", table.name), ("number", "<=", last), ("status", "!=", "OPEN")]
        tx.delete(TableCommit, *done, ("number", "<", shown))
        tx.delete(TableCommit, *done, ("number", ">", shown + COMMITS))


def _still_needed(tx: Tx, table: Table, target: int) -> int:
    """Number of the commit whose version a table with one row for each key goes back to, with the longest rewind there may be. 0: there is
    none, and all commits are needed to show that."""
    done: list[Cond] = [("table", "=", table.name), ("status", "=", tables.DONE), ("kind", "=", tables.ADVANCE)]
    before: list[Cond] = [("version", "!=", ""), ("upto", "<=", target)]
    latest = tx.select(TableCommit, *done, *before, order=("number",), desc=True, limit=AT_ONCE)
    left: list[Cond] = [("id", "in", [c.upto for c in latest]), ("status", "!=", CheckpointStatus.SUPERSEDED)]
    on_line = set(tx.column(Checkpoint, "id", *left)) if latest else set()
    return next((c.number for c in latest if c.upto in on_line), 0)
