"""What a read of checkpoints reads: segments or Kafka ranges along the line of descent, under a reader's lease (SPEC K3, C5, T1)."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace

from crkafka_core.control import Reader, Tx
from crkafka_core.model.errors import DataLoss, NoSuchCheckpoint
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import listed, plural
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Lease, Region, Segment
from crkafka_core.model.selection import EVERYTHING, Selection
from crkafka_core.plane import checkpoints, leases

KIND = "reader"
"""The kind of the leases that hold back retirement (SPEC T1)."""

NOTHING = 2**62
"""Above any checkpoint: a read of archived ones holds nothing back."""


@dataclass(frozen=True, slots=True)
class KafkaRange:
    """The half-open range that an archived checkpoint added to one partition, and how many rows it had."""

    checkpoint: int
    topic: str
    partition: int
    start: int
    stop: int
    rows: int
    topic_id: str | None = ""
    """The topic that was read; empty on brokers without ids, None in an old archive of a topic that was recreated since."""
    cluster_id: str = ""
    leader_epoch: int = -1
    """Leader epoch of the record before `stop`, or −1; it differs in a log that was cut and has grown again (SPEC S4)."""

    @property
    def tp(self) -> TP:
        return TP(self.topic, self.partition)


@dataclass(frozen=True)
class ReadPlan:
    """Which checkpoints a read covers and where the rows of each are."""

    region: str
    uid: str
    line: tuple[Checkpoint, ...]
    """Oldest first; the empty ones too."""
    segments: tuple[Segment, ...] = ()
    """Of the kept ones."""
    ranges: tuple[KafkaRange, ...] = ()
    """Of the archived ones, whose segments are gone."""
    selection: Selection = EVERYTHING
    """Which of their records are wanted; segments and ranges without any are left out already."""

    def selecting(self, selection: Selection) -> ReadPlan:
        """For these records only. What is left out is what SQL knows to hold none of them; the rest is read with a filter."""
        if selection.everything:
            return self
        selection = replace(selection, erased=self.selection.erased)
        return replace(
            self,
            segments=tuple(
                s for s in self.segments if any(selection.may_hold(*x.tp, x.first, x.next) for x in s.spans)
            ),
            ranges=tuple(r for r in self.ranges if selection.may_hold(r.topic, r.partition, r.start, r.stop)),
            selection=selection,
        )

    @property
    def checkpoints(self) -> tuple[int, ...]:
        return tuple(c.id for c in self.line)

    @property
    def filled(self) -> tuple[int, ...]:
        """Checkpoints with rows (SPEC C6)."""
        return tuple(c.id for c in self.line if c.rows)

    @property
    def rows_for_tables(self) -> dict[int, int]:
        """Checkpoint → rows that a table has to get."""
        return {c.id: c.rows_for_tables for c in self.line}

    @property
    def rows(self) -> int:
        return sum(c.rows for c in self.line)

    @property
    def bytes(self) -> int:
        return sum(s.bytes for s in self.segments)


@dataclass(frozen=True)
class Reading:
    """A plan and the lease that keeps its segments where they are."""

    plan: ReadPlan
    lease: Lease


def plan(
    reader: Reader,
    region: Region,
    *,
    after: int | None = None,
    upto: int | None = None,
    ids: Collection[int] | None = None,
) -> ReadPlan:
    """The checkpoints (after, upto] along parents, or exactly `ids`; by default from birth to the head."""
    if ids is None:
        line = _between(reader, region, after or 0, region.head if upto is None else upto)
    else:
        wrong = sorted(set(ids).difference(reader.line(region.head, after=min(ids) - 1))) if ids else ()
        if wrong:
            raise refusal(reader, region, wrong[0])
        line = checkpoints.within(reader, ids)
    ranges = [r for c in line if c.status is CheckpointStatus.RETIRED and c.rows for r in archived(region, c)]
    # All of their records, but for those that were erased for good.
    erased = (
        (c.id, topic, partition, tuple(offsets))
        for c in line
        for topic, partitions in c.erased.items()
        for partition, offsets in partitions.items()
    )
    selection = Selection(erased=tuple(erased))
    return ReadPlan(
        region.name, region.uid, tuple(line), tuple(_segments(reader, region, line)), tuple(ranges), selection
    )


def _segments(reader: Reader, region: Region, line: Collection[Checkpoint]) -> list[Segment]:
    """Segments of the kept checkpoints, as they were written."""
    kept = {c.id: c for c in line if c.status is CheckpointStatus.MERGED and c.rows}
    if not kept:
        return []
    near = reader.select(Segment, ("checkpoint", ">=", min(kept)), ("checkpoint", "<=", max(kept)))
    counted = dict.fromkeys(kept, 0)
    for segment in near:
        if segment.checkpoint in kept:
            counted[segment.checkpoint] += segment.rows
    for checkpoint, rows in counted.items():
        if rows != kept[checkpoint].rows:
            merged = f"Checkpoint {checkpoint} of region {region.name} merged {plural(kept[checkpoint].rows, 'row')}"
            hint = "Rows of the control plane are missing; `crkafka verify` names the first difference."
            raise DataLoss(f"{merged}, its segments name {rows}.", hint=hint)
    # Within a checkpoint a member's tenth segment comes behind its ninth, though its path is the lesser text.
    return sorted((s for s in near if s.checkpoint in kept), key=lambda s: (s.checkpoint, len(s.path), s.path))


def _between(reader: Reader, region: Region, after: int, upto: int) -> list[Checkpoint]:
    if after < 0 or upto < after:
        why = f"There is no range of checkpoints after {after} up to {upto} in region {region.name}."
        raise NoSuchCheckpoint(why, hint="The first bound is left out, the second is in: 0 ≤ after ≤ upto.")
    if after == upto:
        if upto and upto not in reader.line(region.head, after=upto - 1):
            raise refusal(reader, region, upto)
        return []
    line = reader.line(region.head, after=after)
    if upto not in line:
        raise refusal(reader, region, upto)
    rows = checkpoints.within(reader, [i for i in line if i <= upto])
    if rows[0].parent != after:
        raise refusal(reader, region, after) if after else forgotten(region, rows[0])
    return rows


def forgotten(region: Region, first: Checkpoint) -> NoSuchCheckpoint:
    """What led to the first checkpoint that the history still has is asked for."""
    return NoSuchCheckpoint(
        f"The history of region {region.name} goes back to checkpoint {first.id}; what led to it is no longer archived.",
        hint=f"Read after {first.parent}, or keep more with `history`.",
    )


def refusal(reader: Reader, region: Region, checkpoint: int) -> NoSuchCheckpoint:
    """Why this checkpoint cannot be read, and which can."""
    row = reader.get(Checkpoint, checkpoint)
    if row is None:
        last = f"its last merge is {region.head}" if region.head else "nothing is merged yet"
        why = f"Region {region.name} has no checkpoint {checkpoint}: {last}."
    elif row.status in checkpoints.LIVE:
        why = f"Checkpoint {checkpoint} of region {region.name} does not lead to its head {region.head}."
    else:
        note = f" ({row.note})" if row.note else ""
        why = f"Checkpoint {checkpoint} of region {region.name} is {row.status.lower()}{note}."
    if not region.head:
        return NoSuchCheckpoint(why, hint="Wait for the first cut.")
    line = reader.line(region.head)
    return NoSuchCheckpoint(why, hint=f"What can be read: {listed(line)} ({len(line)} on the line to the head).")


def archived(region: Region, checkpoint: Checkpoint) -> list[KafkaRange]:
    """The ranges that the archive of a retired checkpoint holds (SPEC T2)."""
    ids = json.loads(checkpoint.archive_topics_json)
    ranges = [
        KafkaRange(
            *(checkpoint.id, topic, int(partition), start, stop, rows, ids.get(topic), checkpoint.cluster_id),
            leader_epoch=epoch[0] if epoch else -1,
        )
        for topic, partitions in json.loads(checkpoint.archive_json).items()
        for partition, (start, stop, rows, *epoch) in partitions.items()
        if rows
    ]
    if sum(r.rows for r in ranges) != checkpoint.rows:
        archive = f"The archive of checkpoint {checkpoint.id} of region {region.name}"
        raise DataLoss(f"{archive} does not hold its {plural(checkpoint.rows, 'row')}.")
    return sorted(ranges, key=lambda r: (r.topic, r.partition))


def take(
    tx: Tx,
    *,
    holder: str,
    token: str,
    length: float,
    after: int | None = None,
    upto: int | None = None,
    ids: Collection[int] | None = None,
) -> Reading:
    """Plan a read and hold its checkpoints in the same transaction, so that no retirement comes in between (SPEC T1)."""
    made = plan(tx, tx.region(), after=after, upto=upto, ids=ids)
    kept = [c.id for c in made.line if c.status is CheckpointStatus.MERGED]
    lease = follow(tx, stream=token, holder=holder, after=min(kept, default=NOTHING) - 1, length=length)
    return Reading(made, lease)


def follow(tx: Tx, *, stream: str, holder: str, after: int, length: float) -> Lease:
    """Hold what comes after a stream's position, so that retirement leaves it; what is before it may be retired."""
    data = json.dumps({"after": after})
    return leases.take(tx, KIND, holder=holder, token=stream, length=length, slot=stream, data=data)
