"""Resets, aborts and stops: what raises the epoch, to which head, and when the region resumes (SPEC §11)."""

from __future__ import annotations

import json
from dataclasses import replace

from crkafka_core.control import Reader, Tx
from crkafka_core.model.errors import NoSuchCheckpoint, NotRunning, RegionStopped, Stale
from crkafka_core.model.phase import UNSETTLED, Phase, Wanted
from crkafka_core.model.rows import (
    Checkpoint,
    CheckpointStatus,
    ContributedOffset,
    Contribution,
    Event,
    Expected,
    Region,
    Segment,
    Table,
)  # fmt: skip
from crkafka_core.plane import events, limits

RAISES = ("reset", "abort")
"""Kinds of events that raise the epoch."""
REMEMBERED = 100
"""Among so many latest resets a repeated call finds its own."""
STEEPEST = 30
"""Doublings of the back-off after which any cap is reached: failures may go on for days."""


def request(
    tx: Tx, *, cause: str, by: str, epoch: int | None = None, target: int | None = None, member: str = "", counted: bool = True,
    token: str = "",
) -> int:  # fmt: skip
    """A reset asked for by a person (`epoch` None) or by a failure seen in `epoch`; the new epoch (SPEC X3-X5).

    `target` is a merged checkpoint of the head's line, 0 for initial state, or None for the head. The same `token` finds its own
    reset again, after an unknown outcome or in a run that is tried again (SPEC A1); a failure is known by its epoch.
    """
    region = tx.region()
    if token and (done := _asked(tx, region.name, token)):
        return done
    person = epoch is None
    if epoch is not None and region.epoch != epoch:
        raise Stale(f"The failure was seen in epoch {epoch}; region {region.name} is at {region.epoch} and past it.")
    if region.phase is Phase.STOPPED and not person:
        raise RegionStopped(
            f"Region {region.name} is stopped: {region.stop_reason}", hint="`crkafka start` after mending it."
        )
    if target is not None:
        check_target(tx, region, target)
    if region.phase is Phase.IDLE:
        if target is None or target == region.head:
            raise NotRunning(
                f"Region {region.name} is idle: there is nothing to reset.", hint="Name a target, or start it."
            )
        _rewind(tx, target, cause)
        _raise_epoch(tx, cause, by=by, token=token)
        return tx.region().epoch
    if region.phase is Phase.STOPPED:
        tx.set_region(consecutive=0, failing=0)
        events.log(tx, "start", cause, by=by)  # a person leaves STOPPED: counts and budgets begin anew, as with `start`
    begin(
        tx, cause, by=by, member=member, target=target, counted=counted and not person, failing=not counted, token=token
    )
    return tx.region().epoch


def _asked(reader: Reader, region: str, token: str) -> int:
    """The epoch that a reset with this token began, or 0."""
    rows = reader.select(
        Event, ("region", "=", region), ("kind", "=", "reset"), order=("seq",), desc=True, limit=REMEMBERED
    )
    return next((e.epoch for e in rows if json.loads(e.data_json).get("token") == token), 0)


def check_target(reader: Reader, region: Region, target: int) -> None:
    """A target is initial state, or a merged checkpoint of the head's line that is not retired."""
    if target == 0 or target == region.head:
        return
    row = reader.get(Checkpoint, region.name, target)
    if (
        row is None
        or row.status is not CheckpointStatus.MERGED
        or target not in reader.line(region.name, region.head, after=target - 1)
    ):
        there = [
            c.id
            for c in reader.select(Checkpoint, ("region", "=", region.name), ("status", "=", CheckpointStatus.MERGED))
        ]
        what = "unknown" if row is None else row.status.lower()
        raise NoSuchCheckpoint(
            f"Checkpoint {target} of region {region.name} is {what}: the region cannot go back to it.",
            hint=f"It can go back to {_some(there) + ' or ' if there else ''}initial state (0).",
        )


def _some(ids: list[int]) -> str:
    return ", ".join(map(str, ids)) if len(ids) <= 8 else f"{ids[0]} … {ids[-1]}"


def forced(tx: Tx, cause: str, *, member: str) -> None:
    """A rebalance's reset: it zeroes the count, and has a budget of its own (SPEC R2, X6)."""
    tx.set_region(consecutive=0)
    begin(tx, cause, by=member, member=member, kind="forced")


def loss(tx: Tx, member: str, cause: str) -> None:
    """A member was lost: a reset where records flow, elsewhere the group is only unsettled (SPEC G3, X5)."""
    if tx.region().phase in (Phase.RUNNING, Phase.CUTTING):
        begin(tx, cause, by=member, member=member, kind="loss")


def abort(tx: Tx, cause: str, *, member: str = "", by: str = "", forced: bool = False, counted: bool = True) -> None:
    """Abort the open cut: one act with the reset to the head (SPEC D4)."""
    if forced:
        tx.set_region(consecutive=0)
    begin(
        tx,
        cause,
        by=by or member,
        member=member,
        kind="forced" if forced else "",
        counted=counted and not forced,
        failing=not counted,
    )


def begin(
    tx: Tx,
    cause: str,
    *,
    by: str,
    member: str = "",
    target: int | None = None,
    kind: str = "",
    counted: bool = False,
    failing: bool = False,
    token: str = "",
) -> None:
    """Raise the epoch and make everybody come to rest on the head; an open cut is aborted by it."""
    region, limit = tx.region(), limits.of(tx.region())
    if target is not None and target != region.head:
        _rewind(tx, target, cause)
    _raise_epoch(tx, cause, by=by, member=member, kind=kind, token=token)
    region = tx.region()
    if region.phase is Phase.IDLE or (region.phase is Phase.STOPPED and (region.wanted is Wanted.STOP or by == member)):
        return
    consecutive, failures = region.consecutive + counted, region.failing + failing
    tx.set_region(consecutive=consecutive, failing=failures)
    if kind and (over := over_budget(tx, member)):
        stop(tx, f"{over}; the last time: {cause}", member=member)
        return
    if counted and consecutive >= limit.max_consecutive_resets:
        worst = _worst(tx, member)
        stop(tx, f"{consecutive} resets in a row without a completed cut; the last: {cause}", member=worst)
        return
    wait = (
        min(limit.backoff_base * 2 ** min(consecutive + failures, STEEPEST), limit.backoff_cap)
        if counted or failing
        else 0.0
    )
    rest(tx, cause, wait)


def rest(tx: Tx, cause: str, wait: float = 0.0) -> None:
    """Enter the phase in which members come to rest: REWINDING while tables lag, BIRTH before the first resume, else RESETTING."""
    region, now = tx.region(), tx.now()
    phase = Phase.REWINDING if unfenced(tx, region.name) else Phase.RESETTING if region.resumed_at else Phase.BIRTH
    tx.set_region(
        phase=phase, phase_since=now, reset_cause=cause, reset_at=now, settled_at=0.0, not_before=now + wait if wait else 0.0,
        stop_reason="", stop_member="",
    )  # fmt: skip


def _raise_epoch(tx: Tx, cause: str, *, by: str, member: str = "", kind: str = "", token: str = "") -> None:
    region = tx.region()
    opened = region.open_cut
    tx.set_region(epoch=region.epoch + 1, open_cut=0, settled_at=0.0)
    if opened:
        row = tx.get(Checkpoint, region.name, opened)
        assert row is not None
        tx.put(replace(row, status=CheckpointStatus.ABORTED, note=cause))
        there = tx.select(Contribution, ("region", "=", region.name), ("checkpoint", "=", opened))
        for part in (Expected, Contribution, ContributedOffset, Segment):
            tx.delete(part, ("region", "=", region.name), ("checkpoint", "=", opened))
        events.log(
            tx,
            "abort",
            cause,
            checkpoint=opened,
            member=member,
            by=by,
            data={"contributed": [c.member for c in there], "budget": kind},
        )
    events.log(
        tx, "reset", cause, member=member, by=by, checkpoint=tx.region().head, data={"budget": kind, "token": token}
    )


def _rewind(tx: Tx, target: int, cause: str) -> None:
    """Make `target` the head: those after it are superseded, and every declared table owes a fence (SPEC X4)."""
    region = tx.region()
    for checkpoint in tx.line(region.name, region.head, after=target):
        row = tx.get(Checkpoint, region.name, checkpoint)
        if row is not None and row.status in (CheckpointStatus.MERGED, CheckpointStatus.RETIRED):
            tx.put(replace(row, status=CheckpointStatus.SUPERSEDED, note=cause))
    for table in tx.select(Table, ("region", "=", region.name)):
        tx.put(replace(table, rewind_epoch=region.epoch + 1))
    events.log(tx, "rewind", f"head {region.head} → {target}: {cause}", checkpoint=target)
    tx.set_region(head=target)


def unfenced(reader: Reader, region: str) -> list[Table]:
    """Declared tables that have not committed their fence since the latest rewind."""
    return [t for t in reader.select(Table, ("region", "=", region)) if t.rewind_epoch > t.fenced_epoch]


def after_fence(tx: Tx) -> None:
    """The last fence ends REWINDING; members may be ready already."""
    if tx.region().phase is Phase.REWINDING and not unfenced(tx, tx.region().name):
        now = tx.now()
        tx.set_region(phase=Phase.RESETTING, phase_since=now, reset_at=now, settled_at=0.0)
        events.log(tx, "fenced", "every declared table follows the rewind")


def over_budget(tx: Tx, member: str) -> str:
    """Forced resets and losses of one operator have budgets of their own (SPEC X6); words when one is used up."""
    region, limit = tx.region(), limits.of(tx.region())
    mine = [
        e
        for e in tx.select(
            Event, ("region", "=", region.name), ("kind", "=", "reset"), ("member", "=", member), order=("seq",), desc=True,
            limit=REMEMBERED + limit.forced_budget + limit.forced_without_cut,
        )
        if '"budget": "forced"' in e.data_json or '"budget": "loss"' in e.data_json
    ]  # fmt: skip
    now = tx.now()
    recent = sum(e.at >= now - limit.forced_window for e in mine)
    if recent >= limit.forced_budget:
        return f"{member} made the region reset {recent} times in {limit.forced_window:.0f} s"
    started = tx.select(
        Event, ("region", "=", region.name), ("kind", "in", ("merged", "start")), order=("seq",), desc=True, limit=1
    )
    since_cut = sum(e.seq > (started[0].seq if started else 0) for e in mine)
    if since_cut >= limit.forced_without_cut:
        return f"{member} made the region reset {since_cut} times without a completed cut in between"
    return ""


def _worst(tx: Tx, fallback: str) -> str:
    region = tx.region()
    rows = tx.select(
        Event, ("region", "=", region.name), ("kind", "=", "reset"), order=("seq",), desc=True, limit=region.consecutive
    )
    names = [e.member for e in rows if e.member]
    return max(set(names), key=names.count) if names else fallback


def stop(tx: Tx, reason: str, *, member: str = "") -> None:
    """STOPPED: members stay in the group, paused; only a person leaves it (SPEC X6, X8). One who wants it stopped gets it idle."""
    region = tx.region()
    if region.phase is Phase.STOPPED:
        return
    if region.stopping:
        idle(tx, f"stopped without a last cut: {reason}")
        return
    if region.phase not in UNSETTLED and region.phase is not Phase.IDLE:
        _raise_epoch(tx, reason, by=member, member=member)
    tx.set_region(
        phase=Phase.STOPPED,
        phase_since=tx.now(),
        stop_reason=reason,
        stop_member=member,
        settled_at=0.0,
        stopping=False,
    )
    events.log(tx, "stopped", reason, member=member)


def idle(tx: Tx, why: str) -> None:
    """No members are wanted any more: they leave cleanly (SPEC G9)."""
    region = tx.region()
    if region.phase is Phase.CUTTING:
        _raise_epoch(tx, why, by="")
    tx.set_region(
        phase=Phase.IDLE, phase_since=tx.now(), stopping=False, settled_at=0.0, stop_reason="", stop_member=""
    )
    events.log(tx, "idle", why)


def start(tx: Tx, *, by: str) -> Region:
    """Want the region to run; also leaves STOPPED. Tables that owe a fence are waited for (SPEC G9, fault 66)."""
    region = tx.region()
    tx.set_region(wanted=Wanted.RUN, stopping=False)
    if region.phase in (Phase.IDLE, Phase.STOPPED):
        tx.set_region(
            epoch=region.epoch + 1,
            consecutive=0,
            failing=0,
            wait_for_wanted=region.wait_for_wanted or region.phase is Phase.IDLE,
        )
        rest(tx, f"started by {by}")
        events.log(tx, "start", by=by)
    return tx.region()
