"""Whether the region's members have a host, by their leases in SQL (SPEC K1)."""

from __future__ import annotations

import json

from crkafka_core.control import Reader
from crkafka_core.model import limits
from crkafka_core.model.phase import FLOWING, Phase, Wanted
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Lease, Member, MemberStatus, Region
from crkafka_core.plane import leases, roster

LEASE = "host"
GRACE = 5.0
"""Seconds for which a region may be without a host before another one is started for it."""
RUNS_THEM = "`crkafka host` runs them, in a terminal or a service of its own; or Dagster does, where it drives"


def missing(reader: Reader, region: Region) -> str:
    """Why the members of a region that should run have no host, and what to do; empty when they have one, or it is starting. Members that
    never had a host are run by hand."""
    if region.wanted is Wanted.STOP or region.phase in (Phase.IDLE, Phase.STOPPED):
        return ""
    members = roster.live(reader)
    lease, now = reader.get(Lease, LEASE, ""), reader.now()
    if lease is None or not lease.token:
        return "" if members else f"no member is there: {RUNS_THEM}"
    if lease.until <= now:
        silent = f"{now - lease.until + lease.length:.0f} s"
        return f"the host of its members, {lease.holder}, has shown no life for {silent}: {RUNS_THEM}"
    settles = now <= region.reset_at + limits.of(region).settle_timeout
    if members or (settles and region.phase not in FLOWING):
        return ""
    return f"no member is there: {_begins(region, lease, now)}, and its log says why they do not come; if it is gone, {RUNS_THEM}"


def starting(reader: Reader, region: Region) -> str:
    """The host that has no member yet, and how long it has been starting; empty otherwise."""
    if not beginning(reader):
        return ""
    return f"no member is there: {_begins(region, leases.held(reader, LEASE)[0], reader.now())}"


def _begins(region: Region, lease: Lease, now: float) -> str:
    if region.phase in FLOWING:
        return f"{lease.holder} is starting them again"
    seconds = f"for {max(0.0, now - region.phase_since):.0f} s"
    if (json.loads(region.config_json or "{}").get("host") or {}).get("spark"):
        return f"{lease.holder} is starting them; Spark has been starting {seconds}"
    return f"{lease.holder} has been starting them {seconds}"


def wanted(reader: Reader, region: Region) -> str:
    """Why the region needs a host to be started; empty when it has one, or needs none (SPEC A2)."""
    if region.wanted is not Wanted.RUN or region.phase is Phase.IDLE:
        return ""
    now, lease = reader.now(), reader.get(Lease, LEASE, "")
    if now - region.phase_since < GRACE or (lease is not None and lease.until > now - GRACE):
        return ""
    live = reader.count(Member, ("status", "=", MemberStatus.LIVE))
    if lease is not None and lease.token:  # not released: it does not restart its members any more
        return f"{lease.holder} does not host its members any more, {plural(live, 'is', 'are')} there"
    if live:
        return ""
    return f"{region.phase}, {plural(region.members_wanted, 'member is', 'members are')} wanted and none is there"


def beginning(reader: Reader) -> bool:
    """Whether a host has no member yet: what feeds its tables may still be starting."""
    return bool(leases.held(reader, LEASE)) and not reader.count(Member, ("status", "=", MemberStatus.LIVE))


def between(reader: Reader) -> str:
    """The host of an idle region that is starting or ending; empty when there is none."""
    held = leases.held(reader, LEASE)
    return f"its host {held[0].holder}, which is starting (Spark takes a minute) or ending" if held else ""
