"""The registered members, the live ones among them, and the check of an incarnation (SPEC G3)."""

from __future__ import annotations

from crkafka_core.control import Reader
from crkafka_core.model.errors import Lost, Superseded
from crkafka_core.model.offsets import TP, unpack
from crkafka_core.model.rows import Member, MemberStatus


def all_of(reader: Reader) -> list[Member]:
    return reader.select(Member)


def live(reader: Reader) -> list[Member]:
    """The registered incarnations that are neither lost nor gone."""
    return reader.select(Member, ("status", "=", MemberStatus.LIVE))


def holders(reader: Reader) -> dict[TP, str]:
    """Partition → its holder, as live members report it."""
    return {tp: m.name for m in live(reader) if m.assignment_json for tp in unpack(m.assignment_json)}


def of(reader: Reader, name: str, incarnation: str) -> Member:
    """The member, if this incarnation is the registered one and live; else what it must do."""
    region = reader.region().name
    row = reader.get(Member, name)
    if row is None:
        raise Lost(f"{name} is not registered in region {region}.", hint="The host restarts it.")
    if row.incarnation != incarnation:
        why = f"{name} of region {region} runs elsewhere, as launch {row.launch}."
        raise Superseded(why, hint="This process ends for good.")
    if row.status is not MemberStatus.LIVE:
        raise Lost(f"{name} of region {region} was declared {row.status.lower()}.", hint="The host restarts it.")
    return row


def if_live(reader: Reader, name: str, incarnation: str) -> Member | None:
    """The member, while this incarnation is the registered one and live."""
    row = reader.get(Member, name)
    return row if row is not None and row.incarnation == incarnation and row.status is MemberStatus.LIVE else None


def index(name: str) -> int:
    """The number in an operator name: `orders/3` is 3."""
    return int(name.rpartition("/")[2])
