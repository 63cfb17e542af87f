"""Records that were erased for good, as a person's by law: SQL keeps their offsets, and no table gets them again (SPEC K6).

What reads a checkpoint for a table leaves them out (`reading.plan`), and what counts a table's rows does not count them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import groupby

from crkafka_core.control import Cond, Reader, Tx
from crkafka_core.model.errors import Refused
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, ErasedRecords, MergedOffset, Segment
from crkafka_core.model.selection import Selection
from crkafka_core.plane import checkpoints, contents, events, numbers, starts
from crkafka_core.plane.contents import Piece

Records = Mapping[TP, Collection[int]]


def locate(reader: Reader, records: Records) -> dict[int, dict[TP, list[int]]]:
    """Checkpoint → which of these records are in it, as far as SQL knows; only checkpoints that lead to the head. An offset that several
    have, as of a recreated topic, counts for the latest."""
    region = reader.region()
    ids = reader.line(region.head) if region.head else ()
    at: dict[TP, list[tuple[int, int, Piece]]] = defaultdict(list)
    for piece in contents.pieces(reader, region, ids):
        for r in piece.ranges:
            if r.tp in records:
                at[r.tp].append((r.start, r.stop, piece))
    where: dict[int, dict[TP, list[int]]] = {}
    for tp, offsets in records.items():
        for offset in sorted(set(offsets)):
            holding = [p.checkpoint for start, stop, p in at[tp] if start <= offset < stop]
            if holding:
                where.setdefault(max(holding), {}).setdefault(tp, []).append(offset)
    return where


def come_again(reader: Reader) -> dict[int, dict[TP, list[int]]]:
    """Checkpoint → which records it may have that were erased before a rewind: what Kafka gives once more is the same. Of checkpoints whose
    segments are kept. No table is behind any other: retirement waits for it."""
    again: dict[int, dict[TP, list[int]]] = {}
    if not (behind := _left_behind(reader)):
        return again
    erased: dict[tuple[str, TP], list[ErasedRecords]] = defaultdict(list)
    for row in reader.select(ErasedRecords, ("checkpoint", "in", behind)):
        erased[row.topic_id, TP(row.topic, row.partition)].append(row)
    live = set(checkpoints.ids_with(reader, CheckpointStatus.MERGED))
    topics = sorted({tp.topic for _, tp in erased})
    for m in reader.select(MergedOffset, ("checkpoint", ">", min(behind)), ("topic", "in", topics), ("rows", ">", 0)):
        tp = TP(m.topic, m.partition)
        spans = [range(max(r.first, m.from_offset), min(r.next, m.to_offset)) for r in erased.get((m.topic_id, tp), ())]
        if m.checkpoint in live and any(spans):
            again.setdefault(m.checkpoint, {})[tp] = [offset for span in spans for offset in span]
    return again


def _left_behind(reader: Reader) -> list[int]:
    """Numbers that a rewind has left behind, of erased records."""
    noted = set(reader.column(ErasedRecords, "checkpoint"))
    dead = numbers.dead(reader) if noted else numbers.Dead()
    return [number for number in noted if not dead.belongs(number, number)]


def pass_over(tx: Tx) -> None:
    """Note as passed by the head what was erased before a rewind and did not come again: Kafka had let it go, or its topic is gone. Nothing
    that `come_again` names may be left to note."""
    head = tx.region().head
    if not head or not (behind := _left_behind(tx)):
        return
    at = starts.merged(tx, head)
    passed = list[ErasedRecords]()
    for row in tx.select(ErasedRecords, ("checkpoint", "in", behind)):
        now = at.get(TP(row.topic, row.partition))
        if now is not None and (now.topic_id != row.topic_id or now.to_offset >= row.next):
            passed.append(replace(row, checkpoint=head))
    tx.put(*passed)


def row_of(reader: Reader, checkpoint: int) -> Checkpoint:
    """The row of a checkpoint; Refused if history has forgotten it since it was chosen."""
    if row := reader.get(Checkpoint, checkpoint):
        return row
    raise Refused(
        f"Checkpoint {checkpoint} was forgotten meanwhile (`history`): nothing was erased.",
        hint="Ask again: of the records, those in checkpoints that SQL still knows are erased.",
    )


def record(tx: Tx, checkpoint: int, records: Records, *, by: str, passed: Records | None = None) -> int:
    """Note that these records of a checkpoint are erased; how many were not yet. `passed`: also those that were erased before and lie in
    its ranges, but that it has not: compaction may have taken them."""
    row = row_of(tx, checkpoint)
    # They are kept by the id of their topic, whatever becomes of this checkpoint, the latest that came past them.
    merged = {o.topic: o.topic_id for o in tx.select(MergedOffset, ("checkpoint", "=", row.id))}
    topic_ids = merged or json.loads(row.archive_topics_json)
    for tp, offsets in (records if passed is None else passed).items():
        topic_id = topic_ids[tp.topic]
        own: list[Cond] = [("topic_id", "=", topic_id), ("partition", "=", tp.partition)]
        latest = {o: old.checkpoint for old in tx.select(ErasedRecords, *own) for o in range(old.first, old.next)}
        latest |= dict.fromkeys(offsets, row.id)
        tx.delete(ErasedRecords, *own)
        rows = list[ErasedRecords]()
        runs = groupby(enumerate(sorted(latest.items())), key=lambda at: (at[1][0] - at[0], at[1][1]))
        for (_, number), run in runs:
            consecutive = [offset for _, (offset, _) in run]
            bounds = consecutive[0], consecutive[-1] + 1
            rows.append(ErasedRecords(row.region, topic_id, tp.partition, *bounds, tp.topic, number))
        tx.put(*rows)
    erased = row.erased
    new = 0
    for tp, offsets in records.items():
        known = erased.setdefault(tp.topic, {}).setdefault(tp.partition, [])
        more = set(offsets) - set(known)
        new += len(more)
        known[:] = sorted({*known, *more})
    if new:
        tx.put(replace(row, erased_json=json.dumps(erased, ensure_ascii=False, separators=(",", ":"))))
        text = f"{plural(new, 'record')} of checkpoint {checkpoint} erased, by {by}"
        events.log(tx, "erase", text, checkpoint=checkpoint)
    return new


def touches(selection: Selection, segment: Segment) -> bool:
    """Whether the segment has one of the erased records."""
    spans = segment.spans
    return any(
        (topic, partition) == span.tp and any(span.first <= offset < span.next for offset in offsets)
        for _, topic, partition, offsets in selection.erased
        for span in spans
    )


def by_partition(records: Iterable[tuple[str, int, int]]) -> dict[TP, set[int]]:
    given: dict[TP, set[int]] = {}
    for topic, partition, offset in records:
        given.setdefault(TP(topic, partition), set()).add(offset)
    return given
