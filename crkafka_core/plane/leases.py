"""Leases on rights of a region: driver, retire, readers, table writers; the number fences a late holder (SPEC A6, K6, T1)."""

from __future__ import annotations

from dataclasses import replace

from crkafka_core.control import Reader, Tx
from crkafka_core.model.errors import LeaseHeld, LeaseLost
from crkafka_core.model.rows import Lease

DRIVER = "driver"
TOLERANCE = 1.0
"""Seconds of a step back that are not worth a mutation: nothing waits longer by more."""


def take(tx: Tx, kind: str, *, holder: str, token: str, length: float, slot: str = "", data: str = "{}") -> Lease:
    """Take a lease that is free or over, or that of the same token; an exclusive right gets a higher number each time. A run and its retry
    have one token: the higher number keeps the older from renewing or ending the younger's lease (SPEC A6). A lease that ends later than it
    ever could is over: the clock stepped back (SPEC G4)."""
    now, region = tx.now(), tx.region().name
    held = tx.get(Lease, kind, slot)
    if held is not None and held.token != token and held.until > now and not too_far(held, now):
        why = f"{kind} of region {region} is held by {held.holder} for {held.until - now:.0f} s more."
        raise LeaseHeld(why, hint="Wait for it, or come back later.")
    number = 1 if held is None else held.number + (held.token != token or not slot)
    lease = Lease(region, kind, slot, holder, token, number, until=now + length, length=length, data_json=data)
    tx.put(lease)
    return lease


def renew(tx: Tx, lease: Lease, length: float) -> Lease:
    """Prolong a lease that is still ours, also one that is over and was not taken since."""
    current = check(tx, lease)
    renewed = replace(current, until=tx.now() + length, length=length)
    tx.put(renewed)
    return renewed


def check(reader: Reader, lease: Lease) -> Lease:
    current = reader.get(Lease, lease.kind, lease.slot)
    if current is None or current.token != lease.token or current.number != lease.number:
        what = f"The lease {lease.kind} of region {lease.region}"
        why = f"{what} is no longer {lease.holder}'s: {current.holder if current else 'nobody'} has it."
        raise LeaseLost(why, hint="Stop; the holder goes on.")
    return current


def release(tx: Tx, lease: Lease) -> None:
    """End a lease of ours. The row of an exclusive right stays, so that numbers only grow; a reader's goes."""
    current = tx.get(Lease, lease.kind, lease.slot)
    if current is None or (current.token, current.number) != (lease.token, lease.number):
        return
    if lease.slot:
        tx.delete(Lease, ("kind", "=", lease.kind), ("slot", "=", lease.slot))
    else:
        tx.put(replace(current, until=0.0, token=""))


def held(reader: Reader, kind: str) -> list[Lease]:
    return reader.select(Lease, ("kind", "=", kind), ("until", ">", reader.now()))


def too_far(lease: Lease, now: float) -> bool:
    """Whether a lease ends later than it could if it was taken just now."""
    return lease.length > 0 and lease.until - now > lease.length + TOLERANCE
