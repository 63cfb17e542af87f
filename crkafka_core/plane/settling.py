"""What keeps the group from being settled, and the region from resuming or from opening a cut (SPEC G8)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from crkafka_core.control import Reader
from crkafka_core.model import limits
from crkafka_core.model.limits import Limits
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Member, Region
from crkafka_core.plane import roster, starts
from crkafka_core.protocol import settle


def unready(reader: Reader, region: Region) -> str:
    """What keeps the region from opening a cut or resuming, in words."""
    return settle.unready(*_group(reader, region))


def unsettled(reader: Reader, region: Region) -> str:
    """What keeps the group from being settled, in words."""
    return settle.missing(*_group(reader, region))


def _group(reader: Reader, region: Region) -> tuple[Region, list[Member], Callable[[], Collection[TP]], Limits, float]:
    return region, roster.all_of(reader), lambda: starts.known(reader), limits.of(region), reader.now()


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
