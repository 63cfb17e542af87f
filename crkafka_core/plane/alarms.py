"""What somebody should look at: a group that does not settle, strangers in it, a stopped region (SPEC G8, X8)."""

from __future__ import annotations

from collections.abc import Collection

from crkafka_core.control import Reader, Tx
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Event, Member, MemberStatus, Region
from crkafka_core.plane import events, limits

UNSETTLED, STRANGERS = "unsettled", "foreign members"
"""Kinds of events; each comes once in an epoch at most."""
_SETTLING = frozenset({Phase.BIRTH, Phase.RESETTING})


def overdue(reader: Reader, region: Region) -> bool:
    """Whether the region has been coming to rest for longer than `settle_timeout`."""
    return region.phase in _SETTLING and reader.now() - region.reset_at > limits.of(region).settle_timeout


def unsettled(tx: Tx, why: str) -> None:
    """The group is not settled, and should be by now."""
    region = tx.region()
    if overdue(tx, region) and _said(tx, region, UNSETTLED) is None:
        events.log(tx, UNSETTLED, f"not settled for {limits.of(region).settle_timeout:.0f} s: {why}")


def foreign(reader: Reader, region: Region, client_ids: Collection[str]) -> list[str]:
    """Clients in the Kafka group that are no member of this region, now or a moment ago."""
    prefix = f"crkafka-{region.name}/"
    ours = {
        client_id(m) for m in reader.select(Member, ("region", "=", region.name), ("status", "=", MemberStatus.LIVE))
    }
    return sorted(c for c in client_ids if c not in ours and not c.startswith(prefix))


def client_id(member: Member) -> str:
    """As the member calls itself in Kafka; unique (SPEC 17)."""
    return f"crkafka-{member.name}-{member.incarnation}"


def strangers(tx: Tx, client_ids: Collection[str], *, by: str) -> None:
    """Name the foreign members of the group: they hold partitions that this region waits for (SPEC G8)."""
    region = tx.region()
    if client_ids and overdue(tx, region) and _said(tx, region, STRANGERS) is None:
        events.log(
            tx, STRANGERS, f"group {region.group_id} has members that are not of this region: {', '.join(sorted(client_ids))}", by=by
        )  # fmt: skip


def current(reader: Reader, region: Region) -> str:
    """What is wrong now, in words; empty when nothing is."""
    if region.phase is Phase.STOPPED:
        return f"stopped: {region.stop_reason}"
    if not overdue(reader, region):
        return ""
    said = (_said(reader, region, kind) for kind in (UNSETTLED, STRANGERS))
    return "; ".join(event.text for event in said if event is not None)


def _said(reader: Reader, region: Region, kind: str) -> Event | None:
    """The event of this kind in the current epoch."""
    last = reader.select(Event, ("region", "=", region.name), ("kind", "=", kind), order=("seq",), desc=True, limit=1)
    return last[0] if last and last[0].epoch == region.epoch else None
