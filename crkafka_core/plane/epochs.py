"""Epochs, raised by every reset and abort: members come to rest, or the region is STOPPED or IDLE; fences of a rewind (SPEC D4, G9, X4)."""

from __future__ import annotations

from dataclasses import replace

from crkafka_core.control import Reader, Tx
from crkafka_core.model.phase import FLOWING, UNSETTLED, Phase
from crkafka_core.model.rows import PARTS, Checkpoint, CheckpointStatus, Contribution, Region, Reset, ResetCause, Table
from crkafka_core.plane import events, handover, numbers


def place(head: int) -> str:
    return f"checkpoint {head}" if head else "initial state"


def raise_epoch(tx: Tx, cause: ResetCause, text: str, *, by: str = "", member: str = "", token: str = "") -> Region:
    """The next epoch; an open cut is aborted by it."""
    text = events.kept(text)
    aborted, head = tx.region().open_cut, tx.region().head
    _next(tx, cause, text, by=by, member=member, token=token)
    if aborted:
        row = tx.get(Checkpoint, aborted)
        assert row is not None
        tx.put(replace(row, status=CheckpointStatus.ABORTED, note=text))
        data = {"contributed": tx.column(Contribution, "member", ("checkpoint", "=", aborted))}
        drop_parts(tx, aborted)
        events.log(tx, "abort", text, checkpoint=aborted, member=member, by=by, data=data)
    events.log(tx, "reset", text, member=member, by=by, checkpoint=head, data={"cause": cause, "token": token})
    return tx.region()


def start_over(tx: Tx, cause: ResetCause, text: str, *, by: str, above: int = 0) -> Region:
    """Start the region for a person, in an epoch after `above`: counts and budgets restart (SPEC X6, G10)."""
    region = _next(tx, cause, text, by=by, above=above)
    tx.set_region(consecutive=0, failing=0, started_epoch=region.epoch, proven_epoch=region.epoch)
    rest(tx, text)
    events.log(tx, "start", by=by)
    return tx.region()


def _next(
    tx: Tx, cause: ResetCause, text: str, *, by: str, member: str = "", token: str = "", above: int = 0
) -> Region:
    region = tx.region()
    why = handover.current(region)
    begun = Reset(
        *(region.name, max(region.epoch, above) + 1, tx.now(), cause),
        text=text,
        member=member,
        by=by,
        token=token,
        target=region.head,
        aborted=region.open_cut,
        lacking=why.lacking if why is not None else 0,
        filling=region.filling,
        opened=region.opened,
        ran=max(0.0, tx.now() - region.resumed_at) if region.phase in FLOWING else 0.0,
    )
    tx.add(begun)
    numbers.leave_behind(tx)
    return tx.set_region(epoch=begun.epoch, open_cut=0, handover_json="", settled_at=0.0)


def drop_parts(tx: Tx, checkpoint: int) -> None:
    """Of a cut that became no checkpoint, or one that is retired: nothing names its segments any more."""
    for part in PARTS:
        tx.delete(part, ("checkpoint", "=", checkpoint))


def rewind(tx: Tx, target: int, cause: str) -> None:
    """Make `target` the head: those after it are superseded, and every declared table has to commit a fence (SPEC X4). A table to which no
    commit was ever permitted has no rows to remove, and no late commit to refuse: it goes back at once."""
    region = tx.region()
    for checkpoint in tx.line(region.head, after=target):
        row = tx.get(Checkpoint, checkpoint)
        assert row is not None
        tx.put(replace(row, status=CheckpointStatus.SUPERSEDED, note=cause))
    for table in tx.select(Table):
        table = replace(table, rewind_epoch=region.epoch + 1)
        if not table.commits:
            table = replace(table, fenced_epoch=table.rewind_epoch, acknowledged=min(table.acknowledged, target))
        tx.put(table)
    numbers.bury(tx, target)
    events.log(tx, "rewind", f"head {region.head} → {target}: {cause}", checkpoint=target)
    tx.set_region(head=target)


def rest(tx: Tx, cause: str, wait: float = 0.0) -> None:
    """Enter the phase in which members come to rest."""
    now = tx.now()
    tx.set_region(
        phase=_resting(tx),
        phase_since=now,
        reset_cause=cause,
        reset_at=now,
        settled_at=0.0,
        not_before=now + wait if wait else 0.0,
        stop_reason="",
        stop_member="",
    )


def _resting(reader: Reader) -> Phase:
    """REWINDING while tables lag, BIRTH before the first resume, else RESETTING."""
    return Phase.REWINDING if unfenced(reader) else Phase.RESETTING if reader.region().resumed_at else Phase.BIRTH


def unfenced(reader: Reader) -> list[Table]:
    """Declared tables that have not committed their fence since the latest rewind."""
    return [t for t in reader.select(Table) if t.owes_fence]


def after_fence(tx: Tx) -> None:
    """The last fence ends REWINDING; members may be ready already."""
    if tx.region().phase is Phase.REWINDING and not unfenced(tx):
        now = tx.now()
        tx.set_region(phase=_resting(tx), phase_since=now, reset_at=now, settled_at=0.0)
        events.log(tx, "fenced", "every declared table follows the rewind")


def halt(tx: Tx, reason: str, *, member: str = "") -> None:
    """STOPPED: members stay in the group, paused; only a person leaves it (SPEC X6, X8). One who wants it stopped gets it idle."""
    region, reason = tx.region(), events.kept(reason)
    if region.phase is Phase.STOPPED:
        return
    if region.stopping:
        without_last_cut(tx, reason)
        return
    if region.phase not in UNSETTLED and region.phase is not Phase.IDLE:
        raise_epoch(tx, ResetCause.STOP, reason, by=member, member=member)
    tx.set_region(phase=Phase.STOPPED, phase_since=tx.now(), settled_at=0.0, stopping=False)
    tx.set_region(stop_reason=reason, stop_member=member)
    events.log(tx, "stopped", reason, member=member)


def idle(tx: Tx, why: str) -> None:
    """No members are wanted any more: they leave cleanly (SPEC G9)."""
    region = tx.region()
    if region.phase is Phase.CUTTING:
        raise_epoch(tx, ResetCause.STOP, why)
    tx.set_region(
        phase=Phase.IDLE, phase_since=tx.now(), stopping=False, settled_at=0.0, stop_reason="", stop_member=""
    )
    events.log(tx, "idle", why)


def without_last_cut(tx: Tx, why: str) -> None:
    """A stop that gives up the last cut it promised (SPEC G9)."""
    text = f"stopped without a last cut, what was not merged is read again at the next start: {why}"
    events.raise_alarm(tx, events.NO_LAST_CUT, text)
    idle(tx, f"stopped without a last cut: {why}")
