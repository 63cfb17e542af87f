"""What was merged, and what tables have acknowledged, since an earlier look: what histograms count (SPEC X8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crkafka_core.control import Reader
from crkafka_core.model.rows import Checkpoint, Region, Table
from crkafka_core.plane import tables


@dataclass(frozen=True)
class Landed:
    """Of one region, between two looks."""

    uid: str
    top: int
    """The latest checkpoint that was ever merged."""
    merged: tuple[Checkpoint, ...]
    commits: Mapping[str, int]
    """Table → the number of its latest commit that brought it forward."""
    waited: Mapping[str, tuple[float, ...]]
    """Table → for each of its new commits, the seconds since the merge of the newest checkpoint in it."""


def landed(reader: Reader, region: Region, last: Landed | None) -> Landed:
    """What is new since the last look; nothing at the first one, or where another region of the name has followed."""
    latest = reader.column(Checkpoint, "id", ("merged_at", ">", 0.0), order=("id",), desc=True, limit=1)
    top = latest[0] if latest else 0
    known = last if last is not None and last.uid == region.uid else None
    since = known.top if known else top
    commits, waited = {}, {}
    for table in reader.select(Table):
        after = known.commits.get(table.name, 0) if known else table.commits
        new = tables.advances(reader, ("table", "=", table.name), ("number", ">", after))
        newest = [(commit.at, reader.get(Checkpoint, commit.upto)) for commit in new]
        commits[table.name] = new[-1].number if new else after
        waited[table.name] = tuple(max(0.0, at - row.merged_at) for at, row in newest if row is not None)
    merged = reader.select(Checkpoint, ("id", ">", since), ("merged_at", ">", 0.0), order=("id",))
    return Landed(region.uid, top, tuple(merged), commits, waited)
