"""Whose partitions these are: two regions of one name on one Dagster instance would each remove what the other has published (SPEC A3)."""

from __future__ import annotations

import hashlib
import json

import dagster as dg

from crkafka_core.model.errors import CrkafkaError
from dagster_project.resources import RegionResource


def claim(instance: dg.DagsterInstance, region: RegionResource) -> str:
    """Take or keep the partitions for this region; why they are another's, or nothing.

    Another uid in the same control plane is a region that was made anew, the same uid elsewhere a database that was moved.
    """
    try:
        uid = region.read(lambda _, row: row.uid)
        plane = hashlib.sha256(region.settings.control_plane.encode()).hexdigest()[:12]
    except CrkafkaError:
        return ""  # there is nothing to publish yet; the tick says why
    key = f"crkafka partitions {region.names.partitions}"
    kept = instance.daemon_cursor_storage.get_cursor_values({key}).get(key)
    mine = json.dumps([uid, plane])
    if kept == mine:
        return ""
    if kept:
        other = json.loads(kept)
        if other[0] != uid and other[1] != plane:
            return (
                f"Another region {region.settings.region}, of another control plane, publishes the partitions {region.names.partitions} "
                "on this Dagster instance. Give one of the two a key_prefix of its own, under `dagster` in its attributes."
            )
    instance.daemon_cursor_storage.set_cursor_values({key: mine})
    return ""
