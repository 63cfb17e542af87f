"""What a declared table holds, or has to hold, by what SQL knows (SPEC K6, X4, T1)."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from crkafka_core.control import Cond, Reader
from crkafka_core.model.errors import Refused
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, MergedOffset, Region, Segment, Table, TableCommit
from crkafka_core.plane import checkpoints, numbers, reading, starts
from crkafka_core.plane.tables import DONE, FENCE, advances, commits


def common(reader: Reader, region: Region, acknowledged: int) -> int:
    """The latest checkpoint that leads both to `acknowledged` and to the head, or birth."""
    if not acknowledged or acknowledged == region.head:
        return acknowledged
    on_line = set(reader.line(region.head))
    shared = [i for i in reader.line(acknowledged) if i in on_line]
    return shared[-1] if shared else 0


def landed(reader: Reader, region: Region, tps: AbstractSet[TP]) -> dict[TP, int] | None:
    """Where all declared tables have acknowledged everything below, of these partitions; nothing when they are at the head, None without
    tables. A table that needs a fence may hold what is not on the line, even beyond the head: a commit that SQL acknowledged after the
    rewind."""
    declared = reader.select(Table)
    if not declared:
        return None
    behind = min(common(reader, region, t.acknowledged) if t.owes_fence else t.acknowledged for t in declared)
    if behind == region.head or not tps:
        return {}
    oldest = reader.line(region.head, after=behind)[0]
    topics = sorted({tp.topic for tp in tps})
    merged = reader.select(MergedOffset, ("checkpoint", "=", oldest), ("topic", "in", topics))
    first = {TP(m.topic, m.partition): m.from_offset for m in merged}
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
    together = []
    for s in reader.select(Segment, *near):
        if s.checkpoint in wanted and s.rows:
            spans = (reading.KafkaRange(s.checkpoint, *x.tp, x.first, x.next, x.rows) for x in s.spans if x.rows)
            together.append(Piece(s.checkpoint, s.rows, tuple(spans), s))
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


def live_in(reader: Reader, region: Region, table: Table) -> list[int]:
    """Checkpoints whose rows belong in the table now: on the line, acknowledged, not empty."""
    shared = common(reader, region, table.acknowledged)
    return [c.id for c in checkpoints.within(reader, reader.line(shared) if shared else (), ("rows", ">", 0))]


def of_topics(reader: Reader, region: Region, ids: Collection[int], topics: Collection[str]) -> dict[int, int]:
    """Checkpoint → rows that were merged of these topics."""
    merged = rows_by_topic(reader, region, ids)
    return {number: sum(rows[topic] for topic in topics) for number, rows in merged.items()}


def rows_by_topic(reader: Reader, region: Region, ids: Collection[int]) -> dict[int, Counter[str]]:
    """Checkpoint → topic → rows that were merged, and not erased."""
    merged: dict[int, Counter[str]] = {number: Counter() for number in ids}
    for piece in pieces(reader, region, ids):
        for r in piece.ranges:
            merged[piece.checkpoint][r.topic] += r.rows
    return merged


def belonging(reader: Reader, region: Region, table: Table) -> Callable[[int], bool]:
    """Whether rows of a checkpoint belong in the table: it is live, or so old that even its row is forgotten (SPEC T2). A superseded
    checkpoint belongs in no table, also once its row is forgotten: its number is dead (SPEC C8)."""
    live, dead = set(live_in(reader, region, table)), numbers.dead(reader)
    begins = min(before_line(reader, region), table.acknowledged)
    known = {c.id for c in reader.select(Checkpoint, ("id", "<=", begins))}
    return lambda checkpoint: checkpoint in live or (checkpoint not in known and dead.belongs(checkpoint, begins))


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
            counts.update({i: commit.number for i in commit.checkpoints if belongs(i)})
    return counts


@dataclass(frozen=True)
class State:
    """What a table was once."""

    checkpoint: int
    """It held exactly the rows of the line to this checkpoint; 0: none."""
    version: str
    """The format's; empty: a table without rows."""


def state_at(reader: Reader, region: Region, table: Table) -> State:
    """The latest state that belongs to the region's line, of all that was acknowledged. Refused where SQL does not know one any more."""
    forgotten = before_line(reader, region)
    shared = common(reader, region, table.acknowledged) or forgotten
    if not (shared and table.version):
        return State(0, "")
    if shared == table.acknowledged:
        return State(shared, table.version)
    if known := _on_line(reader, table, shared, forgotten):
        return State(known[-1].upto, known[-1].version)
    first = reader.column(TableCommit, "number", ("table", "=", table.name), order=("number",), limit=1)
    if first == [1] and not forgotten:  # all that was ever written is known, and none of it ended here or before
        return State(0, "")
    raise Refused(
        f"Table {table.name} of region {table.region} cannot go back to checkpoint {shared}: no commit that is known ended "
        f"there or before{f', and what led to checkpoint {forgotten} cannot be written again' if forgotten else ''}.",
        hint=f"Nothing was changed. `crkafka tables undeclare {table.name}` lets the region go on without it; a region of its own "
        "fills it from the beginning of the topic."
        if forgotten
        else how_to_refill(table.name),
    )


def versions_in_reach(reader: Reader, region: Region, table: Table) -> set[int]:
    """Versions to which a reset takes the table back, each to the state of its checkpoint: they have to stay (SPEC K6)."""
    known = _on_line(reader, table, region.head, before_line(reader, region))
    ends = [commit.upto for commit in known]
    before = {bisect_right(ends, target) for target in checkpoints.ids_with(reader, CheckpointStatus.MERGED)}
    return {int(known[at - 1].version) for at in before if at}


def _on_line(reader: Reader, table: Table, upto: int, forgotten: int) -> list[TableCommit]:
    """Acknowledged commits that brought the table to checkpoints of the line to this one, in that order."""
    line = {*reader.line(upto), forgotten}
    commits = advances(reader, ("table", "=", table.name), ("version", "!=", ""), ("upto", "<=", upto))
    return sorted((c for c in commits if c.upto in line), key=lambda c: (c.upto, c.number))


def how_to_refill(table: str) -> str:
    return f"`crkafka tables undeclare {table}`, and declare it at a new path: it is filled from what is kept, and from Kafka."
