"""Retires checkpoints: rows first, then files; and collects orphans in storage each time (SPEC T3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from crkafka_core.control import Tx
from crkafka_core.kafka.edge import Admin
from crkafka_core.loop import THREADS, Runtime
from crkafka_core.member.outside_sql import look_outside
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Lease, Region
from crkafka_core.model.segment import SegmentName
from crkafka_core.plane import leases, restored
from crkafka_core.plane import retire as rules
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.region.lease import DriverLease
from crkafka_core.segments import owner
from crkafka_core.segments.storage import Storage

CHUNK = 50
"""Checkpoints retired in one transaction."""


@dataclass(frozen=True)
class Retired:
    """Result of a retirement, and what was held back."""

    checkpoints: tuple[int, ...]
    segments: int
    orphans: int
    held: tuple[str, ...]


def retire(
    plane: ControlPlane,
    storage: Storage,
    kafka: Admin | None,
    *,
    group_id: str,
    holder: str,
    progress: Callable[[str], None],
    runtime: Runtime = THREADS,
) -> Retired:
    """Retire the checkpoints that may be; the next call completes an interrupted one (SPEC T3). First it checks whether the control plane
    went back: one that was restored from a backup, or copied, would delete files of its newer state or its original as orphans (SPEC
    G10)."""
    with DriverLease(plane, "retire", holder, runtime=runtime) as lease:
        plane.read(lambda _, region: restored.refuse(region))
        outside = look_outside(plane, storage, kafka, group_id)
        region = plane.do(lambda tx: restored.check(tx, outside.seen, by=holder))
        own(plane, storage, region)
        plane.do(rules.clean_up)
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


def _retire(tx: Tx, lease: Lease, looked: Region, checkpoints: list[int]) -> list[str]:
    """Retire in one transaction with a check of the lease: a process that slept past its lease retires nothing (SPEC G11)."""
    leases.check(tx, lease)
    restored.same(tx, looked)
    return rules.retire(tx, checkpoints)


def collect_orphans(plane: ControlPlane, storage: Storage, region: Region, files: Iterable[str]) -> int:
    """Remove files with numbers up to the head that no contribution names (SPEC T3).

    Killed members and aborted cuts leave them, or an interrupted deletion of retired checkpoints. A file with a number above the head
    stays: it may be open, or named by a newer state of this control plane. `region` was read right after `files` were listed, and the
    names are read after that, so that files which a cut names meanwhile are kept.
    """

    def over(path: str) -> bool:
        name = SegmentName.parse(path)
        return name is not None and name.epoch <= region.epoch and name.number <= region.head

    storage.end_uploads(region.uid, over)
    old = [path for path in files if over(path)]
    if not old:
        return 0

    def named(tx: Tx) -> set[str]:
        restored.same(tx, region)
        return rules.named(tx)

    kept = plane.do(named)
    return sum(storage.each(storage.delete, [path for path in old if path not in kept]))


def own(plane: ControlPlane, storage: Storage, region: Region) -> None:
    """Write the mark of ownership with the numbers issued so far, by which a copy or an older state is refused (SPEC T3)."""
    owner.claim(storage, region.uid, plane.place(), epoch=region.epoch, checkpoint=region.opened)
