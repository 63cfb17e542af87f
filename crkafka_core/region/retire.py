"""Retirement, driven: rows first, then files; orphans of older epochs are collected again each time (SPEC §10)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from crkafka_core.plane import retire as rules
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.region.lease import DriverLease
from crkafka_core.segments.path import SegmentName
from crkafka_core.segments.storage import Storage

CHUNK = 50
"""Checkpoints retired in one transaction."""


@dataclass(frozen=True)
class Retired:
    """What was done, and what was held back."""

    checkpoints: tuple[int, ...]
    segments: int
    orphans: int
    held: tuple[str, ...]


def retire(plane: ControlPlane, storage: Storage, *, holder: str, progress: Callable[[str], None]) -> Retired:
    """Retire what may be; interrupted anywhere, the next call goes on (SPEC T3)."""
    with DriverLease(plane, "retire", holder) as lease:
        plan = plane.read(rules.plan)
        done, segments = list(plan.retire), 0
        for at in range(0, len(done), CHUNK):
            lease.check()
            chunk = done[at : at + CHUNK]
            paths = plane.do(lambda tx, c=chunk: rules.retire(tx, c))  # type: ignore[misc]
            for path in paths:
                storage.delete(path)
            segments += len(paths)
            progress(f"{min(at + CHUNK, len(done))} of {len(done)} checkpoints retired")
        lease.check()
        return Retired(tuple(done), segments, collect_orphans(plane, storage), plan.held)


def collect_orphans(plane: ControlPlane, storage: Storage) -> int:
    """Remove files that no contribution names and none can name any more: of older epochs, or written before the head (SPEC T3).

    The latter are of retired checkpoints, whose deletion was interrupted. The head is read before the listing, the names after it,
    so that what a cut names meanwhile is kept.
    """
    uid, epoch, head = plane.read(lambda _, region: (region.uid, region.epoch, region.head))
    storage.end_uploads(uid, lambda path: _epoch(path) < epoch)  # never of the current epoch: members are writing it
    files = [file.path for file in storage.list(uid)]
    parsed = [(path, SegmentName.parse(path)) for path in files]
    found = [
        path
        for path, name in parsed
        if name is not None and (name.epoch < epoch or (name.epoch == epoch and name.parent < head))
    ]
    if not found:
        return 0
    named = plane.read(lambda reader, region: rules.named(reader, region.name))
    orphans = [path for path in found if path not in named]
    for path in orphans:
        storage.delete(path)
    return len(orphans)


def _epoch(path: str) -> int:
    """Of a segment of ours; anything else is left alone."""
    name = SegmentName.parse(path)
    return sys.maxsize if name is None else name.epoch


def delete_all(storage: Storage, uid: str) -> int:
    """Remove every file of a deleted region."""
    files = sum(1 for _ in storage.list(uid))
    storage.delete_folder(uid)
    return files
