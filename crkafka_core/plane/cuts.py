"""Cuts: open, contribute, merge (SPEC C1-C7)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from crkafka_core.control import Cond, Reader, Tx
from crkafka_core.model import rows
from crkafka_core.model.errors import Conflict, CutOpen, Mismatch, NotOpen, NotRunning, NotSettled, Refused
from crkafka_core.model.offsets import TP, pack, partitions_in, unpack
from crkafka_core.model.phase import Phase
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import (
    Checkpoint,
    CheckpointStatus,
    ContributedOffset,
    Filler,
    MergedOffset,
    Region,
    ResetCause,
)
from crkafka_core.model.segment import ClosedSegment
from crkafka_core.model.segment_name import SegmentName
from crkafka_core.plane import (
    epochs,
    events,
    halting,
    handover,
    hosts,
    leases,
    limits,
    numbers,
    resets,
    roster,
    settling,
    starts,
)
from crkafka_core.plane.handover import Handover
from crkafka_core.protocol import merge as rules


def expects(reader: Reader, region: Region, member: str) -> bool:
    """Whether the open cut, if there is one, waits for this member."""
    return bool(region.open_cut) and reader.get(Filler, region.open_cut, member) is not None


def fills(reader: Reader, region: Region, member: rows.Member) -> bool:
    """Whether the number that is being filled is, by this incarnation, with exactly what it reports to hold (SPEC C8).

    A spare that came after the number was handed out holds nothing, and fills nothing.
    """
    row, held = reader.get(Filler, region.filling, member.name), unpack(member.assignment_json)
    if row is None:
        return not held
    return row.incarnation == member.incarnation and partitions_in(row.offsets_json) == held


def begin_fill(tx: Tx) -> None:
    """The resume hands out a number, to be filled by who holds what, from where the line stands (SPEC C8)."""
    region, known = tx.region(), starts.known(tx)
    due = starts.line_offsets(tx, region.epoch, region.head, known, starts.merged(tx, region.head))
    held = {(m.name, m.incarnation): unpack(m.assignment_json) for m in roster.live(tx)}
    ids = {tp.topic: initial.topic_id for tp, initial in known.items()}
    numbers.hand_out(
        tx,
        {who: {tp: due.get(tp, NO_START) for tp in tps} for who, tps in held.items()},
        {who: {tp.topic: ids[tp.topic] for tp in tps if tp in known} for who, tps in held.items()},
    )


def open_cut(
    tx: Tx,
    *,
    token: str,
    cause: str,
    lease: rows.Lease | None = None,
    if_new: bool = False,
    flow: bool = False,
) -> Checkpoint:
    """Open a cut of the number that is being filled: its fillers are expected (SPEC C2). The same token finds its own cut again.

    `if_new`: nobody needs a checkpoint if there is nothing new; then the head stays (SPEC V1).

    `flow`: the cut is a mark. The same fillers get the next number now, and go on with it as soon as each has taken its offsets (SPEC D5).

    With the driver's `lease` it is refused to one that has been taken over from while it slept (SPEC A6, fault 8).
    """
    region = tx.region()
    if lease is not None:
        leases.check(tx, lease)
    mine = tx.select(Checkpoint, ("token", "=", token))
    if mine:
        return mine[0]
    _check_may_open(tx, region)
    checkpoint = _open(tx, region, token=token, cause=cause, if_new=if_new)
    if flow:
        fillers = tx.select(Filler, ("checkpoint", "=", checkpoint.id))
        numbers.hand_on(tx, fillers, {f.member: dict.fromkeys(f.offsets, NO_START) for f in fillers})
    if not if_new:  # of one that falls due by itself it is told what it finds: an idle region fills no log
        events.log(tx, "cut opened", cause, checkpoint=checkpoint.id)
    return checkpoint


def _open(tx: Tx, region: Region, *, token: str, cause: str, if_new: bool) -> Checkpoint:
    now, there, ordinary = tx.now(), roster.live(tx), not region.handover_json
    checkpoint = Checkpoint(
        region=region.name,
        id=region.filling,
        parent=region.head,
        epoch=region.epoch,
        status=CheckpointStatus.OPEN,
        cause=cause,
        token=token,
        generation=rows.ANY_GENERATION if not ordinary or there[0].member_epochs else there[0].generation,
        opened_at=now,
        deadline=now + limits.of(region).drain_timeout if ordinary else handover.deadline(tx),
        members=tx.count(Filler, ("checkpoint", "=", region.filling)),
        cluster_id=region.cluster_id,
        if_new=if_new,
    )
    tx.add(checkpoint)
    tx.set_region(phase=Phase.CUTTING, phase_since=now, open_cut=checkpoint.id, opened=checkpoint.id)
    return checkpoint


def hand_over(tx: Tx, why: Handover) -> None:
    """A rebalance or a loss while records flow: merge what is submitted, then reset to the new head (SPEC X10).

    An ordinary cut that is open merges first. Without a live filler there is nothing to merge.
    """
    handover.begin(tx, why)
    if not tx.region().open_cut:
        _open_handover(tx)
    if tx.region().open_cut:
        finish(tx)


def _open_handover(tx: Tx) -> None:
    """The cut of the number that is being filled; no member goes on behind it."""
    region = tx.region()
    why = handover.current(region)
    assert why is not None
    if handover.live(tx, tx.select(Filler, ("checkpoint", "=", region.filling))):
        token = f"handover, number {region.filling} of epoch {region.epoch}"
        _open(tx, region, token=token, cause="handover", if_new=True)
        handover.opened(tx, why, region.filling)
    else:
        _reset(tx, why)


def _reset(tx: Tx, why: Handover) -> None:
    resets.begin(tx, why.cause, why.text, member=why.member, by=why.by)


def finish(tx: Tx) -> None:
    """Merge the open cut as soon as no contribution is waited for; past its deadline an ordinary one is aborted (SPEC D4, X10)."""
    row = tx.get(Checkpoint, tx.region().open_cut)
    assert row is not None
    missing, late = waits_for(tx, row.id), tx.now() > row.deadline
    if not missing or (late and tx.region().handover_json):
        merge(tx, row.id)
    elif late:
        why = f"cut {row.id} was not done by its deadline; {', '.join(missing)} did not contribute"
        resets.begin(tx, ResetCause.LATE, why, member=missing[0], by="the deadline")


def _check_may_open(reader: Reader, region: Region) -> None:
    """One cut at a time, and only of a region that runs with a settled group (SPEC C2)."""
    if region.open_cut:
        raise CutOpen(f"Cut {region.open_cut} of region {region.name} is open.", hint="Wait for it: it has a deadline.")
    if region.phase is not Phase.RUNNING:
        raise NotRunning(
            f"Region {region.name} is {region.phase}{': ' + region.stop_reason if region.stop_reason else ''}; a cut needs RUNNING.",
            hint=_next_step(reader, region),
        )
    reason = settling.unready(reader, region)
    if reason:
        nobody = hosts.missing(reader, region)
        hint = "" if nobody else "Wait; it settles by itself."
        raise NotSettled(f"Region {region.name} is not settled: {nobody or reason}.", hint=hint)


def _next_step(reader: Reader, region: Region) -> str:
    """For somebody who wants a cut of a region that does not run."""
    if region.phase is Phase.STOPPED:
        return "Mend the cause, then `crkafka start`."
    if not roster.live(reader):
        return f"No member is there: {hosts.RUNS_THEM}."
    return "`crkafka show` has what it waits for."


NO_START = -1
"""Of a partition whose start is not known: the region has dropped it, and its contribution is refused; or a mark is not merged yet."""


@dataclass(frozen=True)
class Part:
    """One member's contribution, as it comes (SPEC C1)."""

    checkpoint: int
    member: str
    incarnation: str
    epoch: int
    base: int
    generation: int
    members: tuple[str, ...]
    offsets: Mapping[TP, tuple[int, int, int]]
    """(from, to, rows) of every partition that the member holds."""
    topic_ids: Mapping[str, str]
    segments: Sequence[ClosedSegment]
    drain_ms: int = 0
    leader_epochs: Mapping[TP, int] = field(default_factory=dict)
    """Of the last record of each partition that gave any (SPEC S4)."""

    def digest(self) -> str:
        """Equal for the same contribution sent again; how long the drain took is not part of it."""
        parts = [
            self.checkpoint,
            self.member,
            self.incarnation,
            self.epoch,
            self.base,
            self.generation,
            sorted(self.members),
            sorted((tp.topic, tp.partition, *o) for tp, o in self.offsets.items()),
            sorted(self.topic_ids.items()),
            sorted((s.path, s.rows, s.bytes, s.hash, [span.stored() for span in s.spans]) for s in self.segments),
            sorted((tp.topic, tp.partition, epoch) for tp, epoch in self.leader_epochs.items()),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Contributed:
    """The contribution is stored."""

    checkpoint: int
    complete: bool
    """All expected members have contributed: whoever reads this may merge."""


def contribute(tx: Tx, part: Part) -> Contributed | Refused:
    """Store a contribution to the open cut, or refuse it (SPEC C2); what does not match aborts the cut."""
    region = tx.region()
    checkpoint = tx.get(Checkpoint, part.checkpoint)
    stored = tx.get(rows.Contribution, part.checkpoint, part.member)
    if stored is not None and stored.hash == part.digest():
        return Contributed(part.checkpoint, complete=complete(tx, part.checkpoint))
    if checkpoint is None or checkpoint.status is not CheckpointStatus.OPEN or region.open_cut != part.checkpoint:
        what = "unknown" if checkpoint is None else checkpoint.status.lower()
        return _refuse(
            tx,
            part,
            NotOpen(f"Checkpoint {part.checkpoint} of region {region.name} is {what}.", hint="Drop the contribution."),
        )
    roster.of(tx, part.member, part.incarnation)
    if (why := handover.current(region)) is not None and part.member in why.failed and stored is None:
        return _refuse(
            tx, part, NotOpen(f"{part.member} has failed in epoch {region.epoch}.", hint="Drop the contribution.")
        )
    if part.epoch != region.epoch:
        return _refuse(
            tx,
            part,
            NotOpen(f"The contribution is of epoch {part.epoch}, the region is at {region.epoch}.", hint="Drop it."),
        )
    fillers = tx.select(Filler, ("checkpoint", "=", part.checkpoint))
    wrong = _mismatch(region, checkpoint, fillers, part)
    if stored is not None:
        wrong = Conflict(f"{part.member} has contributed something else to checkpoint {part.checkpoint} before.")
    if wrong is not None:
        refused = _refuse(tx, part, wrong)
        resets.begin(tx, ResetCause.MISMATCH, str(wrong), member=part.member)
        return refused
    _store(tx, region.name, part)
    return Contributed(part.checkpoint, complete=complete(tx, part.checkpoint))


def _mismatch(region: Region, checkpoint: Checkpoint, fillers: Sequence[Filler], part: Part) -> Mismatch | None:
    mine = next((f for f in fillers if f.member == part.member), None)
    if mine is None or mine.incarnation != part.incarnation:
        return Mismatch(
            f"Checkpoint {checkpoint.id} expects no contribution of {part.member}, incarnation {part.incarnation}."
        )
    if mine.offsets.keys() != part.offsets.keys():
        return Mismatch(f"{part.member} contributes {pack(part.offsets)}; it fills {pack(mine.offsets)}.")
    for tp, due in mine.offsets.items():
        if part.offsets[tp][0] != due:
            left = f"checkpoint {checkpoint.parent} left it at {due}" if due != NO_START else "it has no stored start"
            return Mismatch(f"{part.member}: {tp} begins at {part.offsets[tp][0]}, but {left}.")
    # A spare may be in the next generation before the others hear of it: nothing of it can be another's.
    if part.offsets and part.generation != checkpoint.generation != rows.ANY_GENERATION:
        return Mismatch(f"{part.member} is in generation {part.generation}; the cut fixed {checkpoint.generation}.")
    if part.base != checkpoint.parent:
        return Mismatch(
            f"{part.member} started from {part.base}; the parent of checkpoint {checkpoint.id} is {checkpoint.parent}."
        )
    if set(part.members) != {f.member for f in fillers}:
        return Mismatch(
            f"{part.member} knows the members {sorted(part.members)}; the cut expects {sorted(f.member for f in fillers)}."
        )
    for segment in part.segments:
        if not _is_of(segment.path, region, part):
            return Mismatch(
                f"{part.member} names {segment.path}, which is not of incarnation {part.incarnation} in epoch {region.epoch}, "
                f"or not filled for checkpoint {part.checkpoint}."
            )
    if sum(s.rows for s in part.segments) != sum(o[2] for o in part.offsets.values()):
        return Mismatch(f"{part.member}: rows of its segments and of its offsets differ.")
    hole = rules.broken_spans(
        [(tp, o[0], o[1], o[2]) for tp, o in part.offsets.items()],
        [span for s in part.segments for span in s.spans],
    )
    return Mismatch(f"{part.member}: {hole}.") if hole else None


def _is_of(path: str, region: Region, part: Part) -> bool:
    """Whether a segment is of this region, epoch, incarnation and number, as its name says (SPEC C8)."""
    name, of = SegmentName.parse(path), (region.uid, region.epoch, part.incarnation, part.checkpoint)
    return name is not None and (name.uid, name.epoch, name.incarnation, name.number) == of


def _refuse(tx: Tx, part: Part, why: Refused) -> Refused:
    evidence = {
        "from": {str(tp): o[0] for tp, o in part.offsets.items()},
        "to": {str(tp): o[1] for tp, o in part.offsets.items()},
    }
    events.log(tx, "contribution refused", why.message, checkpoint=part.checkpoint, member=part.member, data=evidence)
    return why


def _store(tx: Tx, region: str, part: Part) -> None:
    tx.add(
        rows.Contribution(
            region=region,
            checkpoint=part.checkpoint,
            member=part.member,
            incarnation=part.incarnation,
            epoch=part.epoch,
            base=part.base,
            generation=part.generation,
            members_json=json.dumps(sorted(part.members)),
            topic_ids_json=json.dumps(dict(part.topic_ids)),
            rows=sum(s.rows for s in part.segments),
            bytes=sum(s.bytes for s in part.segments),
            drain_ms=part.drain_ms,
            hash=part.digest(),
            at=tx.now(),
        )
    )
    where = (region, part.checkpoint, part.member)
    offsets = part.offsets.items()
    tx.add(*(ContributedOffset(*where, *tp, *o, part.leader_epochs.get(tp, -1)) for tp, o in offsets))
    tx.add(*(_segment(region, part, s) for s in part.segments))
    tx.set_region()


def _segment(region: str, part: Part, named: ClosedSegment) -> rows.Segment:
    return rows.Segment(
        region=region,
        path=named.path,
        checkpoint=part.checkpoint,
        member=part.member,
        incarnation=part.incarnation,
        epoch=part.epoch,
        rows=named.rows,
        bytes=named.bytes,
        hash=named.hash,
        spans_json=json.dumps([span.stored() for span in named.spans], ensure_ascii=False),
    )


def parts(reader: Reader, checkpoint: int) -> tuple[list[Filler], list[rows.Contribution]]:
    """Who fills a number, and who has contributed to its cut."""
    where: Cond = ("checkpoint", "=", checkpoint)
    return reader.select(Filler, where), reader.select(rows.Contribution, where)


def waits_for(reader: Reader, checkpoint: int) -> list[str]:
    """Names of the members whose contribution is awaited: in a handover only of those that can still make one."""
    fillers, contributions = parts(reader, checkpoint)
    missing = rules.wrong_sets(fillers, contributions)[0]
    if missing and reader.region().handover_json:
        missing &= handover.live(reader, fillers)
    return sorted(missing)


def complete(reader: Reader, checkpoint: int) -> bool:
    return not waits_for(reader, checkpoint)


def hand_in(tx: Tx, part: Part) -> Contributed | Refused:
    """Contribute; who is last merges at once, so that nobody waits for another transaction (SPEC G7).

    What is wrong with the merge aborts the cut, and the evidence stays: the contribution has arrived all the same.
    """
    stored = contribute(tx, part)
    if isinstance(stored, Contributed) and stored.complete:
        merge(tx, part.checkpoint)
    return stored


@dataclass(frozen=True)
class _Gathered:
    """The parts of an open cut that is to merge, and the members that are left out."""

    row: Checkpoint
    why: Handover | None
    fillers: Sequence[Filler]
    contributions: Sequence[rows.Contribution]
    offsets: Sequence[ContributedOffset]
    gone: Sequence[Filler]
    strange: Collection[str]
    """Incarnations that the cut did not expect."""

    @property
    def without(self) -> list[str]:
        """Names of the members that are left out."""
        return sorted(f.member for f in self.gone)


def merge(tx: Tx, checkpoint: int) -> Checkpoint | Refused:
    """Merge the contributions if exactly the expected members are in; the region goes on from there (SPEC C3).

    A merge that is incomplete is refused and stays open; one that is wrong aborts the cut and keeps the evidence. A handover waits
    for no member that is lost or late (SPEC X10).
    """
    region, row = tx.region(), tx.get(Checkpoint, checkpoint)
    if row is not None and (
        row.status is CheckpointStatus.EMPTY or (row.merged_at and row.status is not CheckpointStatus.OPEN)
    ):
        return row
    if row is None or row.status is not CheckpointStatus.OPEN or region.open_cut != checkpoint:
        what = "unknown" if row is None else row.status.lower()
        raise NotOpen(f"Checkpoint {checkpoint} of region {region.name} is {what}.")
    cut = _gather(tx, region, row)
    if cut.why is not None and not cut.contributions:
        _reset(tx, cut.why)
        return NotOpen(f"Checkpoint {checkpoint} of region {region.name} has no contribution: it is aborted.")
    ids = _topic_ids(tx, cut)
    parent = starts.merged(tx, row.parent) if row.parent else {}
    if wrong := _wrong(cut, ids):
        return _refuse_merge(tx, region, checkpoint, wrong, cut.offsets)
    stays = handover.carried(cut.gone, checkpoint, ids)
    merged = _merged_map(region, checkpoint, [*cut.offsets, *stays], ids, parent)
    handed_over = cut.why is not None and cut.why.cut == checkpoint
    if row.if_new and (row.parent or handed_over) and _nothing_new(merged, parent):
        return _close_empty(tx, region, cut)
    tx.add(*merged)
    done = _close(tx, cut, merged)
    _go_on(tx, region, cut, head=row.id, why=f"stopped after cut {row.id}")
    return done


def _gather(tx: Tx, region: Region, row: Checkpoint) -> _Gathered:
    """Read the parts of the cut; refused while a contribution is awaited."""
    why, (fillers, contributions) = handover.current(region), parts(tx, row.id)
    missing, strange = rules.wrong_sets(fillers, contributions)
    waits = waits_for(tx, row.id) if missing and not strange else []
    if waits and (why is None or tx.now() <= row.deadline):
        raise NotSettled(f"Checkpoint {row.id} still waits for {', '.join(waits)}.", hint="It has a deadline.")
    offsets = tx.select(ContributedOffset, ("checkpoint", "=", row.id))
    gone = [f for f in fillers if f.member in missing]
    return _Gathered(row, why, fillers, contributions, offsets, gone, strange)


def _topic_ids(reader: Reader, cut: _Gathered) -> dict[TP, str]:
    """The known partitions, with the id of their topic; in a handover as they were known when its members were placed (SPEC X10)."""
    if cut.why is None:
        return {tp: initial.topic_id for tp, initial in starts.known(reader).items()}
    placed = [(f.topic_ids, f.offsets) for f in cut.fillers]
    return {tp: ids[tp.topic] for ids, offsets in placed for tp, due in offsets.items() if due != NO_START}


def _wrong(cut: _Gathered, known: Mapping[TP, str]) -> str:
    """What is wrong with the merge, in words. A handover covers what was fixed, and waits for no partition beside it."""
    if cut.strange:
        return f"contributions of incarnations that the cut did not expect: {', '.join(sorted(cut.strange))}"
    due = known if cut.why is None else ()
    broken = rules.broken(cut.fillers, cut.offsets, cut.row.parent, due, known)
    return broken or _wrong_topics(known, cut.contributions)


def _refuse_merge(
    tx: Tx, region: Region, checkpoint: int, wrong: str, offsets: Sequence[ContributedOffset]
) -> Mismatch:
    """Abort the cut; what was contributed stays in the event log."""
    error = Mismatch(
        f"Checkpoint {checkpoint} of region {region.name} cannot be merged: {wrong}.", hint="The cut is aborted."
    )
    evidence = {"offsets": [[o.member, o.topic, o.partition, o.from_offset, o.to_offset] for o in offsets[:200]]}
    events.log(tx, "merge refused", str(error), checkpoint=checkpoint, data=evidence)
    resets.begin(tx, ResetCause.MISMATCH, str(error))
    return error


def _merged_map(
    region: Region,
    checkpoint: int,
    offsets: Sequence[ContributedOffset],
    ids: Mapping[TP, str],
    parent: Mapping[TP, MergedOffset],
) -> list[MergedOffset]:
    """What was contributed, and what the parent has of partitions that nobody holds (SPEC C3)."""
    contributed = [(TP(o.topic, o.partition), o) for o in offsets]
    same = {tp: m for tp, m in parent.items() if ids.get(tp) == m.topic_id}
    merged = [
        MergedOffset(
            region=region.name,
            checkpoint=checkpoint,
            topic=o.topic,
            partition=o.partition,
            topic_id=ids[tp],
            from_offset=o.from_offset,
            to_offset=o.to_offset,
            rows=o.rows,
            member=o.member,
            leader_epoch=_leader_epoch(o, same.get(tp)),
        )
        for tp, o in contributed
    ]
    held = {tp for tp, _ in contributed}
    carried = [
        replace(m, checkpoint=checkpoint, from_offset=m.to_offset, rows=0, member="")
        for tp, m in parent.items()
        if tp not in held
    ]
    return merged + carried


def _leader_epoch(o: ContributedOffset, before: MergedOffset | None) -> int:
    """Where nothing came since the parent, the parent's still holds."""
    same = before is not None and o.leader_epoch < 0 and o.to_offset == before.to_offset and not o.rows
    return before.leader_epoch if same and before is not None else o.leader_epoch


def _wrong_topics(known: Mapping[TP, str], contributions: Sequence[rows.Contribution]) -> str:
    ids = {tp.topic: topic_id for tp, topic_id in known.items()}
    for c in contributions:
        for topic, topic_id in json.loads(c.topic_ids_json).items():
            if ids.get(topic, topic_id) != topic_id:
                return f"{c.member} read topic {topic} with id {topic_id}; the group knows it as {ids[topic]}"
    return ""


def _close(tx: Tx, cut: _Gathered, merged: Sequence[MergedOffset]) -> Checkpoint:
    row, contributions, without = cut.row, cut.contributions, cut.without
    done = replace(
        row,
        status=CheckpointStatus.MERGED,
        merged_at=tx.now(),
        rows=sum(c.rows for c in contributions),
        bytes=sum(c.bytes for c in contributions),
        drain_ms=max((c.drain_ms for c in contributions), default=0),
        hash=rules.digest({TP(m.topic, m.partition): m.to_offset for m in merged}),
        segments=tx.count(rows.Segment, ("checkpoint", "=", row.id)),
        members=len(contributions),
        without_json=json.dumps(without),
    )
    tx.put(done)
    names = {c.member for c in contributions}
    tx.put(*(replace(m, base=row.id) for m in roster.all_of(tx) if m.name in names))
    text = f"{plural(done.rows, 'row')} of {plural(done.members, 'member')}"
    events.log(tx, "merged", f"{text}, without {', '.join(without)}" if without else text, checkpoint=row.id)
    return done


def _go_on(tx: Tx, region: Region, cut: _Gathered, *, head: int, why: str) -> None:
    """The cut is completed: what is counted *without a cut in between* begins anew (SPEC X6), but by a handover.

    The same members go on with the next number, from the offsets of this cut (SPEC C8); none is handed out where they stop. After a
    mark they have the number already, and a stop needs another cut (SPEC D5). In a handover the next number has its cut at once, of
    the members that are in this one; where no member goes on, the region is reset to the new head (SPEC X10).
    """
    now, row = tx.now(), cut.row
    tx.set_region(phase=Phase.RUNNING, phase_since=now, open_cut=0, head=head)
    if cut.why is None or cut.why.cut != row.id:
        if cut.why is None or not cut.gone:
            tx.set_region(last_cut_at=now, consecutive=0, failing=0, proven_epoch=region.epoch)
        else:
            handover.merged_without(tx, cut.why, row.id)
    marked, left_out = region.filling > row.id, {f.member for f in cut.gone}
    if not marked and cut.why is not None:
        _reset(tx, cut.why)
    if not marked and tx.region().stopping:
        there = {m.name for m in roster.live(tx)} if cut.why is not None else set()
        if not left_out and there <= {f.member for f in cut.fillers}:
            halting.idle(tx, why)
    if not marked and (cut.why is not None or region.stopping):
        return
    ends: dict[str, dict[TP, int]] = {f.member: {} for f in cut.fillers if f.member not in left_out}
    for o in cut.offsets:
        ends[o.member][TP(o.topic, o.partition)] = o.to_offset
    if not marked:
        numbers.hand_on(tx, cut.fillers, ends)
        return
    numbers.begin(tx, ends)
    if cut.why is not None:
        _open_handover(tx)


def _nothing_new(merged: Sequence[MergedOffset], parent: Mapping[TP, MergedOffset]) -> bool:
    """Whether the merge is its parent once more: no rows, no partition, no topic and no offset that it has not. At birth: no rows."""
    if not parent:
        return all(m.to_offset == m.from_offset for m in merged)
    return len(merged) == len(parent) and all(
        (old := parent.get(TP(m.topic, m.partition))) is not None
        and (m.rows, m.to_offset, m.topic_id) == (0, old.to_offset, old.topic_id)
        for m in merged
    )


def _close_empty(tx: Tx, region: Region, cut: _Gathered) -> Checkpoint:
    """The region goes on from the head that it has. The last such cut is remembered, for who has opened it."""
    row, note = cut.row, f"nothing new since checkpoint {cut.row.parent}"
    epochs.drop_parts(tx, row.id)
    tx.delete(Checkpoint, ("status", "=", CheckpointStatus.EMPTY))
    if cut.without:
        note += f", without {', '.join(cut.without)}"
        events.log(tx, "left out", note, checkpoint=row.id)
    done = replace(row, status=CheckpointStatus.EMPTY, note=note, without_json=json.dumps(cut.without))
    tx.put(done)
    _go_on(tx, region, cut, head=region.head, why=f"stopped after cut {row.id}, which had nothing new")
    return done


def give_up(tx: Tx, checkpoint: int, *, member: str, incarnation: str, why: str, cause: ResetCause) -> None:
    """A member cannot do its part of the open cut: the cut is aborted (SPEC D2). Void when the cut is over."""
    if checkpoint and tx.region().open_cut == checkpoint:
        roster.of(tx, member, incarnation)
        failed(tx, cause, why, member=member, epoch=tx.region().epoch)


def failed(tx: Tx, cause: ResetCause, text: str, *, member: str, epoch: int) -> int:
    """A member's failure asks for a reset; the epoch after it. A handover goes on without the member: it resets anyway (SPEC X10)."""
    region = tx.region()
    why = handover.current(region)
    if why is None or region.epoch != epoch:
        return resets.failed(tx, cause, text, member=member, epoch=epoch)
    go_without(tx, member, text)
    return tx.region().epoch


def go_without(tx: Tx, member: str, text: str) -> None:
    """The handover, if there is one, waits no more for a member that cannot contribute in this epoch."""
    why = handover.current(tx.region())
    if why is not None:
        handover.fails(tx, why, member, text)
        finish(tx)
