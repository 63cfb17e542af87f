"""Deletes the rows of a region from which nothing is decided any more (SPEC T2)."""

from __future__ import annotations

from crkafka_core.control import Cond, Tx
from crkafka_core.model import limits
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Lease, MergedOffset, Region, Reset, Table, TableCommit
from crkafka_core.plane import clock, epochs, events, permits, retire

EVENTS = 10_000
"""Events that are kept for people."""
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


def clean_up(tx: Tx) -> None:
    """Delete it; cheap, and idempotent."""
    region = tx.region()
    events.drop_old(tx, EVENTS)
    # The epoch of the last start is looked at for as long as the region runs (SPEC X6).
    tx.delete(Reset, ("epoch", "<=", region.epoch - RESETS), ("epoch", "!=", region.started_epoch))
    tx.delete(Checkpoint, ("status", "=", CheckpointStatus.ABORTED), ("id", "<", region.filling - ABORTED))
    tx.delete(Lease, ("slot", "!=", ""), ("until", "<", tx.now() - READER_OVER))
    clock.leave_the_future(tx)  # leases of readers, for one, keep checkpoints from being retired
    retire.forget_history(tx, region)  # also while nothing may be retired, since a table waits for what is forgotten
    _drop_superseded(tx, region)
    _drop_commits(tx)


def _drop_superseded(tx: Tx, region: Region) -> None:
    """Drop superseded checkpoints that are older than the archive, have no segments left, and are in no table."""
    keep = limits.of(region).history
    if not keep or epochs.unfenced(tx):
        return
    left: list[Cond] = [("status", "=", CheckpointStatus.SUPERSEDED), ("id", "<", region.filling - keep)]
    old = tx.column(Checkpoint, "id", *left, order=("id",), limit=AT_ONCE)
    lies = set(tx.column(MergedOffset, "checkpoint", ("checkpoint", "in", old))) if old else set()
    if gone := [checkpoint for checkpoint in old if checkpoint not in lies]:
        tx.delete(Checkpoint, ("id", "in", gone))


def _drop_commits(tx: Tx) -> None:
    live = tx.column(Checkpoint, "id", ("status", "=", CheckpointStatus.MERGED), order=("id",), limit=1)
    for table in tx.select(Table):
        last = table.commits - COMMITS
        if table.shape:  # it may keep one row for each key
            last = min(last, _still_needed(tx, table, (live or [0])[0]) - 1)
        # The table itself shows the last one that wrote to it, or one soon after that SQL did not hear of, however many have
        # failed since: if it were gone, it would look as if SQL had never issued it.
        shown = permits.last_number(tx, table)
        old: list[Cond] = [("table", "=", table.name), ("number", "<=", last), ("status", "!=", "OPEN")]
        tx.delete(TableCommit, *old, ("number", "<", shown))
        tx.delete(TableCommit, *old, ("number", ">", shown + COMMITS))


def _still_needed(tx: Tx, table: Table, target: int) -> int:
    """Number of the commit whose version a table with one row for each key goes back to, with the longest rewind there may be.

    0: there is none, and all commits are needed to show that.
    """
    before: list[Cond] = [
        ("kind", "=", "advance"),
        ("status", "=", "DONE"),
        ("version", "!=", ""),
        ("upto", "<=", target),
    ]
    latest = tx.select(TableCommit, ("table", "=", table.name), *before, order=("number",), desc=True, limit=AT_ONCE)
    left: list[Cond] = [("id", "in", [c.upto for c in latest]), ("status", "!=", CheckpointStatus.SUPERSEDED)]
    on_line = set(tx.column(Checkpoint, "id", *left)) if latest else set()
    return next((c.number for c in latest if c.upto in on_line), 0)
