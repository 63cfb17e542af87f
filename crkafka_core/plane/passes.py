"""Passes over the tables of one shape: which checkpoints one brings into all of them, and what a writer that died left undone (SPEC K6)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from crkafka_core.control import Reader
from crkafka_core.model.rows import Region, Table, TableCommit
from crkafka_core.plane import tables

AT_ONCE = 200
"""Checkpoints of one pass at most, when a table is behind."""

ERASING = "erase-"
"""How the token of commits begins that only take erased records out, of one table after the other."""


@dataclass(frozen=True)
class Step:
    """One pass."""

    ids: tuple[int, ...]
    advancing: frozenset[str] = frozenset()
    """Tables to which these checkpoints are new; the others have them, and get them again."""
    onward: bool = True
    """Not only what was left undone."""
    erasing: bool = False
    """Only erased records are to leave: what is archived, and perhaps gone from Kafka, need not come again."""


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
    several = len(family) > 1 and not kept
    if several and (ids := _again(reader, family, least, erasing=True)):
        return Step(ids, onward=False, erasing=True)
    further = [t.acknowledged for t in family if t.acknowledged > least]
    if further:
        ids = tuple(i for i in reader.line(region.head, after=least) if i <= min(further))[:AT_ONCE]
        return Step(ids, frozenset(t.name for t in family if t.acknowledged == least), onward=False)
    if several and (ids := _again(reader, family, least, erasing=False)):
        return Step(ids, onward=False)
    return None


def _again(reader: Reader, family: Sequence[Table], least: int, *, erasing: bool) -> tuple[int, ...]:
    """Checkpoints that a commit, of erasing or of a pass, may have changed in some of the tables and not in all."""
    last = [_last(reader, table, erasing=erasing) for table in family]
    begun = last[-1]
    undone = [
        commit
        for table in family
        for commit in tables.unfinished_rewrites(reader, table)
        if commit.token.startswith(ERASING) == erasing
    ]
    if begun is not None and any(commit is None or commit.token != begun.token for commit in last):
        undone.append(begun)
    live = set(reader.line(least)) if undone and least else set()
    return tuple(sorted({i for commit in undone for i in json.loads(commit.checkpoints_json)} & live))


def _last(reader: Reader, table: Table, *, erasing: bool) -> TableCommit | None:
    """The latest write, if it erased; or the latest of those that did not."""
    commit = tables.last_write(reader, table)
    if erasing:
        return commit if commit is not None and commit.token.startswith(ERASING) else None
    while commit is not None and commit.token.startswith(ERASING):
        commit = tables.last_write(reader, table, ("number", "<", commit.number))
    return commit
