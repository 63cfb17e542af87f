"""What a declared table holds, or has to hold, by what SQL knows (SPEC K6, X4, T1)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from crkafka_core.control import Cond, Reader
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Checkpoint, MergedOffset, Region, Segment, Table
from crkafka_core.plane import checkpoints, numbers, reading, starts
from crkafka_core.plane.tables import DONE, FENCE, commits


def common(reader: Reader, region: Region, acknowledged: int) -> int:
    """The latest checkpoint that leads both to `acknowledged` and to the head, or birth."""
    if not acknowledged or acknowledged == region.head:
        return acknowledged
    on_line = set(reader.line(region.head))
    shared = [i for i in reader.line(acknowledged) if i in on_line]
    return shared[-1] if shared else 0


def landed(reader: Reader, region: Region, tps: AbstractSet[TP]) -> dict[TP, int] | None:
    """Where all declared tables have acknowledged everything below, of these partitions; nothing when they are at the head, None without
    tables.

    Read in each cut while a table is behind, so it follows the line only from there. A table that owes a fence may hold what is
    not on the line, even beyond the head: a commit that SQL heard of after the rewind.
    """
    declared = reader.select(Table)
    if not declared:
        return None
    behind = min(common(reader, region, t.acknowledged) if t.owes_fence else t.acknowledged for t in declared)
    if behind == region.head or not tps:
        return {}
    oldest = reader.line(region.head, after=behind)[0]
    first = {
        TP(m.topic, m.partition): m.from_offset
        for m in reader.select(
            MergedOffset,
            ("checkpoint", "=", oldest),
            ("topic", "in", sorted({tp.topic for tp in tps})),
        )
    }
    if tps <= first.keys():
        return {tp: first[tp] for tp in tps}
    # What came later, or is archived: nothing of it is known to be in the tables.
    initial = {tp: row.offset for tp, row in starts.known(reader).items()}
    return {tp: offset for tp, offset in (initial | first).items() if tp in tps}


@dataclass(frozen=True)
class Piece:
    """Rows of one checkpoint that came into a table together: those of a segment, or of an archived checkpoint all of them."""

    checkpoint: int
    rows: int
    ranges: tuple[reading.KafkaRange, ...]
    segment: Segment | None = None
    erased: bool = False
    """Of records that were erased for good: there are none, where some may still be in a file."""


def pieces(reader: Reader, region: Region, ids: Collection[int]) -> list[Piece]:
    """Of these checkpoints, live or superseded, kept or archived; those without rows have none."""
    if not ids:
        return []
    wanted = set(ids)
    near: list[Cond] = [("checkpoint", ">=", min(ids)), ("checkpoint", "<=", max(ids))]
    together = [
        Piece(s.checkpoint, s.rows, tuple(_spans(s)), s)
        for s in reader.select(Segment, *near)
        if s.checkpoint in wanted and s.rows
    ]
    archived = wanted - {piece.checkpoint for piece in together}
    for row in checkpoints.within(reader, archived, ("rows", ">", 0)):
        if row.archive_json not in ("", "{}"):
            together.append(Piece(row.id, row.rows, tuple(reading.archived(region, row))))
    erased = {row.id: row for row in checkpoints.within(reader, ids, ("rows", ">", 0), ("erased_json", "!=", "{}"))}
    return [part for piece in together for part in _parts(piece, erased.get(piece.checkpoint))]


def _parts(piece: Piece, checkpoint: Checkpoint | None) -> list[Piece]:
    """What is left of a piece, and what of it was erased; `checkpoint` if it has such records."""
    if checkpoint is None:
        return [piece]
    left: list[reading.KafkaRange] = []
    gone: list[reading.KafkaRange] = []
    for r in piece.ranges:
        offsets = [o for o in checkpoint.erased.get(r.topic, {}).get(r.partition, ()) if r.start <= o < r.stop]
        gone += (replace(r, start=o, stop=o + 1, rows=0) for o in offsets)
        bounds, rows = [r.start, *(b for o in offsets for b in (o, o + 1)), r.stop], r.rows - len(offsets)
        for start, stop in zip(bounds[::2], bounds[1::2], strict=True):
            if start < stop:
                left.append(replace(r, start=start, stop=stop, rows=rows))
                rows = 0
    if not gone:
        return [piece]
    rest = replace(piece, rows=piece.rows - len(gone), ranges=tuple(left))
    return [rest, replace(piece, rows=0, ranges=tuple(gone), erased=True)]


def _spans(segment: Segment) -> list[reading.KafkaRange]:
    return [
        reading.KafkaRange(segment.checkpoint, topic, partition, start, stop, rows)
        for topic, partition, start, stop, rows in json.loads(segment.spans_json)
        if rows
    ]


def leaving(reader: Reader, region: Region, table: Table, shown: int = 0) -> set[int]:
    """Checkpoints that leave the table with a fence: acknowledged but superseded, and what it shows beyond what is acknowledged."""
    shared = common(reader, region, table.acknowledged)
    lines = (reader.line(end) for end in {table.acknowledged, shown} if end)
    return set().union(*lines) - set(reader.line(shared) if shared else ())


def live_in(reader: Reader, region: Region, table: Table) -> list[int]:
    """Checkpoints whose rows belong in the table now: on the line, acknowledged, not empty."""
    return [c.id for c in _live_in(reader, region, table)]


def _live_in(reader: Reader, region: Region, table: Table) -> list[Checkpoint]:
    shared = common(reader, region, table.acknowledged)
    return checkpoints.within(reader, reader.line(shared) if shared else (), ("rows", ">", 0))


def of_topics(reader: Reader, region: Region, ids: Collection[int], topics: Collection[str]) -> dict[int, int]:
    """Checkpoint → rows that were merged of these topics."""
    merged = rows_by_topic(reader, region, ids)
    return {number: sum(rows for topic, rows in of.items() if topic in topics) for number, of in merged.items()}


def rows_by_topic(reader: Reader, region: Region, ids: Collection[int]) -> dict[int, Counter[str]]:
    """Checkpoint → topic → rows that were merged, and not erased."""
    found: dict[int, Counter[str]] = {number: Counter() for number in ids}
    for piece in pieces(reader, region, ids):
        for r in piece.ranges:
            found[piece.checkpoint][r.topic] += r.rows
    return found


def belonging(reader: Reader, region: Region, table: Table) -> Callable[[int], bool]:
    """Whether rows of a checkpoint belong in the table: it is live, or so old that even its row is forgotten (SPEC T2).

    What a rewind left behind belongs in no table, also once its row is forgotten: its number is dead (SPEC C8). No table is behind
    what is forgotten: retirement waits for it (SPEC T1).
    """
    live, dead = set(live_in(reader, region, table)), numbers.dead(reader)
    begins = min(before_line(reader, region), table.acknowledged)
    known = {c.id for c in reader.select(Checkpoint, ("id", "<=", begins))}
    return lambda checkpoint: checkpoint in live or (checkpoint not in known and dead.belongs(checkpoint, begins))


def forgotten(reader: Reader, region: Region) -> bool:
    """Whether SQL does not know the beginning of the line any more (SPEC T2)."""
    return before_line(reader, region) > 0


def before_line(reader: Reader, region: Region) -> int:
    """What led to the oldest checkpoint of the line that SQL still knows; 0: birth."""
    line = reader.line(region.head)
    oldest = reader.get(Checkpoint, line[0]) if line else None
    return oldest.parent if oldest else 0


def counting(reader: Reader, region: Region, table: Table) -> dict[int, int]:
    """Live checkpoint → number of the commit that counts for it: the last one done."""
    belongs = belonging(reader, region, table)
    counts: dict[int, int] = {}
    for commit in commits(reader, table):
        if commit.status == DONE and commit.kind != FENCE:
            counts.update({i: commit.number for i in json.loads(commit.checkpoints_json) if belongs(i)})
    return counts


def given(reader: Reader, region: Region, family: Collection[Table]) -> dict[int, int]:
    """Live checkpoint → rows that one pass gave all of these tables, as they were counted against what was merged of the topics of then."""
    passes: list[dict[int, tuple[str, int]]] = []
    for table in family:
        commits_, counted = {c.number: c for c in commits(reader, table)}, dict[int, Mapping[str, int]]()
        of: dict[int, tuple[str, int]] = {}
        for i, number in counting(reader, region, table).items():
            commit = commits_[number]
            if commit.counts_json or not commit.rows:
                counts = counted.setdefault(number, json.loads(commit.counts_json or "{}"))
                of[i] = commit.token, counts.get(str(i), 0)
        passes.append(of)
    both = set.intersection(*map(set, passes)) if passes else set[int]()
    return {i: sum(of[i][1] for of in passes) for i in both if len({of[i][0] for of in passes}) == 1}
