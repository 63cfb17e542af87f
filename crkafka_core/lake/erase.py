"""Notes in SQL which records are erased for good, once it is sure that they are there (SPEC K6).

An offset without a record (a transaction's mark, what compaction took) is refused: a table's rows are counted by what was merged,
without what was erased. Where neither a segment nor Kafka has the record any more, nothing can bring it back, and it is believed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from crkafka_core.control import Tx
from crkafka_core.holder import holder
from crkafka_core.kafka.range_reader import RangeReader
from crkafka_core.lake.handle import Handle
from crkafka_core.model.errors import DataLoss, Refused
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import CheckpointStatus, Segment
from crkafka_core.model.selection import Between, Selection
from crkafka_core.plane import contents, erasure
from crkafka_core.plane.erasure import Records
from crkafka_core.segments.errors import SegmentMissing
from crkafka_core.segments.scan import scan_segment

_SHOWN = 5


def note(region: Handle, records: Records) -> dict[int, int]:
    """Checkpoint → how many of the records it has; all of them are noted as erased, or none and the first unknown ones are named."""
    where = region.plane.read(lambda reader, _: erasure.locate(reader, records))
    missing = {(tp, offset) for tp, offsets in records.items() for offset in offsets}
    for checkpoint, wanted in where.items():
        held = _held(region, checkpoint, wanted)
        missing -= {(tp, offset) for tp, offsets in held.items() for offset in offsets}
    if missing:
        shown = ", ".join(f"{tp} offset {offset}" for tp, offset in sorted(missing)[:_SHOWN])
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise Refused(
            f"Region {region.plane.region} has no such record in a checkpoint that leads to its head: {shown}{more}.",
            hint="Nothing was erased. A query of a table has topic, partition and offset of each record.",
        )
    by = holder()
    region.plane.do(lambda tx: [erasure.record(tx, i, wanted, by=by) for i, wanted in where.items()])
    return {checkpoint: sum(map(len, wanted.values())) for checkpoint, wanted in sorted(where.items())}


def note_again(region: Handle) -> bool:
    """Before checkpoints are read: note as erased what was so before a rewind, and has come again with it; whether there was any."""
    where = region.plane.read(lambda reader, _: erasure.come_again(reader))
    if not where:
        return False
    held = {checkpoint: _held(region, checkpoint, wanted) for checkpoint, wanted in where.items()}
    by = holder()

    def record(tx: Tx) -> int:
        return sum(erasure.record(tx, i, records, by=by, passed=where[i]) for i, records in held.items())

    return region.plane.do(record) > 0


def _held(region: Handle, checkpoint: int, wanted: Mapping[TP, Collection[int]]) -> dict[TP, set[int]]:
    """Those of the records that a checkpoint really has; noted ones are believed."""
    row, pieces = region.plane.read(
        lambda reader, region: (erasure.row_of(reader, checkpoint), contents.pieces(reader, region, [checkpoint]))
    )
    known = {tp: set(row.erased.get(tp.topic, {}).get(tp.partition, ())) & set(given) for tp, given in wanted.items()}
    left = {tp: set(given) - known[tp] for tp, given in wanted.items()}
    segments = [p.segment for p in pieces if p.segment and not p.erased]
    try:
        merged = row.status is CheckpointStatus.MERGED
        held = _in_segments(region, segments, left) if merged else _in_kafka(region, left)
    except SegmentMissing:  # retired meanwhile
        held = _in_kafka(region, left)
    return {tp: known[tp] | held.get(tp, set()) for tp in wanted}


def _in_segments(region: Handle, segments: Collection[Segment], wanted: Mapping[TP, set[int]]) -> dict[TP, set[int]]:
    storage, held, columns = region.storage(), dict[TP, set[int]](), ["partition", "offset"]
    for tp, offsets in wanted.items():
        if not offsets:
            continue
        near = Selection((tp.topic,), (tp.partition,), Between(min(offsets), max(offsets) + 1))
        for segment in segments:
            for batch in scan_segment(storage, segment.path, landed=segment.rows, columns=columns, selection=near):
                held.setdefault(tp, set()).update(offsets.intersection(batch.column("offset").to_pylist()))
    return held


def _in_kafka(region: Handle, wanted: Mapping[TP, set[int]]) -> dict[TP, set[int]]:
    def holds(tp: TP, offset: int) -> bool:
        try:
            return any(batch.rows for batch in reader.read(tp, offset, offset + 1))
        except DataLoss:  # Kafka has let it go
            return True

    with RangeReader(region.config.resolved_kafka()) as reader:
        return {tp: {offset for offset in offsets if holds(tp, offset)} for tp, offsets in wanted.items()}
