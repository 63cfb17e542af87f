"""Whose partitions these are: two regions of one name on one Dagster instance would each remove what the other has published (SPEC A3)."""

from __future__ import annotations

import hashlib
import json

import dagster as dg

from crkafka_core.model.errors import CrkafkaError
from dagster_project.resources import RegionResource


def claim(instance: dg.DagsterInstance, region: RegionResource, *, published: str) -> str:
    """Take or keep the partitions for this region; why they are another's, or nothing.

    Another uid in the same control plane is a region that was made anew, the same uid elsewhere a database that was moved. They are
    taken once what is `published` is of this uid: what is there of a region that is gone leaves first.
    """
    try:
        mine = _of(region)
    except CrkafkaError:
        return ""  # there is nothing to publish yet; the tick says why
    kept = _kept(instance, region)
    if kept and kept[0] != mine[0] and kept[1] != mine[1]:
        return (
            f"Another region {region.settings.region}, of another control plane, publishes the partitions {region.names.partitions} "
            "on this Dagster instance. Give one of the two a key_prefix of its own, under `dagster` in its attributes."
        )
    if kept != mine and published == mine[0]:
        instance.daemon_cursor_storage.set_cursor_values({_key(region): json.dumps(mine)})
    return ""


def _of(region: RegionResource) -> list[str]:
    """The region, and its control plane."""
    uid = region.read(lambda _, row: row.uid)
    return [uid, hashlib.sha256(region.settings.control_plane.encode()).hexdigest()[:12]]


def _kept(instance: dg.DagsterInstance, region: RegionResource) -> list[str] | None:
    key = _key(region)
    kept = instance.daemon_cursor_storage.get_cursor_values({key}).get(key)
    owner: list[str] | None = json.loads(kept) if kept else None
    return owner


def _key(region: RegionResource) -> str:
    return f"crkafka partitions {region.names.partitions}"
