"""Questions about a region's checkpoints: which are live, kept or left behind, and what is in them (SPEC C5, C6, A3)."""

from __future__ import annotations

from collections.abc import Collection

from crkafka_core.control import Cond, Reader
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Contribution, MergedOffset, Segment

LIVE = (CheckpointStatus.MERGED, CheckpointStatus.RETIRED)
"""On the head's line: a checkpoint that was left behind is SUPERSEDED, retired or not."""


def newest(reader: Reader, limit: int | None, status: Collection[CheckpointStatus] = ()) -> list[Checkpoint]:
    """The last ones, newest first; of the statuses in `status`, by default of any."""
    where: list[Cond] = [("status", "in", status)] if status else []
    return reader.select(Checkpoint, *where, order=("id",), desc=True, limit=limit)


def of_token(reader: Reader, token: str) -> list[Checkpoint]:
    """The cuts that a caller has opened with this token: one, or none."""
    return reader.select(Checkpoint, ("token", "=", token), limit=1)


def ids_with(reader: Reader, status: CheckpointStatus) -> list[int]:
    """All ids of a status, oldest first; reads no archive."""
    ids: list[int] = reader.column(Checkpoint, "id", ("status", "=", status), order=("id",))
    return ids


def filled(
    reader: Reader,
    *,
    above: int = 0,
    upto: int | None = None,
    merged: tuple[float, float] | None = None,
    oldest: int | None = None,
    latest: int | None = None,
) -> list[int]:
    """Ids of live checkpoints with rows, oldest first; reads no archive. Of those in (above, upto] that were merged within [begin, end),
    the `oldest` or the `latest` so many."""
    assert oldest is None or latest is None
    where = _filled(above)
    if upto is not None:
        where.append(("id", "<=", upto))
    if merged is not None:
        where += [("merged_at", ">=", merged[0]), ("merged_at", "<", merged[1])]
    limit = oldest if latest is None else latest
    ids: list[int] = reader.column(Checkpoint, "id", *where, order=("id",), desc=latest is not None, limit=limit)
    return ids if latest is None else ids[::-1]


def known_since(reader: Reader) -> float:
    """When the oldest live one that is still known was merged; 0 where none was forgotten: archives may be kept of the latest alone."""
    oldest = reader.select(Checkpoint, ("status", "in", LIVE), order=("id",), limit=1)
    return oldest[0].merged_at if oldest and oldest[0].parent else 0.0


def count_filled(reader: Reader, *, above: int) -> int:
    return reader.count(Checkpoint, *_filled(above))


def _filled(above: int) -> list[Cond]:
    return [("status", "in", LIVE), ("rows", ">", 0), ("id", ">", above)]


def left_behind(reader: Reader) -> dict[int, float]:
    """Superseded checkpoints with rows, oldest first, and when each was merged."""
    where: tuple[Cond, ...] = (("status", "=", CheckpointStatus.SUPERSEDED), ("rows", ">", 0))
    ids, merged = (reader.column(Checkpoint, name, *where, order=("id",)) for name in ("id", "merged_at"))
    return dict(zip(ids, merged, strict=True))


def rows_of(reader: Reader, ids: Collection[int]) -> dict[int, int]:
    if not ids:
        return {}
    near: tuple[Cond, ...] = (("id", ">=", min(ids)), ("id", "<=", max(ids)))
    known, rows = (reader.column(Checkpoint, name, *near, order=("id",)) for name in ("id", "rows"))
    wanted = set(ids)
    return {checkpoint: count for checkpoint, count in zip(known, rows, strict=True) if checkpoint in wanted}


def within(reader: Reader, ids: Collection[int], *where: Cond) -> list[Checkpoint]:
    """Those of these checkpoints that are known, oldest first; all between the first and the last are read."""
    if not ids:
        return []
    wanted = set(ids)
    near = reader.select(Checkpoint, ("id", ">=", min(ids)), ("id", "<=", max(ids)), *where, order=("id",))
    return [row for row in near if row.id in wanted]


def offsets(reader: Reader, first: int, last: int) -> list[MergedOffset]:
    """What the kept ones from `first` to `last` have merged, of partitions that got rows."""
    return reader.select(MergedOffset, ("checkpoint", ">=", first), ("checkpoint", "<=", last), ("rows", ">", 0))


def inside(reader: Reader, checkpoint: int) -> tuple[list[MergedOffset], list[Contribution], list[Segment]]:
    own: Cond = ("checkpoint", "=", checkpoint)
    return reader.select(MergedOffset, own), reader.select(Contribution, own), reader.select(Segment, own)
