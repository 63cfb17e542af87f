"""The invariants of FAULTS that the control plane alone can break, checked on one snapshot and against the one before."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from crkafka_core.control import Cond, Reader, Store
from crkafka_core.model.offsets import TP, pack_offsets, unpack
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import (
    Checkpoint,
    CheckpointStatus,
    ContributedOffset,
    Contribution,
    Event,
    Expected,
    Initial,
    MergedOffset,
    Region,
    Reset,
    Segment,
)

_LIVE = (CheckpointStatus.MERGED, CheckpointStatus.RETIRED)


class Broken(AssertionError):
    """An invariant does not hold; the text begins with its number."""


def _holds(true: bool, invariant: str, what: object) -> None:
    if not true:
        raise Broken(f"{invariant}: {what}")


@dataclass
class Invariants:
    """Remembers what must not change; `check` takes one snapshot after another."""

    region: str
    last: Region | None = None
    merged: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Checkpoint → hash, and the packed map, as first seen (I5)."""
    events: int = 0

    def check_store(self, store: Store) -> None:
        """Check a snapshot of the store."""
        with store.read(self.region) as reader:
            self.check(reader)

    def check(self, reader: Reader) -> None:
        """Raise `Broken` if anything does not hold."""
        row = reader.get(Region)
        if row is None:
            return
        checkpoints = {c.id: c for c in reader.select(Checkpoint)}
        self._monotone(reader, row, checkpoints)
        self._line(reader, row, checkpoints)
        for checkpoint in checkpoints.values():
            where: Cond = ("checkpoint", "=", checkpoint.id)
            if checkpoint.status is CheckpointStatus.MERGED:
                self._integrity(reader, checkpoint, where)
                self._immutable(reader, checkpoint, where)
            elif checkpoint.status in (CheckpointStatus.RETIRED, CheckpointStatus.ABORTED):
                left = [
                    t.__name__
                    for t in (Expected, Contribution, ContributedOffset, MergedOffset, Segment)
                    if reader.count(t, where)
                ]
                _holds(not left, "I9", f"checkpoint {checkpoint.id} is {checkpoint.status}, but has {left}")
            elif checkpoint.status is CheckpointStatus.OPEN:
                _holds(
                    row.open_cut == checkpoint.id,
                    "I8",
                    f"checkpoint {checkpoint.id} is open, the region has {row.open_cut} open",
                )
                self._contributions(reader, checkpoint, where)
        self._orphans(reader, checkpoints)
        self.last = row

    def _monotone(self, reader: Reader, row: Region, checkpoints: dict[int, Checkpoint]) -> None:
        """I6: ids, epochs and versions only grow; the head goes back only by a recorded reset that raises the epoch."""
        last = self.last
        _holds(bool(row.open_cut) == (row.phase is Phase.CUTTING), "G9", f"{row.phase} with open cut {row.open_cut}")
        if last is None:
            return
        for name in ("version", "epoch", "next_checkpoint", "next_event"):
            _holds(
                getattr(row, name) >= getattr(last, name),
                "I6",
                f"{name} fell from {getattr(last, name)} to {getattr(row, name)}",
            )
        _holds(all(c < row.next_checkpoint for c in checkpoints), "I6", f"a checkpoint past {row.next_checkpoint}")
        if row.head < last.head:
            new = reader.select(Reset, ("epoch", ">", last.epoch))
            _holds(row.epoch > last.epoch, "I6", f"head {last.head} → {row.head} in epoch {row.epoch}")
            _holds(
                any(r.target == row.head for r in new), "I6", f"head {last.head} → {row.head} without a recorded reset"
            )
        elif row.head > last.head:
            _holds(
                last.head in (0, *reader.line(row.head)),
                "I6",
                f"head {row.head} does not come from {last.head}",
            )
        seqs = [e.seq for e in reader.select(Event)]
        _holds(seqs == list(range(1, row.next_event)), "I6", "the event log has a hole")

    def _line(self, reader: Reader, row: Region, checkpoints: dict[int, Checkpoint]) -> None:
        """I1: along the line the ranges of each partition are disjoint and contiguous, from the initial offset on."""
        line = reader.line(row.head)
        at: dict[TP, int] = {TP(i.topic, i.partition): i.offset for i in reader.select(Initial)}
        if row.head:
            _holds(bool(line) and line[-1] == row.head, "I1", f"head {row.head} is unknown")
            _holds(
                checkpoints[line[0]].parent == 0,
                "I1",
                f"the line begins at {line[0]}, whose parent is {checkpoints[line[0]].parent}",
            )
        for number in line:
            checkpoint = checkpoints[number]
            _holds(checkpoint.status in _LIVE, "I1", f"{number} on the line is {checkpoint.status}")
            for tp, (start, stop) in self._ranges(reader, checkpoint).items():
                _holds(tp in at, "I1", f"{tp} of {number} has no initial offset")
                _holds(start == at[tp], "I1", f"{tp} of {number} begins at {start}, was left at {at[tp]}")
                _holds(stop >= start, "I6", f"{tp} of {number} goes back from {start} to {stop}")
                at[tp] = stop

    def _ranges(self, reader: Reader, checkpoint: Checkpoint) -> dict[TP, tuple[int, int]]:
        if checkpoint.status is CheckpointStatus.RETIRED:
            archive = json.loads(checkpoint.archive_json)
            return {TP(t, int(p)): (o[0], o[1]) for t, ps in archive.items() for p, o in ps.items()}
        rows = reader.select(MergedOffset, ("checkpoint", "=", checkpoint.id))
        return {TP(o.topic, o.partition): (o.from_offset, o.to_offset) for o in rows}

    def _integrity(self, reader: Reader, checkpoint: Checkpoint, where: Cond) -> None:
        """I4: the map is the union of the contributions of exactly the expected incarnations."""
        expected = {(e.member, e.incarnation): unpack(e.assignment_json) for e in reader.select(Expected, where)}
        there = reader.select(Contribution, where)
        _holds(
            {(c.member, c.incarnation) for c in there} == expected.keys(),
            "I4",
            f"{checkpoint.id}: not the expected set",
        )
        self._contributions(reader, checkpoint, where)
        parts: dict[TP, tuple[str, int, int]] = {}
        for o in reader.select(ContributedOffset, where):
            tp = TP(o.topic, o.partition)
            _holds(tp not in parts, "I4", f"{checkpoint.id}: {tp} twice")
            parts[tp] = (o.member, o.from_offset, o.to_offset)
        fixed = [tp for assignment in expected.values() for tp in assignment]
        _holds(sorted(fixed) == sorted(parts), "I4", f"{checkpoint.id}: not what the cut fixed")
        merged = reader.select(MergedOffset, where)
        union = {TP(m.topic, m.partition): (m.member, m.from_offset, m.to_offset) for m in merged if m.member}
        _holds(union == parts, "I4", f"{checkpoint.id}: not the union of its contributions")
        known = {TP(i.topic, i.partition) for i in reader.select(Initial) if i.at <= checkpoint.opened_at}
        missing = known - {TP(m.topic, m.partition) for m in merged}
        _holds(not missing, "I4", f"{checkpoint.id}: {sorted(missing)} missing")
        _holds(checkpoint.rows == sum(m.rows for m in merged), "I4", f"{checkpoint.id}: rows")

    def _contributions(self, reader: Reader, checkpoint: Checkpoint, where: Cond) -> None:
        """I8: no contribution of an old incarnation, epoch, base or generation is stored."""
        expected = {e.member: e.incarnation for e in reader.select(Expected, where)}
        rows = {c.member: c.rows for c in reader.select(Contribution, where)}
        for c in reader.select(Contribution, where):
            wanted = (expected.get(c.member), checkpoint.epoch, checkpoint.parent, checkpoint.generation)
            _holds(
                (c.incarnation, c.epoch, c.base, c.generation) == wanted,
                "I8",
                f"{checkpoint.id}: {c} instead of {wanted}",
            )
        for s in reader.select(Segment, where):
            _holds(s.member in rows and (s.incarnation, s.epoch) == (expected[s.member], checkpoint.epoch), "I13", s)
        for name, count in rows.items():
            named = sum(s.rows for s in reader.select(Segment, where) if s.member == name)
            _holds(named == count, "I4", f"{checkpoint.id}: {name} has {count} rows, its segments {named}")

    def _immutable(self, reader: Reader, checkpoint: Checkpoint, where: Cond) -> None:
        """I5: what was merged once stays as it is."""
        packed = pack_offsets({TP(m.topic, m.partition): m.to_offset for m in reader.select(MergedOffset, where)})
        before = self.merged.setdefault(checkpoint.id, (checkpoint.hash, packed))
        _holds(before == (checkpoint.hash, packed), "I5", f"{checkpoint.id} changed")

    def _orphans(self, reader: Reader, checkpoints: dict[int, Checkpoint]) -> None:
        """I13: a segment's row belongs to a checkpoint that is merged, or may still be."""
        for number in {s.checkpoint for s in reader.select(Segment)}:
            there = checkpoints.get(number)
            allowed = (CheckpointStatus.MERGED, CheckpointStatus.OPEN, CheckpointStatus.SUPERSEDED)
            _holds(there is not None and there.status in allowed, "I13", f"segments of checkpoint {number}")
