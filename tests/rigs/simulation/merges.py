"""Judges the merges of a simulated schedule: which members, which offsets, and exactly which records (SPEC I1-I4, I8, I13, X10)."""

from __future__ import annotations

import json

from crkafka_core.control import Cond, Reader
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import (
    ANY_GENERATION,
    Checkpoint,
    CheckpointStatus,
    Contribution,
    Event,
    Member,
    MemberStatus,
    MergedOffset,
    Region,
    Reset,
    Segment,
)
from crkafka_core.model.segment import SegmentName
from tests.rigs.simulation.broker import Record, between
from tests.rigs.simulation.history import Violation
from tests.rigs.simulation.knowledge import Knowledge

HANDS_OVER = frozenset({"join", "rebalance", "left", "lost"})
"""Causes that merge first what was submitted (SPEC X10)."""
WANTED = frozenset({"stop", "caught up"})
"""Causes of cuts of which somebody wants the checkpoint, also if there is nothing new."""
EITHER = frozenset({False, True})
"""Of the log as it was before it was cut, or as it is."""


def members_that_failed(reader: Reader, epoch: int) -> set[str]:
    """Members that have failed at their part of a handover."""
    return {e.member for e in reader.select(Event, ("kind", "=", "left out")) if e.epoch == epoch}


class Merges(Knowledge):
    """After a merge, before anybody hears of it."""

    def _merge(self, reader: Reader, last: Region, row: Region) -> None:
        cut = row.head
        where: Cond = ("checkpoint", "=", cut)
        checkpoint = reader.get(Checkpoint, cut)
        if (
            checkpoint is None
            or checkpoint.status is not CheckpointStatus.MERGED
            or checkpoint.parent != last.head
            or cut != last.open_cut
        ):
            raise Violation("C5", f"head {last.head} → {cut}: {checkpoint}")
        begun = reader.get(Reset, row.epoch) if row.epoch > last.epoch else None
        handover = bool(last.handover_json or row.handover_json) or (begun is not None and begun.cause in HANDS_OVER)
        stays = row.epoch == last.epoch if row.open_cut or not handover else row.epoch == last.epoch + 1
        if checkpoint.epoch != last.epoch or not (stays or row.phase is Phase.IDLE):
            raise Violation(
                "I8", f"cut {cut} of epoch {checkpoint.epoch} was merged in epoch {last.epoch} → {row.epoch}"
            )
        parts = reader.select(Contribution, where)
        contributors = {(c.member, c.incarnation) for c in parts}
        missing = self.fixed - contributors if handover and contributors <= self.fixed else set()
        if contributors | missing != self.fixed or any(c.epoch != last.epoch or c.base != last.head for c in parts):
            raise Violation("I4", f"cut {cut} merged {sorted(contributors)}, expected were {sorted(self.fixed)}")
        self._without(reader, checkpoint, missing)
        for name, incarnation in () if handover else contributors:
            member = reader.get(Member, name)
            if member is None or member.incarnation != incarnation or member.status is not MemberStatus.LIVE:
                raise Violation("I8", f"cut {cut} merged what {incarnation} contributed, which is {member}")
        offsets = reader.select(MergedOffset, where)
        self._offsets(reader, cut, checkpoint.parent, offsets)
        self._rows(cut, checkpoint.parent, offsets, reader.select(Segment, where), contributors)
        self.merged[cut] = {TP(o.topic, o.partition): o.to_offset for o in offsets}
        self.ids[cut] = {TP(o.topic, o.partition): o.topic_id for o in offsets}
        self.led[cut] = {TP(o.topic, o.partition) for o in offsets if o.leader_epoch >= 0}
        before = self.merged.get(checkpoint.parent), self.ids.get(checkpoint.parent)
        new = self.landed[cut] or (self.merged[cut], self.ids[cut]) != before
        if checkpoint.parent and not new and checkpoint.cause not in WANTED:
            raise Violation("V1", f"cut {cut} made a checkpoint ({checkpoint.cause}), and had nothing new")
        self.parents[cut] = checkpoint.parent
        self.cuts, self.handovers = self.cuts + 1, self.handovers + (checkpoint.cause == "handover")
        if checkpoint.cause != "handover" and not missing:
            self.failures, self.proved = 0, last.epoch
        if row.phase is Phase.RUNNING:
            self._runs(reader, row)

    def _without(self, reader: Reader, checkpoint: Checkpoint, missing: set[tuple[str, str]]) -> None:
        """X10: only of a handover, only who is lost, gone, failed or late; each is named."""
        self.left_out += len(missing)
        if {name for name, _ in missing} != set(json.loads(checkpoint.without_json)):
            raise Violation(
                "X10", f"cut {checkpoint.id} names {checkpoint.without_json}, missing are {sorted(missing)}"
            )
        failed = members_that_failed(reader, checkpoint.epoch)
        for name, incarnation in missing if checkpoint.merged_at <= checkpoint.deadline else ():
            if name in failed:
                continue
            member = reader.get(Member, name)
            same = member is not None and member.incarnation == incarnation
            wrote = (incarnation, checkpoint.epoch, checkpoint.id) in self.wrote  # else it leaves nothing behind
            at_fault = {MemberStatus.LIVE, MemberStatus.LEFT} if wrote else {MemberStatus.LIVE}
            if member is not None and same and member.status in at_fault:
                raise Violation(
                    "X10", f"cut {checkpoint.id} went without {name}, which is {member.status}, before its deadline"
                )

    def _empty(self, reader: Reader, cut: int) -> None:
        """V1: it was wanted only if there was something new."""
        checkpoint = reader.get(Checkpoint, cut)
        if checkpoint is None or checkpoint.status is not CheckpointStatus.EMPTY or not checkpoint.if_new:
            raise Violation("V1", f"cut {cut} is over without a head and without an abort: {checkpoint}")
        self.cuts, self.failures, self.proved = self.cuts + 1, 0, self.row.epoch

    def _offsets(self, reader: Reader, cut: int, parent: int, offsets: list[MergedOffset]) -> None:
        """I1: every known partition is there, in a handover each that was fixed, and goes on where the parent left it."""
        before, seen = self.merged[parent], {TP(o.topic, o.partition) for o in offsets}
        row = reader.get(Checkpoint, cut)
        handover = row is not None and row.generation == ANY_GENERATION
        lacks = ((self.covers & self.known if handover else self.known) | set(before)) - seen
        if lacks:
            raise Violation("I4", f"cut {cut} lacks {sorted(lacks)}")
        for o in offsets:
            tp = TP(o.topic, o.partition)
            same = tp in before and self.ids[parent][tp] == o.topic_id
            due = before[tp] if same else self.initial.get(tp, {}).get(o.topic_id)
            if due is None or not self.may_begin(parent, tp, o.from_offset, due) or o.to_offset < o.from_offset:
                raise Violation(
                    "I1",
                    f"cut {cut}: {tp} goes from {o.from_offset} to {o.to_offset}; its parent {parent} left it at {due}",
                )

    def _rows(
        self,
        cut: int,
        parent: int,
        offsets: list[MergedOffset],
        segments: list[Segment],
        contributors: set[tuple[str, str]],
    ) -> None:
        """I2, I3, I8: what the named segments hold is exactly what was produced in these ranges."""
        landed: dict[TP, list[Record]] = {}
        self.landed[cut], self.segments[cut] = [], [*self.segments.get(cut, ()), *(s.path for s in segments)]
        for segment in sorted(segments, key=lambda s: SegmentName.parse(s.path) or s.path):
            if (segment.member, segment.incarnation) not in contributors:
                raise Violation("I8", f"cut {cut} names {segment.path} of {segment.incarnation}")
            held = self.disk.get(segment.path)
            if held is None:
                raise Violation("I13", f"cut {cut} names {segment.path}, which is not there, or not closed")
            for tp, record in held:
                landed.setdefault(tp, []).append(record)
                self.landed[cut].append(record)
        self.landed[cut].sort()
        for o in offsets:
            tp = TP(o.topic, o.partition)
            logs, records = self.broker.logs_of(tp, o.topic_id), landed.pop(tp, [])
            produced = [between(log, o.from_offset, o.to_offset) for log in logs]
            if records not in produced or len(records) != o.rows:
                raise Violation(
                    "I2", f"cut {cut}: {tp} has {records} in [{o.from_offset}, {o.to_offset}); produced were {produced}"
                )
            self._same_log(
                cut, parent, o, {at == len(logs) - 1 for at, of_one in enumerate(produced) if of_one == records}
            )
        if landed:
            raise Violation("I2", f"cut {cut} landed partitions outside of its map: {sorted(landed)}")

    def _same_log(self, cut: int, parent: int, o: MergedOffset, of_older: set[bool]) -> None:
        """S4: what goes on behind where a log was cut goes on in the same log, unless no leader's epoch tells it; or behind what
        retention took of both logs, or a person has given up."""
        tp = TP(o.topic, o.partition)
        left_off = self.merged[parent].get(tp, o.from_offset)
        due = self._behind_skips(tp, o.from_offset, left_off)
        kept = o.from_offset > left_off and self.broker.may_begin(tp, o.from_offset, due)
        first = max(self.broker.cuts[tp][0], self.broker.kept_from(tp)) if tp in self.broker.cuts else o.from_offset
        if o.from_offset > first and not kept:
            of_older &= self.logs.get(parent, {}).get(tp, EITHER)
            if not of_older:
                raise Violation(
                    "S4",
                    f"cut {cut}: {tp} goes on at {o.from_offset}, and the log was cut at {self.broker.cuts[tp][0]}",
                )
        self.logs.setdefault(cut, {})[tp] = frozenset(of_older) if o.leader_epoch >= 0 else EITHER
