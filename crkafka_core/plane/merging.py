"""The merge: an open cut becomes a checkpoint; a handover's resets the region to it (SPEC C3-C6, D4, X10)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from crkafka_core.control import Reader, Tx
from crkafka_core.model.errors import Mismatch, Refused
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import (
    Checkpoint,
    CheckpointStatus,
    ContributedOffset,
    Contribution,
    Filler,
    MergedOffset,
    Region,
    ResetCause,
    Segment,
)
from crkafka_core.plane import cuts, epochs, events, handover, numbers, resets, roster, starts
from crkafka_core.plane.contributions import Part, contribute
from crkafka_core.plane.handover import Handover
from crkafka_core.protocol import merge as rules


def hand_in(tx: Tx, part: Part) -> Refused | None:
    """Contribute; the last contribution merges in the same transaction (SPEC G7). What is wrong with the merge aborts the cut, and the
    evidence stays: the contribution itself is accepted."""
    refused = contribute(tx, part)
    if tx.region().open_cut == part.checkpoint:
        cut = _gather(tx)
        if not cut.waits:
            _merge(tx, cut)
    return refused


@dataclass(frozen=True)
class _Cut:
    """The parts of the open cut."""

    row: Checkpoint
    why: Handover | None
    fillers: Sequence[Filler]
    contributions: Sequence[Contribution]
    gone: Sequence[Filler]
    """Those that have not contributed: a merge leaves them out."""
    waits: Sequence[str]
    """Names of the members whose contribution is awaited: in a handover only of those that can still make one."""
    strange: Sequence[str]
    """Members of which another incarnation has contributed than the cut expects."""

    @property
    def without(self) -> list[str]:
        """Names of the members that are left out."""
        return sorted(f.member for f in self.gone)


def _gather(reader: Reader) -> _Cut:
    region = reader.region()
    row, why = reader.get(Checkpoint, region.open_cut), handover.current(region)
    assert row is not None
    fillers = reader.select(Filler, ("checkpoint", "=", row.id))
    contributions = reader.select(Contribution, ("checkpoint", "=", row.id))
    missing, strange = rules.wrong_sets(fillers, contributions)
    waits = missing & handover.live(reader, fillers) if missing and why is not None else missing
    gone = [f for f in fillers if f.member in missing]
    return _Cut(row, why, fillers, contributions, gone, () if strange else sorted(waits), sorted(strange))


def waits_for(reader: Reader) -> Sequence[str]:
    return _gather(reader).waits


def finish(tx: Tx) -> None:
    """Merge the open cut as soon as no contribution is awaited; past its deadline an ordinary one is aborted (SPEC D4, X10)."""
    cut = _gather(tx)
    late = tx.now() > cut.row.deadline
    if not cut.waits or (late and cut.why is not None):
        _merge(tx, cut)
    elif late:
        why = f"cut {cut.row.id} was not done by its deadline; {', '.join(cut.waits)} did not contribute"
        resets.begin(tx, ResetCause.LATE, why, member=cut.waits[0], by="the deadline")


def _merge(tx: Tx, cut: _Cut) -> None:
    region, row = tx.region(), cut.row
    if cut.why is not None and not cut.contributions:
        _reset(tx, cut.why)
        return
    offsets = tx.select(ContributedOffset, ("checkpoint", "=", row.id))
    if cut.why is None:
        ids = {tp: initial.topic_id for tp, initial in starts.known(tx).items()}
        due: Collection[TP] = ids
    else:  # topics as they were known when its members were placed; it waits for no partition beside what was fixed (SPEC X10)
        placed, due = [(f.topic_ids, f.offsets) for f in cut.fillers], ()
        ids = {
            tp: topics[tp.topic] for topics, starts_at in placed for tp, at in starts_at.items() if at != cuts.NO_START
        }
    parent = starts.merged(tx, row.parent) if row.parent else {}
    wrong = rules.broken(cut.fillers, offsets, row.parent, due, ids) or _wrong_topics(ids, cut.contributions)
    if cut.strange:
        wrong = f"contributions of incarnations that the cut did not expect: {', '.join(cut.strange)}"
    if wrong:  # the cut is aborted; what was contributed stays in the event log
        text = str(
            Mismatch(
                f"Checkpoint {row.id} of region {region.name} cannot be merged: {wrong}.", hint="The cut is aborted."
            )
        )
        evidence = {"offsets": [[o.member, o.topic, o.partition, o.from_offset, o.to_offset] for o in offsets[:200]]}
        events.log(tx, "merge refused", text, checkpoint=row.id, data=evidence)
        resets.begin(tx, ResetCause.MISMATCH, text)
        return
    stays = handover.carried(cut.gone, row.id, ids)
    merged = _merged_map(region, row.id, [*offsets, *stays], ids, parent)
    handed_over = cut.why is not None and cut.why.cut == row.id
    if row.if_new and (row.parent or handed_over) and _nothing_new(merged, parent):
        _close_empty(tx, cut)
        _go_on(tx, cut, offsets, head=row.parent, why=f"stopped after cut {row.id}, which had nothing new")
    else:
        tx.add(*merged)
        _close(tx, cut, merged)
        _go_on(tx, cut, offsets, head=row.id, why=f"stopped after cut {row.id}")


def _wrong_topics(known: Mapping[TP, str], contributions: Sequence[Contribution]) -> str:
    ids = {tp.topic: topic_id for tp, topic_id in known.items()}
    read = (rules.wrong_topic(c.member, json.loads(c.topic_ids_json), ids) for c in contributions)
    return next(filter(None, read), "")


def _merged_map(
    region: Region,
    checkpoint: int,
    offsets: Sequence[ContributedOffset],
    ids: Mapping[TP, str],
    parent: Mapping[TP, MergedOffset],
) -> list[MergedOffset]:
    """What was contributed, and the parent's offsets of partitions without a holder (SPEC C3)."""
    merged = []
    for o in offsets:
        tp, epoch = TP(o.topic, o.partition), o.leader_epoch
        before = parent.get(tp)
        if epoch < 0 and before and (before.topic_id, before.to_offset, 0) == (ids[tp], o.to_offset, o.rows):
            epoch = before.leader_epoch  # nothing came since the parent
        ends = (o.from_offset, o.to_offset, o.rows)
        merged.append(MergedOffset(region.name, checkpoint, *tp, ids[tp], *ends, o.member, epoch))
    held = {TP(o.topic, o.partition) for o in offsets}
    for tp, m in parent.items():
        if tp not in held:
            merged.append(replace(m, checkpoint=checkpoint, from_offset=m.to_offset, rows=0, member=""))
    return merged


def _nothing_new(merged: Sequence[MergedOffset], parent: Mapping[TP, MergedOffset]) -> bool:
    """Whether the merge is its parent once more: no rows, no partition, no topic and no offset that it has not. At birth: no rows."""
    if not parent:
        return all(m.to_offset == m.from_offset for m in merged)
    return len(merged) == len(parent) and all(
        (old := parent.get(TP(m.topic, m.partition))) is not None
        and (m.rows, m.to_offset, m.topic_id) == (0, old.to_offset, old.topic_id)
        for m in merged
    )


def _close(tx: Tx, cut: _Cut, merged: Sequence[MergedOffset]) -> None:
    row, contributions, without = cut.row, cut.contributions, cut.without
    done = replace(
        row,
        status=CheckpointStatus.MERGED,
        merged_at=tx.now(),
        rows=sum(c.rows for c in contributions),
        bytes=sum(c.bytes for c in contributions),
        drain_ms=max((c.drain_ms for c in contributions), default=0),
        hash=rules.digest({TP(m.topic, m.partition): m.to_offset for m in merged}),
        segments=tx.count(Segment, ("checkpoint", "=", row.id)),
        members=len(contributions),
        without_json=json.dumps(without),
    )
    tx.put(done)
    names = {c.member for c in contributions}
    tx.put(*(replace(m, base=row.id) for m in roster.all_of(tx) if m.name in names))
    text = f"{plural(done.rows, 'row')} of {plural(done.members, 'member')}"
    events.log(tx, "merged", f"{text}, without {', '.join(without)}" if without else text, checkpoint=row.id)


def _close_empty(tx: Tx, cut: _Cut) -> None:
    """The region goes on from the head that it has. The last such cut is kept, for its opener."""
    row, note = cut.row, f"nothing new since checkpoint {cut.row.parent}"
    epochs.drop_parts(tx, row.id)
    tx.delete(Checkpoint, ("status", "=", CheckpointStatus.EMPTY))
    if cut.without:
        note += f", without {', '.join(cut.without)}"
        events.log(tx, "left out", note, checkpoint=row.id)
    tx.put(replace(row, status=CheckpointStatus.EMPTY, note=note, without_json=json.dumps(cut.without)))


def _go_on(tx: Tx, cut: _Cut, offsets: Sequence[ContributedOffset], *, head: int, why: str) -> None:
    """The cut is completed: what is counted *without a cut in between* begins again (SPEC X6), but by a handover.

    The same members go on with the next number, from the offsets of this cut (SPEC C8); none is handed out where they stop. After a
    mark they have the number already, and a stop needs another cut (SPEC D5). In a handover the next number has its cut at once, of
    the members that are in this one; where no member goes on, the region is reset to the new head (SPEC X10).
    """
    now, row, region, left_out = tx.now(), cut.row, tx.region(), set(cut.without)
    tx.set_region(phase=Phase.RUNNING, phase_since=now, open_cut=0, head=head)
    if cut.why is not None and cut.why.cut != row.id and cut.gone:
        handover.note(tx, replace(cut.why, lacking=row.id))
    elif cut.why is None or cut.why.cut != row.id:
        tx.set_region(last_cut_at=now, consecutive=0, failing=0, proven_epoch=region.epoch)
    ends: dict[str, dict[TP, int]] = {f.member: {} for f in cut.fillers if f.member not in left_out}
    for o in offsets:
        ends[o.member][TP(o.topic, o.partition)] = o.to_offset
    if region.filling > row.id:
        numbers.begin(tx, ends)
        if cut.why is not None:
            _open_handover(tx)
        return
    if cut.why is not None:
        _reset(tx, cut.why)
    elif not region.stopping:
        numbers.hand_on(tx, cut.fillers, ends)
    if tx.region().stopping:
        live = {m.name for m in roster.live(tx)} if cut.why is not None else set()
        if not left_out and live <= {f.member for f in cut.fillers}:
            epochs.idle(tx, why)


def hand_over(tx: Tx, why: Handover) -> None:
    """A rebalance or a loss while records flow: merge what is submitted, then reset to the new head (SPEC X10). An ordinary cut that is
    open merges first. Without a live filler there is nothing to merge."""
    handover.begin(tx, why)
    if not tx.region().open_cut:
        _open_handover(tx)
    if tx.region().open_cut:
        finish(tx)


def _open_handover(tx: Tx) -> None:
    """The cut of the number that is being filled; no member goes on behind it. Without a live filler it is a reset."""
    region = tx.region()
    why, number = handover.current(region), region.filling
    assert why is not None
    if not handover.live(tx, tx.select(Filler, ("checkpoint", "=", number))):
        _reset(tx, why)
        return
    token = f"handover, number {number} of epoch {region.epoch}"
    cuts.begin(tx, region, token=token, cause="handover", if_new=True)
    handover.note(tx, replace(why, cut=number))


def _reset(tx: Tx, why: Handover) -> None:
    resets.begin(tx, why.cause, why.text, member=why.member, by=why.by)


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
