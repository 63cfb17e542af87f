"""The database's clock may step: what began later than now begins now, so that nothing waits for the old time (SPEC G4).

A step forth needs nothing: what was waited for is over at once, which costs one cut at most. Leases of members are counted by
monotonic clocks and know nothing of it.
"""

from __future__ import annotations

from dataclasses import replace

from crkafka_core.control import Reader, Tx
from crkafka_core.model import limits
from crkafka_core.model.rows import Alarm, Checkpoint, Lease, Member, Region, Reset
from crkafka_core.plane import events

TOLERANCE = 1.0
"""Seconds of a step back that are not worth a mutation: nothing waits longer by more."""
BEGINNINGS = ("phase_since", "reset_at", "settled_at", "last_cut_at", "resumed_at", "stopping_since")
"""Times of the region from which something is waited for; each lies behind, unless the clock stepped back."""


def stepped_back(reader: Reader, region: Region) -> bool:
    """Whether something of the region began later than now."""
    latest = reader.now() + TOLERANCE
    return any(getattr(region, name) > latest for name in BEGINNINGS)


def begin_waits_anew(tx: Tx) -> None:
    """After a step back. A step that is smaller than the age of all beginnings lengthens no wait by more than that wait."""
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
    """Shorten leases to their length from now, and date alarms of the future now.

    They may be all that was written between a step forth and one back. The holder of such a lease may be long gone, and no merge would
    come after such an alarm.
    """
    now = tx.now()
    if not stepped_back(tx, tx.region()):
        for alarm in tx.select(Alarm, ("at", ">", now + TOLERANCE)):
            tx.put(replace(alarm, at=now))
    for lease in tx.select(Lease):
        if too_far(lease, now):
            tx.put(replace(lease, until=now + lease.length))


def too_far(lease: Lease, now: float) -> bool:
    """Whether a lease ends later than it could if it was taken just now."""
    return lease.length > 0 and lease.until - now > lease.length + TOLERANCE
