"""Checkpoints as partitions: one per merged checkpoint with rows, in the order of their ids, and whose they are (SPEC A3, C6)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.model.errors import CrkafkaError, NoSuchCheckpoint, Refused
from crkafka_core.model.rows import Checkpoint, Region
from crkafka_core.plane import checkpoints
from dagster_project.names import Names, keys_of

if TYPE_CHECKING:
    from dagster_project.resources import RegionResource

LARGEST = 5_000
"""Checkpoints of one run of an asset; Dagster takes some 20 ms for each of them."""


def definition(names: Names) -> dg.DynamicPartitionsDefinition:
    """The partitions of a region's records and of everything that follows them."""
    return dg.DynamicPartitionsDefinition(name=names.partitions)


def between(reader: Reader, region: Region, first: int, last: int) -> list[int]:
    """The live checkpoints with rows from `first` to `last`, both of which must be among them (SPEC A3)."""
    ids = checkpoints.filled(reader, above=first - 1, upto=last)
    if len(ids) > LARGEST:
        raise Refused(
            f"{len(ids)} checkpoints of region {region.name} are too many for one run of an asset, which stores two events for each: "
            f"{LARGEST} at most.",
            hint=f"Choose less, or run the job replay with `after: {first - 1}` and `upto: {last}`.",
        )
    for bound in (first, last):
        if bound not in ids:
            row = reader.get(Checkpoint, bound)
            what = "unknown" if row is None else "empty" if row.status in checkpoints.LIVE else row.status.lower()
            raise NoSuchCheckpoint(
                f"Checkpoint {bound} of region {region.name} is {what}: there is nothing of it to read or write.",
                hint="Its partition leaves Dagster with the next tick of the publishing sensor; choose live ones.",
            )
    return ids


def lowest(instance: dg.DagsterInstance, names: Names) -> str:
    """The key of the oldest partition; what is below it has left. Empty where there is none."""
    page = instance.get_paginated_dynamic_partitions(names.partitions, limit=1, ascending=True).results
    return page[0] if page else ""


@dataclass(frozen=True)
class Change:
    """What a tick does about the partitions."""

    add: tuple[str, ...] = ()
    """In order, all above what is there and stays."""
    remove: tuple[str, ...] = ()
    more: bool = False
    """Another tick has to go on."""


def reconcile(present: Sequence[str], wanted: Sequence[str], *, chunk: int) -> Change:
    """One step from what Dagster has (in its order) towards what is live (in order), of at most `chunk` changes.

    Dagster's ranges follow the order of insertion (docs/clients.md C-D5), so keys are only appended: where one is missing in the
    middle, since a person deleted it, those above it are removed first and come back behind it. Nothing is wanted
    below the lowest one that is there and live: what has left the history does not come back when a reset shortens it.
    """
    if list(wanted[: len(present)]) == list(present):  # nearly always: nothing leaves
        missing = wanted[len(present) :]
        return Change(tuple(missing[:chunk]), more=len(missing) > chunk)
    lowest = min(set(present) & set(wanted), default="")
    wanted = [k for k in wanted if k >= lowest]
    goal = set(wanted)
    gone = [k for k in present if k not in goal]
    stays = 0
    for key in (k for k in present if k in goal):
        if stays < len(wanted) and key == wanted[stays]:
            stays += 1
        else:
            gone.append(key)
    remove = tuple(gone[:chunk])
    missing = wanted[stays:]
    if set(gone) & goal:
        return Change(remove=remove, more=True)
    add = tuple(missing[: chunk - len(remove)])
    return Change(add, remove, more=len(gone) > len(remove) or len(missing) > len(add))


def remove_superseded(instance: dg.DagsterInstance, region: RegionResource) -> list[str]:
    """Remove the partitions of checkpoints that are not live; what is missing is the publishing sensor's to add."""
    name = region.names.partitions
    present = instance.get_dynamic_partitions(name)
    if not present:
        return []
    lowest = min((int(key) for key in present if key.isdecimal()), default=1)  # a person may have added any other
    filled = region.read(lambda reader, row: checkpoints.filled(reader, above=lowest - 1))
    live = set(keys_of(filled))
    gone = [key for key in present if key not in live]
    for key in gone:
        instance.delete_dynamic_partition(name, key)
    return gone


def claim(instance: dg.DagsterInstance, region: RegionResource, *, published: str) -> str:
    """Take or keep the partitions for this region; why they are another's, or nothing: each of two regions of one name on an instance
    would remove what the other has published.

    Another uid in the same control plane is a region that was deleted and made again, the same uid elsewhere a database that was moved.
    They are taken once what is `published` is of this uid: partitions of a region that is gone leave first.
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


def ours(instance: dg.DagsterInstance, region: RegionResource) -> bool:
    """Whether the partitions that are there are this region's: the publishing sensor has claimed them."""
    return _kept(instance, region) == _of(region)


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
