"""Retirement, driven: rows first, then files; orphans of older epochs are collected again each time (SPEC T3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crkafka_core.control import Tx
from crkafka_core.loop import THREADS, Runtime
from crkafka_core.member.outside_sql import Commits, look_outside
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Lease, Region
from crkafka_core.plane import cleanup, leases, restored
from crkafka_core.plane import retire as rules
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.region.lease import DriverLease
from crkafka_core.region.orphans import collect_orphans
from crkafka_core.segments import owner
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


def retire(
    plane: ControlPlane,
    storage: Storage,
    kafka: Commits | None,
    *,
    group_id: str,
    holder: str,
    progress: Callable[[str], None],
    runtime: Runtime = THREADS,
) -> Retired:
    """Retire what may be; interrupted anywhere, the next call goes on (SPEC T3).

    Nothing is deleted before a look back: a control plane that was restored from a backup, or copied, would take for orphans, and for
    old, what its newer self or its original still names (SPEC G10).
    """
    with DriverLease(plane, "retire", holder, runtime=runtime) as lease:
        plane.read(lambda _, region: restored.refuse(region))
        outside = look_outside(plane, storage, kafka, group_id)
        region = plane.do(lambda tx: restored.check(tx, outside.seen, by=holder))
        own(plane, storage, region)
        plane.do(cleanup.clean_up)
        plan = plane.read(rules.plan)
        done, segments = list(plan.retire), 0
        for at in range(0, len(done), CHUNK):
            chunk = done[at : at + CHUNK]
            paths = plane.do(lambda tx, c=chunk: _retire(tx, lease.lease, region, c))  # type: ignore[misc]
            storage.each(storage.delete, paths)
            segments += len(paths)
            progress(f"{min(at + CHUNK, len(done))} of {plural(len(done), 'checkpoint')} retired")
        lease.check()
        return Retired(tuple(done), segments, collect_orphans(plane, storage, region, outside.files), plan.held)


def _retire(tx: Tx, lease: Lease | None, looked: Region, checkpoints: list[int]) -> list[str]:
    """In one transaction with the look at the lease: one that was taken over from while it slept retires nothing (SPEC G11)."""
    assert lease is not None
    leases.check(tx, lease)
    restored.same(tx, looked)
    return rules.retire(tx, checkpoints)


def own(plane: ControlPlane, storage: Storage, region: Region) -> None:
    """Leave the mark, with what has been issued by now: who opens a copy or an older state is refused by it (SPEC T3)."""
    owner.claim(storage, region.uid, plane.place(), epoch=region.epoch, checkpoint=region.opened)


def delete_all(storage: Storage, uid: str) -> int:
    """Remove every file of a deleted region."""
    files = sum(1 for _ in storage.list(uid))
    storage.delete_folder(uid)
    owner.remove(storage, uid)
    return files
