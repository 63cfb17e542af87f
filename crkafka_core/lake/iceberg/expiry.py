"""What of an Iceberg table is forgotten and deleted: snapshots by count and age, files that nothing refers to by age (SPEC K6)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from itertools import pairwise

from crkafka_core.lake.iceberg import avro
from crkafka_core.lake.iceberg.metadata import MAIN, Folder, Metadata

_MOST, _LEFT = 100, 75
"""Snapshots in the metadata, which each commit writes again: from the first number on, only the second is left."""
_VERSION = re.compile(r"metadata/v(\d+)(\.gz)?\.metadata\.json(\.gz)?")
_HINT = "metadata/version-hint.text"


def by_count(metadata: Metadata, keep: Callable[[], Collection[int]]) -> list[int]:
    """What came before the latest snapshots that led here, where the next one makes them too many; `keep` is asked only there."""
    text = metadata.properties.get("history.expire.min-snapshots-to-keep", "")
    least = int(text) if text.isdigit() else 0
    line = list(metadata.line())
    if len(line) < max(_MOST, least):
        return []
    oldest = line[max(_LEFT, least) - 2]["sequence-number"]
    stay = _staying(metadata, keep())
    return [
        number for number, each in metadata.snapshots.items() if each["sequence-number"] < oldest and number not in stay
    ]


def by_age(metadata: Metadata, keep: Collection[int], before: float) -> list[int]:
    """Snapshots that were replaced by another before that time."""
    stay = _staying(metadata, keep)
    ordered = sorted(metadata.snapshots.values(), key=lambda each: int(each["sequence-number"]))
    return [
        old["snapshot-id"]
        for old, new in pairwise(ordered)
        if new["timestamp-ms"] < before * 1000 and old["snapshot-id"] not in stay
    ]


def _staying(metadata: Metadata, keep: Collection[int]) -> set[int]:
    """Snapshots whose versions are asked for, and those of users: a tag's, and all that led to a branch besides main."""
    stay = {number for number, each in metadata.snapshots.items() if each["sequence-number"] in keep}
    stay.add(metadata.head["snapshot-id"] if metadata.head else 0)
    for name, ref in metadata.refs.items():
        head = metadata.snapshots.get(ref["snapshot-id"])
        if name == MAIN or head is None:
            continue
        led = metadata.line(head) if ref.get("type") == "branch" else [head]
        stay |= {each["snapshot-id"] for each in led}
    return stay


def delete_unreferenced(folder: Folder, metadata: Metadata, current: str, before: float) -> int:
    """Delete old files below the table's folder to which no snapshot refers; how many. `current`: where the metadata is."""
    stored = {each.path: each.modified for each in folder.storage.list("")}
    old = {path for path, modified in stored.items() if modified < before}
    if not old:
        return 0
    used = {*_used(folder, metadata), _HINT, folder.name(current) if folder.holds(current) else current}
    versions = sorted((int(match[1]), match[0]) for path in stored if (match := _VERSION.fullmatch(path)))
    for (_, path), (_, after) in pairwise(versions):
        if stored[after] >= before:  # it was current until then
            used.add(path)
    gone = old - used
    folder.storage.each(folder.storage.delete, gone)
    return len(gone)


def _used(folder: Folder, metadata: Metadata) -> Iterator[str]:
    """Every file that a snapshot refers to. A manifest is read once, however many snapshots list it."""
    manifests: dict[str, None] = {}
    for snapshot in metadata.snapshots.values():
        yield folder.name(snapshot["manifest-list"])
        manifests |= dict.fromkeys(each["manifest_path"] for each in avro.read(folder.read(snapshot["manifest-list"])))
    for kind in ("statistics", "partition-statistics"):
        yield from (folder.name(each["statistics-path"]) for each in metadata.content.get(kind) or ())
    yield from map(folder.name, manifests)
    for entries in folder.storage.each(lambda path: avro.read(folder.read(path)), manifests):
        for entry in entries:
            path = entry["data_file"]["file_path"]
            if entry["status"] != avro.DELETED and folder.holds(path):
                yield folder.name(path)
