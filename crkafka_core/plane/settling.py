"""What keeps the group from being settled, and the region from resuming or from opening a cut (SPEC G8)."""

from __future__ import annotations

from crkafka_core.control import Reader
from crkafka_core.model.offsets import TP, unpack
from crkafka_core.model.rows import Region
from crkafka_core.plane import limits, roster, starts
from crkafka_core.protocol import settle


def unready(reader: Reader, region: Region) -> str:
    """What keeps the region from opening a cut or resuming, in words."""
    return settle.unready(
        region,
        roster.all_of(reader),
        lambda: starts.known(reader),
        limits.of(region),
        reader.now(),
    )


def unsettled(reader: Reader, region: Region) -> str:
    """What keeps the group from being settled, in words."""
    return settle.missing(
        region,
        roster.all_of(reader),
        lambda: starts.known(reader),
        limits.of(region),
        reader.now(),
    )


def unheld(reader: Reader, region: Region) -> frozenset[TP]:
    """Known partitions that no live member reports (SPEC G8)."""
    there = roster.live(reader)
    return frozenset(starts.known(reader)) - frozenset(
        tp for m in there if m.assignment_json for tp in unpack(m.assignment_json)
    )
