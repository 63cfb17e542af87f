"""Records that were erased for good, as a person's by law: SQL keeps their offsets, and no table gets them again (SPEC K6).

What reads a checkpoint for a table leaves them out (`reading.without_erased`), and what counts a table's rows does not count them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from crkafka_core.control import Reader, Tx
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, MergedOffset, Segment
from crkafka_core.model.selection import Selection
from crkafka_core.plane import checkpoints, contents, events
from crkafka_core.plane.contents import Piece

Records = Mapping[TP, Collection[int]]
"""Offsets, by partition."""


def found(reader: Reader, records: Records) -> dict[int, dict[TP, list[int]]]:
    """Checkpoint → which of these records are in it, as far as SQL knows; only checkpoints that lead to the head.

    An offset that several have, as of a recreated topic, counts for the latest.
    """
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
    """Checkpoint → which records it may have that were erased before a rewind: what Kafka gives once more is the same.

    Of checkpoints whose segments are kept, without what is noted already. No table is behind any other: retirement waits for it.
    """
    left = reader.select(Checkpoint, ("status", "=", CheckpointStatus.SUPERSEDED), ("erased_json", "!=", "{}"))
    if not left:
        return {}
    erased: dict[tuple[str, TP], set[int]] = defaultdict(set)
    for row in left:
        topics = _topic_ids(reader, row)
        for topic, of in row.erased.items():
            for partition, offsets in of.items():
                if topic in topics:
                    erased[topics[topic], TP(topic, partition)].update(offsets)
    live = [i for i in checkpoints.ids_with(reader, CheckpointStatus.MERGED) if i > min(row.id for row in left)]
    again: dict[int, dict[TP, list[int]]] = {}
    if not live:
        return again
    noted = {c.id: c.erased for c in reader.select(Checkpoint, ("id", ">=", live[0]), ("erased_json", "!=", "{}"))}
    for merged in reader.select(MergedOffset, ("checkpoint", ">=", live[0]), ("rows", ">", 0)):
        tp = TP(merged.topic, merged.partition)
        if merged.checkpoint not in live:
            continue
        known = noted.get(merged.checkpoint, {}).get(tp.topic, {}).get(tp.partition, ())
        new = erased.get((merged.topic_id, tp), set()) - set(known)
        if offsets := sorted(o for o in new if merged.from_offset <= o < merged.to_offset):
            again.setdefault(merged.checkpoint, {})[tp] = offsets
    return again


def _topic_ids(reader: Reader, row: Checkpoint) -> dict[str, str]:
    """Topic → its id, of those that are known for sure: another topic of this name has other records."""
    known = {o.topic: o.topic_id for o in reader.select(MergedOffset, ("checkpoint", "=", row.id))}
    return known or {topic: id for topic, id in json.loads(row.archive_topics_json).items() if id is not None}


def record(tx: Tx, checkpoint: int, records: Records, *, by: str) -> int:
    """Note that these records of a checkpoint are erased; how many were not yet."""
    row = tx.get(Checkpoint, checkpoint)
    assert row is not None
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
    """Topic, partition, offset of each as offsets by partition."""
    given: dict[TP, set[int]] = {}
    for topic, partition, offset in records:
        given.setdefault(TP(topic, partition), set()).add(offset)
    return given
