"""Passes over the tables of one shape: which checkpoints one brings into all of them, and what a writer that died left undone (SPEC K6)."""

from __future__ import annotations

import json
from dataclasses import dataclass

from crkafka_core.control import Reader
from crkafka_core.model.rows import Region
from crkafka_core.plane import tables

AT_ONCE = 200
"""Checkpoints of one pass at most, when a table is behind."""


@dataclass(frozen=True)
class Step:
    """One pass."""

    ids: tuple[int, ...]
    advancing: frozenset[str] = frozenset()
    """Tables to which these checkpoints are new; the others have them, and get them again."""
    onward: bool = True
    """Not only what was left undone."""


def following(
    reader: Reader, region: Region, name: str, limit: int | None, upto: int | None, *, kept: bool = False
) -> Step | None:
    """What was left undone between the tables, else what follows in all of them; None: nothing."""
    undone = left_undone(reader, region, name, kept=kept)
    if undone is not None:
        return undone
    family = tables.siblings(reader, tables.of(reader, name))
    end = region.head if upto is None else upto
    waiting = [i for i in tables.behind(reader, region, family[0]) if i <= end][:limit]
    return Step(tuple(waiting), frozenset(t.name for t in family)) if waiting else None


def left_undone(reader: Reader, region: Region, name: str, *, kept: bool = False) -> Step | None:
    """What brings the tables to the same checkpoints, by the same pass; None: they are.

    `kept`: one has one row for each key. There no pass is done again for what all have got, and only erasing rewrites the others.
    """
    family = tables.siblings(reader, tables.of(reader, name))
    least = min(t.acknowledged for t in family)
    further = [t.acknowledged for t in family if t.acknowledged > least]
    if further:
        ids = [i for i in reader.line(region.head, after=least) if i <= min(further)][:AT_ONCE]
        return Step(tuple(ids), frozenset(t.name for t in family if t.acknowledged == least), onward=False)
    if len(family) == 1 or kept:
        return None
    last = [tables.last_write(reader, table) for table in family]
    begun = last[-1]
    undone = [commit for table in family for commit in tables.unfinished_rewrites(reader, table)]
    if begun is not None and any(commit is None or commit.token != begun.token for commit in last):
        undone.append(begun)
    live = set(reader.line(least)) if undone and least else set()
    again = sorted({i for commit in undone for i in json.loads(commit.checkpoints_json)} & live)
    return Step(tuple(again), onward=False) if again else None
