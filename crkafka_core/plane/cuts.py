"""Cuts: who fills a number, when a cut is due, and how one opens (SPEC C2, C8, V1-V3)."""

from __future__ import annotations

import json

from crkafka_core.control import Reader, Tx
from crkafka_core.model import limits, rows
from crkafka_core.model.errors import CutOpen, NotRunning, NotSettled, Stale
from crkafka_core.model.offsets import pack_offsets, partitions_in, unpack
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Filler, Region
from crkafka_core.plane import events, hosts, leases, numbers, roster, settling, starts

NO_START = -1
"""Offset of a partition whose start is not known: the region dropped it, and refuses its contribution; or a mark is not merged yet."""
AFTER_RESUME = 1.0
"""Seconds after a resume at which an overdue cut is due (SPEC V1)."""


def fills(reader: Reader, region: Region, member: rows.Member) -> bool:
    """Whether this incarnation fills the number of now with exactly the partitions that it reports (SPEC C8). A spare that came after the
    number was handed out holds nothing, and fills nothing."""
    row, held = reader.get(Filler, region.filling, member.name), unpack(member.assignment_json)
    if row is None:
        return not held
    return row.incarnation == member.incarnation and partitions_in(row.offsets_json) == held


def begin_fill(tx: Tx) -> None:
    """Hand out a number at the resume: each live member fills what it holds, from where the line stands (SPEC C8)."""
    region, known = tx.region(), starts.known(tx)
    due = starts.line_offsets(tx, region.epoch, region.head, known, starts.merged(tx, region.head))
    fillers = []
    for m in roster.live(tx):
        held = unpack(m.assignment_json)
        offsets = pack_offsets({tp: due.get(tp, NO_START) for tp in held})
        ids = json.dumps({tp.topic: known[tp].topic_id for tp in held if tp in known}, ensure_ascii=False)
        fillers.append(Filler(region.name, 0, m.name, m.incarnation, offsets, ids))
    numbers.hand_out(tx, fillers)


def ask(tx: Tx, *, member: str, incarnation: str, epoch: int, head: int) -> None:
    """A member has submitted its count and asks for a cut; refused for another epoch or head than the region's (SPEC V2)."""
    roster.of(tx, member, incarnation)
    region = tx.region()
    if (region.epoch, region.head) != (epoch, head):
        raise Stale(f"{member} asked for a cut in epoch {epoch} from head {head}; the region is past it.")
    if (region.asked_epoch, region.asked_head) != (epoch, head):
        tx.set_region(asked_epoch=epoch, asked_head=head, asked_by=member)
        events.log(tx, events.ASKED, "trigger count reached", member=member)


def due_at(region: Region, *, period: float | None, counted: bool) -> float | None:
    """Database time at which the next cut is due, 0.0 for now, None for never; only a RUNNING region can be cut."""
    if region.phase is not Phase.RUNNING:
        return None
    if counted and (region.asked_epoch, region.asked_head) == (region.epoch, region.head):
        return 0.0
    if period is None:
        return None
    due = region.last_cut_at + period
    return due if region.resumed_at <= region.last_cut_at else max(due, region.resumed_at + AFTER_RESUME)


def why_due(reader: Reader, region: Region, *, period: float | None, counted: bool) -> str:
    at = due_at(region, period=period, counted=counted)
    if at is None or at > reader.now():
        return ""
    return f"asked by {region.asked_by}" if at == 0.0 else f"every {period:g} s"


def open_cut(
    tx: Tx, *, token: str, cause: str, lease: rows.Lease | None = None, if_new: bool = False, flow: bool = False
) -> Checkpoint:
    """Open a cut of the number that is being filled, and expect its fillers (SPEC C2): one at a time, and only of a region that runs with a
    settled group. The same token finds its own cut again.

    `if_new`: with nothing new it becomes no checkpoint, and the head stays (SPEC V1). `flow`: the cut is a mark; the same fillers get the
    next number now, and go on with it as soon as each has taken its offsets (SPEC D5). `lease`: of the driver; refused once another driver
    has taken it over (SPEC A6, fault 8).
    """
    region = tx.region()
    if lease is not None:
        leases.check(tx, lease)
    mine = tx.select(Checkpoint, ("token", "=", token))
    if mine:
        return mine[0]
    if region.open_cut:
        raise CutOpen(f"Cut {region.open_cut} of region {region.name} is open.", hint="Wait for it: it has a deadline.")
    if region.phase is not Phase.RUNNING:
        next_step = "`crkafka show` has what it waits for."
        if region.phase is Phase.STOPPED:
            next_step = "Mend the cause, then `crkafka start`."
        elif not roster.live(tx):
            next_step = f"No member is there: {hosts.RUNS_THEM}."
        why = f"{region.phase}{': ' + region.stop_reason if region.stop_reason else ''}"
        raise NotRunning(f"Region {region.name} is {why}; a cut needs RUNNING.", hint=next_step)
    if reason := settling.unready(tx, region):
        unhosted = hosts.missing(tx, region)
        hint = "" if unhosted else "Wait; it settles by itself."
        raise NotSettled(f"Region {region.name} is not settled: {unhosted or reason}.", hint=hint)
    checkpoint = begin(tx, region, token=token, cause=cause, if_new=if_new)
    if flow:
        fillers = tx.select(Filler, ("checkpoint", "=", checkpoint.id))
        numbers.hand_on(tx, fillers, {f.member: dict.fromkeys(f.offsets, NO_START) for f in fillers})
    if not if_new:  # one that falls due by itself is logged by its merge: an idle region fills no log
        events.log(tx, "cut opened", cause, checkpoint=checkpoint.id)
    return checkpoint


def begin(tx: Tx, region: Region, *, token: str, cause: str, if_new: bool) -> Checkpoint:
    """The row of an open cut, also of a handover's own, which compares no generation and has a deadline of its own."""
    now, live, ordinary, limit = tx.now(), roster.live(tx), not region.handover_json, limits.of(region)
    checkpoint = Checkpoint(
        region=region.name,
        id=region.filling,
        parent=region.head,
        epoch=region.epoch,
        status=CheckpointStatus.OPEN,
        cause=cause,
        token=token,
        generation=rows.ANY_GENERATION if not ordinary or live[0].member_epochs else live[0].generation,
        opened_at=now,
        deadline=now + (limit.drain_timeout if ordinary else limit.handover_timeout),
        members=tx.count(Filler, ("checkpoint", "=", region.filling)),
        cluster_id=region.cluster_id,
        if_new=if_new,
    )
    tx.add(checkpoint)
    tx.set_region(phase=Phase.CUTTING, phase_since=now, open_cut=checkpoint.id, opened=checkpoint.id)
    return checkpoint
