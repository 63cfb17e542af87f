"""Checkpoints without records of a table's topic: they are acknowledged for all such tables at once, without a commit (SPEC K6)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from crkafka_core.config.typed import topic_of
from crkafka_core.control import Reader, Tx
from crkafka_core.model.rows import Lease, Table, TableCommit
from crkafka_core.plane import contents, restored, tables

_WINDOW = 500
"""Latest checkpoints among which tables are passed over; a table that is further behind goes on by commits."""


def waiting(reader: Reader) -> list[tuple[list[Table], list[int]]]:
    """Tables of a template's topic, those of one shape together, with the next checkpoints that have nothing of it."""
    region = reader.region()
    behind = [t for t in reader.select(Table) if topic_of(t.shape) and t.acknowledged < region.head]
    near = [t for t in behind if t.acknowledged >= region.head - _WINDOW]
    if not near:
        return []
    line = reader.line(region.head, after=min(t.acknowledged for t in near))
    topics = contents.rows_by_topic(reader, region, line)
    return [(family, ids) for family in _idle(reader, near) if (ids := list(_without(family[0], line, topics)))]


def _idle(reader: Reader, near: Sequence[Table]) -> Iterator[list[Table]]:
    """Families of which all tables are at one checkpoint, and none is written now or owes a fence."""
    leases = reader.select(Lease, ("until", ">", reader.now()))
    written = {lease.kind for lease in leases}
    for family in tables.families(near):
        together = len({t.acknowledged for t in family}) == 1
        if together and not any(t.owes_fence or tables.kind_of_lease(t.name) in written for t in family):
            yield family


def _without(table: Table, line: Sequence[int], topics: Mapping[int, Counter[str]]) -> Iterator[int]:
    for checkpoint in line:
        if checkpoint > table.acknowledged:
            if topics[checkpoint][topic_of(table.shape)]:
                return
            yield checkpoint


def acknowledge(tx: Tx) -> int:
    """Acknowledge them; how many tables have come further."""
    restored.refuse(tx.region())
    passed = [(table, ids) for family, ids in waiting(tx) for table in family]
    if not passed:
        return 0
    unfinished = tx.select(TableCommit, ("status", "=", tables.OPEN), ("table", "in", [t.name for t, _ in passed]))
    tx.put(*(replace(c, status=tables.FAILED, at=tx.now()) for c in unfinished))
    tx.add(
        *(
            TableCommit(
                region=table.region,
                table=table.name,
                number=table.commits + 1,
                kind=tables.ADVANCE,
                after=table.acknowledged,
                upto=ids[-1],
                checkpoints_json=json.dumps(ids),
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
