"""The mark of ownership beside a region's segments: which control plane may write and delete there (SPEC T3).

A control plane is easily copied: a dump that becomes a staging system, a SQLite file beside its original. Both then have the same
region uid, and each would delete the other's files as orphans. So `owner-<uid>.json` in the root of the storage names the place of the
control plane, and the numbers that it had issued at its last check. A copy at another place is refused. A copy at the same place (the
same path on another machine, a clone of a whole PostgreSQL cluster) differs by the numbers only: the first one to go on owns the
storage, and the other is treated as a restored backup (SPEC G10).
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from crkafka_core.control import Place
from crkafka_core.model.errors import NotOwner
from crkafka_core.segments.errors import SegmentMissing
from crkafka_core.segments.storage import Storage


@dataclass(frozen=True)
class Mark:
    """Content of the mark of ownership."""

    place: str
    shown: str
    host: str
    epoch: int
    checkpoint: int
    """The highest number issued."""


def path_of(uid: str) -> str:
    """Path of a region's mark, beside its folder, so that listings of segments do not include it."""
    return f"owner-{uid}.json"


def read(storage: Storage, uid: str) -> Mark | None:
    """The mark, or None without one."""
    try:
        with storage.open_read(path_of(uid)) as source:
            return Mark(**json.loads(source.read()))
    except SegmentMissing:
        return None


def check(storage: Storage, uid: str, place: Place, *, region: str) -> Mark | None:
    """The mark, or None without one. Refused if it names another control plane."""
    mark = read(storage, uid)
    if mark is not None and mark.place != _seen_from(storage, place):
        raise NotOwner(
            f"The segments of region {region} in {storage.url} belong to {_whose(mark, place)}.",
            hint="A copy needs a storage and a group of its own. If the control plane was moved, or restored into another database, "
            "and nothing runs on the old one: `crkafka start --moved`.",
        )
    return mark


def _whose(mark: Mark, place: Place) -> str:
    """Description of the owner; a dump restored into a new database or server may have the old address."""
    if mark.shown != place.shown:
        return f"the control plane {mark.shown} (last seen from {mark.host}); {place.shown} is a copy of it, or it was moved"
    return (
        f"another database than the one that {place.shown} is now (last seen from {mark.host}): a dump of it was restored here, or "
        "the server was upgraded or replaced"
    )


def claim(storage: Storage, uid: str, place: Place, *, epoch: int, checkpoint: int) -> None:
    """Write this control plane's mark, with the numbers that it has issued."""
    mark = Mark(_seen_from(storage, place), place.shown, socket.gethostname(), epoch, checkpoint)
    if mark != read(storage, uid):
        storage.put(path_of(uid), json.dumps(dataclasses.asdict(mark)).encode())


def remove(storage: Storage, uid: str) -> None:
    """Remove the mark of a deleted region."""
    storage.delete(path_of(uid))


def begin_deletion(storage: Storage, region: str, uid: str) -> None:
    """Note a deletion before the region's rows are deleted: afterwards only this note has the uid of its files (SPEC G9)."""
    storage.put(_deletion_of(region), json.dumps({"uid": uid}).encode())


def deletion(storage: Storage, region: str) -> str:
    """Uid of the region of this name whose deletion has begun and not ended, or empty."""
    try:
        with storage.open_read(_deletion_of(region)) as source:
            return str(json.loads(source.read())["uid"])
    except SegmentMissing:
        return ""


def end_deletion(storage: Storage, region: str) -> None:
    """Remove the note: everything is deleted, or nothing will be."""
    storage.delete(_deletion_of(region))


def _deletion_of(region: str) -> str:
    return f"deleting-{region}.json"


def _seen_from(storage: Storage, place: Place) -> str:
    """Key of the control plane's place; of a SQLite file relative to a local storage, since both may be moved together."""
    scheme, _, path = place.key.partition(":")
    if scheme == "sqlite" and storage.is_local and path:
        return f"sqlite:{Path(os.path.relpath(path, os.path.realpath(storage.url))).as_posix()}"
    return place.key
