"""Contributions: each member's part of an open cut, stored or refused (SPEC C1, C2)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crkafka_core.control import Tx
from crkafka_core.model.errors import Conflict, Mismatch, NotOpen, Refused
from crkafka_core.model.offsets import TP, pack
from crkafka_core.model.rows import (
    ANY_GENERATION,
    Checkpoint,
    CheckpointStatus,
    ContributedOffset,
    Contribution,
    Filler,
    Region,
    ResetCause,
    Segment,
)
from crkafka_core.model.segment import ClosedSegment, SegmentName
from crkafka_core.plane import cuts, events, handover, resets, roster
from crkafka_core.protocol import merge as rules

LATE = "Drop the contribution."


@dataclass(frozen=True)
class Part:
    """One member's contribution (SPEC C1)."""

    checkpoint: int
    member: str
    incarnation: str
    epoch: int
    base: int
    generation: int
    members: tuple[str, ...]
    offsets: Mapping[TP, tuple[int, int, int]]
    topic_ids: Mapping[str, str]
    segments: Sequence[ClosedSegment]
    drain_ms: int = 0
    leader_epochs: Mapping[TP, int] = field(default_factory=dict)
    """Of the last record of each partition that gave any (SPEC S4)."""

    def digest(self) -> str:
        """Equal for the same contribution sent again; how long the drain took is not part of it."""
        parts = [
            *(self.checkpoint, self.member, self.incarnation, self.epoch, self.base, self.generation),
            sorted(self.members),
            sorted((tp.topic, tp.partition, *o) for tp, o in self.offsets.items()),
            sorted(self.topic_ids.items()),
            sorted((s.path, s.rows, s.bytes, s.hash, [span.stored() for span in s.spans]) for s in self.segments),
            sorted((tp.topic, tp.partition, epoch) for tp, epoch in self.leader_epochs.items()),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def contribute(tx: Tx, part: Part) -> Refused | None:
    """Store a contribution to the open cut, or refuse it (SPEC C2). What does not match aborts the cut; a handover goes without it."""
    region = tx.region()
    checkpoint = tx.get(Checkpoint, part.checkpoint)
    stored = tx.get(Contribution, part.checkpoint, part.member)
    if stored is not None and stored.hash == part.digest():
        return None
    if checkpoint is None or checkpoint.status is not CheckpointStatus.OPEN or region.open_cut != part.checkpoint:
        what = "unknown" if checkpoint is None else checkpoint.status.lower()
        return _refuse(tx, part, NotOpen(f"Checkpoint {part.checkpoint} of region {region.name} is {what}.", hint=LATE))
    roster.of(tx, part.member, part.incarnation)
    why = handover.current(region)
    if why is not None and part.member in why.failed and stored is None:
        return _refuse(tx, part, NotOpen(f"{part.member} has failed in epoch {region.epoch}.", hint=LATE))
    if part.epoch != region.epoch:
        text = f"The contribution is of epoch {part.epoch}, the region is at {region.epoch}."
        return _refuse(tx, part, NotOpen(text, hint=LATE))
    fillers = tx.select(Filler, ("checkpoint", "=", part.checkpoint))
    mismatch = _mismatch(region, checkpoint, fillers, part)
    if not mismatch and why is not None:  # an ordinary merge compares it (SPEC C3)
        mine = {topic: known for f in fillers if f.member == part.member for topic, known in f.topic_ids.items()}
        mismatch = rules.wrong_topic(part.member, part.topic_ids, mine)
    if stored is None and not mismatch:
        _store(tx, part)
        return None
    again = f"{part.member} has contributed something else to checkpoint {part.checkpoint} before."
    wrong = Conflict(again) if stored is not None else Mismatch(f"{mismatch}.")
    _refuse(tx, part, wrong)
    if why is not None and stored is None:  # its part alone is dropped: the reset comes anyway (SPEC X10)
        handover.fails(tx, why, part.member, str(wrong))
    else:
        resets.begin(tx, ResetCause.MISMATCH, str(wrong), member=part.member)
    return wrong


def _mismatch(region: Region, checkpoint: Checkpoint, fillers: Sequence[Filler], part: Part) -> str:
    """What of a contribution is not as the cut has fixed it, in words."""
    who, expected = part.member, {f.member for f in fillers}
    mine = next((f for f in fillers if f.member == who), None)
    if mine is None or mine.incarnation != part.incarnation:
        return f"Checkpoint {checkpoint.id} expects no contribution of {who}, incarnation {part.incarnation}"
    if mine.offsets.keys() != part.offsets.keys():
        return f"{who} contributes {pack(part.offsets)}; it fills {pack(mine.offsets)}"
    for tp, due in mine.offsets.items():
        if part.offsets[tp][0] != due:
            left = f"checkpoint {checkpoint.parent} left it at {due}"
            return f"{who}: {tp} begins at {part.offsets[tp][0]}, but {left if due != cuts.NO_START else 'it has no stored start'}"
    # A spare may be in the next generation before the others hear of it: nothing of it can be another's.
    if part.offsets and part.generation != checkpoint.generation != ANY_GENERATION:
        return f"{who} is in generation {part.generation}; the cut fixed {checkpoint.generation}"
    if part.base != checkpoint.parent:
        return f"{who} started from {part.base}; the parent of checkpoint {checkpoint.id} is {checkpoint.parent}"
    if set(part.members) != expected:
        return f"{who} knows the members {sorted(part.members)}; the cut expects {sorted(expected)}"
    origin = (region.uid, region.epoch, part.incarnation, part.checkpoint)
    for segment in part.segments:
        name = SegmentName.parse(segment.path)
        if name is None or (name.uid, name.epoch, name.incarnation, name.number) != origin:  # SPEC C8
            return (
                f"{who} names {segment.path}, which is not of incarnation {part.incarnation} in epoch {region.epoch}, "
                f"or not filled for checkpoint {part.checkpoint}"
            )
    if sum(s.rows for s in part.segments) != sum(o[2] for o in part.offsets.values()):
        return f"{who}: rows of its segments and of its offsets differ"
    offsets = [(tp, *o) for tp, o in part.offsets.items()]
    hole = rules.broken_spans(offsets, [span for s in part.segments for span in s.spans])
    return f"{who}: {hole}" if hole else ""


def _refuse(tx: Tx, part: Part, why: Refused) -> Refused:
    evidence = {name: {str(tp): o[i] for tp, o in part.offsets.items()} for i, name in enumerate(("from", "to"))}
    events.log(tx, "contribution refused", why.message, checkpoint=part.checkpoint, member=part.member, data=evidence)
    return why


def _store(tx: Tx, part: Part) -> None:
    where = (tx.region().name, part.checkpoint, part.member)
    tx.add(
        Contribution(
            *(*where, part.incarnation, part.epoch, part.base, part.generation),
            members_json=json.dumps(sorted(part.members)),
            topic_ids_json=json.dumps(dict(part.topic_ids)),
            rows=sum(s.rows for s in part.segments),
            bytes=sum(s.bytes for s in part.segments),
            drain_ms=part.drain_ms,
            hash=part.digest(),
            at=tx.now(),
        )
    )
    offsets = part.offsets.items()
    tx.add(*(ContributedOffset(*where, *tp, *o, part.leader_epochs.get(tp, -1)) for tp, o in offsets))
    tx.add(
        *(
            Segment(
                *(tx.region().name, s.path, part.checkpoint, part.member, part.incarnation, part.epoch),
                *(s.rows, s.bytes, s.hash),
                spans_json=json.dumps([span.stored() for span in s.spans], ensure_ascii=False),
            )
            for s in part.segments
        )
    )
    tx.set_region()
