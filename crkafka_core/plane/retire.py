"""Retiring old checkpoints: what is kept, who holds them, what may be collected (SPEC §10)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from crkafka_core.control import Reader, Tx
from crkafka_core.model.rows import (
    Checkpoint,
    CheckpointStatus,
    ContributedOffset,
    Contribution,
    Expected,
    MergedOffset,
    Region,
    Segment,
    Start,
    Table,
)  # fmt: skip
from crkafka_core.plane import events, leases, limits


@dataclass(frozen=True)
class Plan:
    """What retirement would do now."""

    retire: tuple[int, ...]
    held: tuple[str, ...]
    """Who keeps checkpoints from being retired, in words."""
    held_since: float = 0.0
    """When the oldest held checkpoint was merged."""


def plan(reader: Reader, region: Region) -> Plan:
    """Checkpoints older than the last `retain` merged ones, up to the first that somebody holds (SPEC T1)."""
    limit = limits.of(region)
    merged = reader.select(
        Checkpoint, ("region", "=", region.name), ("status", "=", CheckpointStatus.MERGED), order=("id",)
    )
    candidates = merged[: max(0, len(merged) - max(1, limit.retain))]
    left_behind = [
        c.id
        for c in reader.select(Checkpoint, ("region", "=", region.name), ("status", "=", CheckpointStatus.SUPERSEDED))
    ]
    bound, held = _bound(reader, region)
    stopped = [c for c in candidates if c.id > bound]
    deletable = [] if _fences_owed(reader, region) else [c for c in left_behind if _named(reader, region, c)]
    read, readers = _read(reader, region)
    return Plan(
        tuple(sorted([c.id for c in candidates if c.id <= bound] + [c for c in deletable if c <= read])),
        tuple(held) if stopped else tuple(readers) if any(c > read for c in deletable) else (),
        stopped[0].merged_at if stopped else 0.0,
    )


def _fences_owed(reader: Reader, region: Region) -> bool:
    return any(t.rewind_epoch > t.fenced_epoch for t in reader.select(Table, ("region", "=", region.name)))


def _named(reader: Reader, region: Region, checkpoint: int) -> bool:
    """Whether a superseded checkpoint still has something to delete."""
    return reader.count(MergedOffset, ("region", "=", region.name), ("checkpoint", "=", checkpoint)) > 0


def _bound(reader: Reader, region: Region) -> tuple[int, list[str]]:
    """The last checkpoint that nobody holds, and who holds those after it."""
    bounds: list[tuple[int, str]] = []
    for table in reader.select(Table, ("region", "=", region.name)):
        bounds.append((table.acknowledged, f"table {table.name} has acknowledged {table.acknowledged}"))
    bounds += _readers(reader, region)
    return _lowest(bounds, region.head)


def _read(reader: Reader, region: Region) -> tuple[int, list[str]]:
    """As `_bound`, by readers alone: what a rewind left behind is in no table, but may still be read (fault 52)."""
    return _lowest(_readers(reader, region), region.next_checkpoint)


def _readers(reader: Reader, region: Region) -> list[tuple[int, str]]:
    found = []
    for lease in leases.held(reader, region.name, "reader"):
        after = int(json.loads(lease.data_json).get("after", 0))
        found.append((after, f"{lease.holder} reads what comes after {after}"))
    return found


def _lowest(bounds: Sequence[tuple[int, str]], free: int) -> tuple[int, list[str]]:
    if not bounds:
        return free, []
    bound = min(b for b, _ in bounds)
    return bound, [why for b, why in bounds if b == bound]


def retire(tx: Tx, checkpoints: Sequence[int]) -> list[str]:
    """Retire these checkpoints, if they may be still; paths of the segments that nobody names any more (SPEC T1-T3).

    Idempotent: what is retired is passed over. Files are deleted by the caller afterwards; one that it does not reach is an orphan.
    """
    region = tx.region()
    allowed = set(plan(tx, region).retire)
    paths: list[str] = []
    for checkpoint in sorted(allowed & set(checkpoints)):
        row = tx.get(Checkpoint, region.name, checkpoint)
        assert row is not None
        where = ("region", "=", region.name), ("checkpoint", "=", checkpoint)
        offsets = tx.select(MergedOffset, *where)  # type: ignore[arg-type]
        archive: dict[str, dict[str, list[int]]] = {}
        for o in offsets:
            if o.rows or o.to_offset != o.from_offset:
                archive.setdefault(o.topic, {})[str(o.partition)] = [o.from_offset, o.to_offset, o.rows]
        paths += [s.path for s in tx.select(Segment, *where)]  # type: ignore[arg-type]
        for part in (Expected, Contribution, ContributedOffset, MergedOffset, Segment):
            tx.delete(part, *where)  # type: ignore[arg-type]
        status = CheckpointStatus.RETIRED if row.status is CheckpointStatus.MERGED else row.status
        tx.put(replace(row, status=status, archive_json=json.dumps(archive, ensure_ascii=False, separators=(",", ":"))))
    tx.delete(Start, ("region", "=", region.name), ("epoch", "<", region.epoch), ("base", "<", region.head))
    if paths or allowed:
        events.log(
            tx,
            "retired",
            f"{len(allowed & set(checkpoints))} checkpoints, {len(paths)} segments",
            checkpoint=max(allowed, default=0),
        )
    _forget_history(tx, region)
    return paths


def _forget_history(tx: Tx, region: Region) -> None:
    """Archived rows beyond `history` go (SPEC T2)."""
    keep = limits.of(region).history
    if keep:
        old = tx.select(
            Checkpoint, ("region", "=", region.name), ("status", "=", CheckpointStatus.RETIRED), order=("id",)
        )[:-keep]
        if old:
            tx.delete(
                Checkpoint,
                ("region", "=", region.name),
                ("status", "=", CheckpointStatus.RETIRED),
                ("id", "<=", old[-1].id),
            )


def named(reader: Reader, region: str) -> set[str]:
    """Paths of all segments that a contribution names: whatever lies beside them in an older epoch is an orphan (SPEC T3)."""
    return {s.path for s in reader.select(Segment, ("region", "=", region))}
