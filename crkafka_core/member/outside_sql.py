"""Looks outside SQL for what SQL never issued: commits in Kafka, paths of segments, the mark of ownership (SPEC G10, T3)."""

from __future__ import annotations

from dataclasses import dataclass

from crkafka_core.kafka.edge import Admin
from crkafka_core.model.segment import SegmentName
from crkafka_core.plane import starts
from crkafka_core.plane.restored import Seen
from crkafka_core.plane.transact import Readable
from crkafka_core.protocol.commit_metadata import CommitMetadata
from crkafka_core.segments import owner
from crkafka_core.segments.storage import Storage


@dataclass(frozen=True)
class OutsideSql:
    """The result; `seen` is then compared with what SQL knows, which is read *after* the storage was listed."""

    seen: Seen
    files: tuple[str, ...]
    """Paths of all files of the region."""


def look_outside(
    plane: Readable, storage: Storage, kafka: Admin | None, group_id: str = "", *, claim: bool = False
) -> OutsideSql:
    """Raises `NotOwner` when another control plane has marked the storage as its own, unless a person claims it. Without Kafka only the
    storage is looked at."""
    region, known = plane.read(lambda reader, row: (row, list(starts.known(reader))))
    checkpoint, epoch, where = 0, 0, []
    uid, place = region.uid, plane.place()
    mark = owner.read(storage, uid) if claim else owner.check(storage, uid, place, region=region.name)
    if mark is not None:
        epoch, checkpoint, where = mark.epoch, mark.checkpoint, [f"the mark {owner.path_of(uid)} in the storage"]
    for tp, commit in (kafka.committed(group_id, known) if kafka is not None else {}).items():
        parsed = CommitMetadata.parse(commit.metadata)
        if parsed is not None and parsed.uid == uid and parsed.checkpoint > checkpoint:
            checkpoint = parsed.checkpoint
            where.append(f"the committed offset of {tp}")
    files = tuple(file.path for file in storage.list(uid))
    names = [name for name in map(SegmentName.parse, files) if name is not None]
    newest = max(names, key=lambda name: name.epoch, default=None)
    if newest is not None and newest.epoch > epoch:
        epoch = newest.epoch
        where.append(f"the segment {newest.path}")
    numbers = frozenset((name.epoch, name.number) for name in names)
    return OutsideSql(Seen(epoch, checkpoint, " or ".join(where[-2:]), numbers), files)
