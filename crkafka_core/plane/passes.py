"""Passes over the tables of one shape: what the next one brings, what a dead writer left undone, what is passed without one (SPEC K6)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from crkafka_core.config.shapes import topic_of
from crkafka_core.control import Reader, Tx
from crkafka_core.model.rows import Lease, Region, Table, TableCommit
from crkafka_core.plane import contents, restored, tables

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
    """What brings the tables to the same checkpoints, by the same pass; None: they are. `kept`: one has one row for each key. There no pass
    is done again for what all have got, and only erasing rewrites the others."""
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
    family = [table for table in family if table.commits]  # one without has joined since
    last = [_last(reader, table, erasing=erasing) for table in family]
    begun = last[-1] if last else None
    unfinished = (commit for table in family for commit in tables.unfinished_rewrites(reader, table))
    undone = [commit for commit in unfinished if commit.token.startswith(ERASING) == erasing]
    if begun is not None and any(commit is None or commit.token != begun.token for commit in last):
        undone.append(begun)
    live = set(reader.line(least)) if undone and least else set()
    return tuple(sorted({i for commit in undone for i in commit.checkpoints} & live))


def _last(reader: Reader, table: Table, *, erasing: bool) -> TableCommit | None:
    """The latest write, if it erased; or the latest of those that did not."""
    commit = tables.last_write(reader, table)
    if erasing:
        return commit if commit is not None and commit.token.startswith(ERASING) else None
    while commit is not None and commit.token.startswith(ERASING):
        commit = tables.last_write(reader, table, ("number", "<", commit.number))
    return commit


_WINDOW = 500
"""Latest checkpoints among which tables are passed over; a table that is further behind goes on by commits."""


def passable(reader: Reader) -> list[tuple[list[Table], list[int]]]:
    """Tables of a template's topic, those of one shape together, with the next checkpoints that have no records of the topic."""
    region = reader.region()
    behind = [t for t in reader.select(Table) if topic_of(t.shape) and t.acknowledged < region.head]
    near = [t for t in behind if t.acknowledged >= region.head - _WINDOW]
    if not near:
        return []
    line = reader.line(region.head, after=min(t.acknowledged for t in near))
    topics, families = contents.rows_by_topic(reader, region, line), []
    for family in _idle(reader, near):
        topic, ahead = topic_of(family[0].shape), (i for i in line if i > family[0].acknowledged)
        if ids := list(takewhile(lambda i, topic=topic: not topics[i][topic], ahead)):  # type: ignore[misc]
            families.append((family, ids))
    return families


def _idle(reader: Reader, near: Sequence[Table]) -> Iterator[list[Table]]:
    """Families of which all tables are at one checkpoint, and none is written now, needs a fence, or has to be looked at first."""
    written = {lease.kind for lease in reader.select(Lease, ("until", ">", reader.now()))}
    unsure = tables.unsure(reader, near)
    for family in tables.families(near):
        together = len({t.acknowledged for t in family}) == 1
        busy = (t.owes_fence or tables.kind_of_lease(t.name) in written or t.name in unsure for t in family)
        if together and not any(busy):
            yield family


def pass_over(tx: Tx) -> int:
    """Acknowledge these checkpoints for these tables at once, without a write; the number of the tables (SPEC K6)."""
    restored.refuse(tx.region())
    passed = [(table, ids) for family, ids in passable(tx) for table in family]
    if not passed:
        return 0
    tx.add(
        *(
            TableCommit(
                *(table.region, table.name, table.commits + 1, tables.ADVANCE, table.acknowledged, ids[-1]),
                json.dumps(ids),
                token=f"passed-{ids[0]}-{ids[-1]}",
                status=tables.DONE,
                at=tx.now(),
                counts_json=json.dumps(dict.fromkeys(ids, 0)),
            )
            for table, ids in passed
        )
    )
    tx.put(*(replace(table, commits=table.commits + 1, acknowledged=ids[-1]) for table, ids in passed))
    return len(passed)
