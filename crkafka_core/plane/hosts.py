"""Whether somebody runs the region's members, as far as SQL tells (SPEC K1)."""

from __future__ import annotations

from crkafka_core.control import Reader
from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.rows import Lease, Member, MemberStatus, Region

LEASE = "host"
"""Kind of the lease of who runs the members."""
RUNS_THEM = "`crkafka host` runs them, in a terminal or a service of its own"


def missing(reader: Reader, region: Region) -> str:
    """That nobody runs the members of a region that should run, and what to do; empty when somebody does, or is still beginning.

    Members without a host that ever was are run by hand: they are believed.
    """
    if region.wanted is Wanted.STOP or region.phase in (Phase.IDLE, Phase.STOPPED):
        return ""
    there = reader.select(Member, ("status", "=", MemberStatus.LIVE))
    lease, now = reader.get(Lease, LEASE, ""), reader.now()
    if lease is None or not lease.token:
        return "" if there else f"no member is there: {RUNS_THEM}"
    if lease.until <= now:
        silent = f"{now - lease.until + lease.length:.0f} s"
        return f"the host of its members, {lease.holder}, has shown no life for {silent}: {RUNS_THEM}"
    if there or region.phase not in (Phase.RUNNING, Phase.CUTTING):
        return ""
    return f"no member is there: {lease.holder} should start them anew; if it is gone, {RUNS_THEM}"


def waits(reader: Reader, region: Region, unready: str) -> str:
    """What a region waits for, in words, and what to do where it would wait for ever: nobody runs its members."""
    return (missing(reader, region) or unready) if unready else ""
