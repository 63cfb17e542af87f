"""What anyone may do who finds the condition true: merge, abort past the deadline, resume, start the next attempt (SPEC G7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from crkafka_core.control import Reader, Tx
from crkafka_core.model import limits
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Alarm, Checkpoint, Lease, Member, Region, Reset, ResetCause
from crkafka_core.plane import alarms, cuts, epochs, events, leases, life, members, merging, resets, roster, settling
from crkafka_core.plane.events import NO_MERGE, raised

BEGINNINGS = ("phase_since", "reset_at", "settled_at", "last_cut_at", "resumed_at", "stopping_since")
"""Times of the region from which something is waited for; each lies behind, unless the clock stepped back."""


def due(reader: Reader, region: Region, live: Sequence[Member] | None = None) -> bool:
    """Whether a look under the lock is worth it; cheap, so that a quiet region costs nothing. `live`: live members, if they are read."""
    if stepped_back(reader, region):
        return True
    if alarms.no_merge(reader, region) and raised(reader, region, NO_MERGE) is None:
        return True
    match region.phase:
        case Phase.BIRTH | Phase.RESETTING | Phase.REWINDING:
            return True
        case Phase.CUTTING:  # the last contribution merges: what is left to do is to abort past the deadline
            row = reader.get(Checkpoint, region.open_cut)
            if row is None or reader.now() > row.deadline:
                return True
        case Phase.RUNNING:
            if region.stopping:
                return True
        case _:
            return False
    live = roster.live(reader) if live is None else live
    return bool(members.behind(region, live)) or any(m.stale_since for m in live)


def advance(tx: Tx) -> Phase:
    """Do what is due; the phase after it. Any process may call it at any time."""
    restart_waits(tx)
    alarms.watch_merges(tx)
    region = tx.region()
    limit = limits.of(region)
    if region.phase in (Phase.BIRTH, Phase.RUNNING, Phase.CUTTING, Phase.RESETTING):
        members.watch_generations(tx, limit.stale_generation, max(limit.stale_generation, limit.session_timeout))
        region = tx.region()
    if region.phase is Phase.CUTTING:
        merging.finish(tx)
    elif region.phase is Phase.REWINDING:
        epochs.after_fence(tx)
    before = tx.region().phase
    if before in (Phase.BIRTH, Phase.RESETTING):
        _resume(tx, tx.region())
    if tx.region().stopping and tx.region().phase is before:  # one step at a time: each phase is seen (SPEC G9)
        life.last_cut(tx)
    return tx.region().phase


def _resume(tx: Tx, region: Region) -> None:
    """RUNNING again, once the group is settled, at the epoch and the head, and the back-off is over."""
    limit, now = limits.of(region), tx.now()
    reason = settling.unready(tx, region)
    if not reason and now >= region.not_before:
        tx.set_region(
            phase=Phase.RUNNING,
            phase_since=now,
            resumed_at=now,
            settled_at=now,
            wait_for_wanted=False,
            last_cut_at=region.last_cut_at or now,
        )
        cuts.begin_fill(tx)
        text, evidence = f"from head {region.head}: {region.reset_cause}", {"seconds": round(now - region.reset_at, 3)}
        events.log(tx, "resumed", text, checkpoint=region.head, data=evidence)
        return
    if settling.unsettled(tx, region):
        alarms.unsettled(tx)
        if region.settled_at:
            tx.set_region(settled_at=0.0)
    elif not region.settled_at:
        tx.set_region(settled_at=now)
    elif now - region.settled_at > limit.reset_timeout and now >= region.not_before:
        held_up = settling.held_up(tx)
        cause = f"the reset took longer than {limit.reset_timeout:.0f} s: {held_up or reason}"
        resets.begin(tx, ResetCause.UNAVAILABLE if held_up else ResetCause.STUCK, cause, by="reset timeout")


def stepped_back(reader: Reader, region: Region) -> bool:
    latest = reader.now() + leases.TOLERANCE
    return any(getattr(region, name) > latest for name in BEGINNINGS)


def restart_waits(tx: Tx) -> None:
    """After a step back of the database's clock: what began later than now begins now, so that nothing waits for the old time (SPEC G4).

    A step that is smaller than the age of all beginnings lengthens no wait by more than that wait. A step forth needs nothing: what was
    waited for is over at once, which costs one cut at most. Leases of members are counted by monotonic clocks and know nothing of it.
    """
    region, now = tx.region(), tx.now()
    if not stepped_back(tx, region):
        return
    by = max(getattr(region, name) for name in BEGINNINGS) - now
    tx.set_region(**{name: min(getattr(region, name), now) for name in BEGINNINGS})
    reset = tx.get(Reset, region.epoch)
    if reset is None or reset.at > now:  # a back-off that began after the step lasts
        tx.set_region(not_before=0.0)
    started = tx.get(Reset, region.started_epoch)
    if started is not None and started.at > now:  # from here on an alarm counts
        tx.put(replace(started, at=now))
    opened = tx.get(Checkpoint, region.open_cut) if region.open_cut else None
    if opened is not None and opened.opened_at > now:
        left = min(opened.deadline - opened.opened_at, limits.of(region).drain_timeout)
        tx.put(replace(opened, opened_at=now, deadline=now + left))
    leave_the_future(tx)
    for member in tx.select(Member):
        times = {name: getattr(member, name) for name in ("stale_since", "first_registered_at", "registered_at")}
        if max(times.values()) > now:
            tx.put(replace(member, **{name: min(at, now) for name, at in times.items()}))
    tx.delete(Alarm)  # by the old time they would hold longer; an alarm that still holds is raised again
    events.log(tx, "clock", f"the database's clock stepped back by {by:.0f} s or more: waits begin anew")


def leave_the_future(tx: Tx) -> None:
    """Shorten leases to their length from now, and date alarms of the future now. They may be all that was written between a step forth and
    one back. The holder of such a lease may be long gone, and no merge would come after such an alarm."""
    now = tx.now()
    if not stepped_back(tx, tx.region()):
        for alarm in tx.select(Alarm, ("at", ">", now + leases.TOLERANCE)):
            tx.put(replace(alarm, at=now))
    for lease in tx.select(Lease):
        if leases.too_far(lease, now):
            tx.put(replace(lease, until=now + lease.length))
