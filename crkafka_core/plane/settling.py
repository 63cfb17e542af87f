"""What keeps the group from being settled, and the region from resuming or from opening a cut (SPEC G8)."""

from __future__ import annotations

from crkafka_core.control import Reader
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Region
from crkafka_core.plane import roster, starts
from crkafka_core.protocol import settle


def unready(reader: Reader, region: Region) -> str:
    """What keeps the region from opening a cut or resuming: the group is unsettled, or a member behind the epoch or the head."""
    rows = roster.all_of(reader)
    if reason := settle.missing(region, rows, lambda: starts.known(reader), reader.now()):
        return reason
    behind = sorted(m.name for m in settle.live(rows) if (m.epoch, m.base) != (region.epoch, region.head))
    return f"not yet at epoch {region.epoch} and head {region.head}: {', '.join(behind)}" if behind else ""


def unsettled(reader: Reader, region: Region) -> str:
    return settle.missing(region, roster.all_of(reader), lambda: starts.known(reader), reader.now())


def unheld(reader: Reader, region: Region) -> frozenset[TP]:
    """Known partitions that no live member reports (SPEC G8)."""
    return frozenset(starts.known(reader)) - roster.holders(reader).keys()


def held_up(reader: Reader) -> str:
    """What members wait for that is not the region's fault, as they reported last: Kafka or the storage (SPEC X6, X11)."""
    waits: dict[str, list[str]] = {}
    for m in roster.live(reader):
        if why := m.metrics.get("unavailable") or m.metrics.get("kafkaAway"):
            waits.setdefault(why, []).append(m.name)
    return "; ".join(f"{', '.join(names)}: {why}" for why, names in waits.items())
