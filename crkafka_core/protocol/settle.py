"""When a group is settled (SPEC G8): one generation (but for KIP-848), disjoint assignments, every known partition covered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from crkafka_core.model.limits import Limits
from crkafka_core.model.offsets import TP, unpack
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Member, MemberStatus, Region


def live(members: Iterable[Member]) -> list[Member]:
    """The registered incarnations that are neither lost nor gone."""
    return [m for m in members if m.status is MemberStatus.LIVE]


def one_generation(members: Iterable[Member]) -> bool:
    """Whether all show one; of KIP-848, whose members have epochs of their own, none is asked for."""
    return len({m.generation for m in members if not m.member_epochs}) <= 1


def waits_for_members(region: Region, members: Sequence[Member], limits: Limits, now: float) -> str:
    """At the first start and after `scale`: the wanted number, or the end of the grace (SPEC G8)."""
    if not region.wait_for_wanted or len(members) >= region.members_wanted:
        return ""
    latest = max((m.first_registered_at for m in members), default=now)
    if now >= latest + limits.start_grace:
        return ""
    there = f"{len(members)} of {plural(region.members_wanted, 'member is', 'members are')} there"
    return f"{there}; {latest + limits.start_grace - now:.1f} s are left to wait"


def missing(
    region: Region, members: Iterable[Member], known: Callable[[], Collection[TP]], limits: Limits, now: float
) -> str:
    """What keeps the group from being settled, in words; empty when it is. `known` is asked only when all else holds."""
    there = live(members)
    if not there:
        return "no member is there"
    silent = sorted(m.name for m in there if not m.assignment_json)
    if silent:
        return f"no report of what it holds from {', '.join(silent)}"
    if not one_generation(there):
        return "members report different generations: " + ", ".join(f"{m.name} {m.generation}" for m in there)
    waits = waits_for_members(region, there, limits, now)
    if waits:
        return waits
    holders: dict[TP, str] = {}
    for member in there:
        for tp in unpack(member.assignment_json):
            if tp in holders:
                return f"{tp} is held by {holders[tp]} and by {member.name}"
            holders[tp] = member.name
    partitions = known()
    if not partitions and not region.born:
        return "no topic that is subscribed has a partition yet"
    unheld = set(partitions) - holders.keys()
    if unheld:
        some = ", ".join(str(tp) for tp in sorted(unheld)[:5])
        return f"nobody holds {some}{' …' if len(unheld) > 5 else ''}; `crkafka group` lists who else is in the group"
    return ""


def unready(
    region: Region, members: Iterable[Member], known: Callable[[], Collection[TP]], limits: Limits, now: float
) -> str:
    """What keeps the region from resuming or from opening a cut: unsettled, or a member behind the epoch or the head."""
    members = list(members)
    reason = missing(region, members, known, limits, now)
    if reason:
        return reason
    behind = sorted(m.name for m in live(members) if m.epoch != region.epoch or m.base != region.head)
    if behind:
        return f"not yet at epoch {region.epoch} and head {region.head}: {', '.join(behind)}"
    return ""
