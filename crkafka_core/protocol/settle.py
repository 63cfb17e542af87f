"""When a group is settled (SPEC G8): one generation (but for KIP-848), disjoint assignments, every known partition covered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from crkafka_core.model import limits
from crkafka_core.model.offsets import TP, unpack
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Member, MemberStatus, Region


def live(members: Iterable[Member]) -> list[Member]:
    """The registered incarnations that are neither lost nor gone."""
    return [m for m in members if m.status is MemberStatus.LIVE]


def one_generation(members: Iterable[Member]) -> bool:
    """Whether all show one; of KIP-848, whose members have epochs of their own, none is asked for."""
    return len({m.generation for m in members if not m.member_epochs}) <= 1


def missing(region: Region, members: Iterable[Member], known: Callable[[], Collection[TP]], now: float) -> str:
    """What keeps the group from being settled, in words; empty when it is. `known` is asked only when all else holds."""
    group = live(members)
    if not group:
        return "no member is there"
    if silent := sorted(m.name for m in group if not m.assignment_json):
        return f"no report of what it holds from {', '.join(silent)}"
    if not one_generation(group):
        return "members report different generations: " + ", ".join(f"{m.name} {m.generation}" for m in group)
    # At the first start and after `scale`: the wanted number, or the end of the grace.
    left = max(m.first_registered_at for m in group) + limits.of(region).start_grace - now
    if region.wait_for_wanted and len(group) < region.members_wanted and left > 0:
        wanted = plural(region.members_wanted, "member is", "members are")
        return f"{len(group)} of {wanted} there; {left:.1f} s are left to wait"
    holders: dict[TP, str] = {}
    for member in group:
        for tp in unpack(member.assignment_json):
            if tp in holders:
                return f"{tp} is held by {holders[tp]} and by {member.name}"
            holders[tp] = member.name
    partitions = known()
    if not partitions and not region.born:
        return "no topic that is subscribed has a partition yet"
    if unheld := set(partitions) - holders.keys():
        some = ", ".join(str(tp) for tp in sorted(unheld)[:5])
        return f"nobody holds {some}{' …' if len(unheld) > 5 else ''}; `crkafka group` lists who else is in the group"
    return ""
