"""Looks outside SQL for numbers that SQL never issued: commits in Kafka, paths of segments (SPEC G10)."""

from __future__ import annotations

from collections.abc import Iterable

from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.model.offsets import TP
from crkafka_core.plane.restored import Seen
from crkafka_core.protocol.commit_metadata import CommitMetadata
from crkafka_core.segments.path import SegmentName
from crkafka_core.segments.storage import Storage


def look(uid: str, group_id: str, tps: Iterable[TP], admin: KafkaAdmin, storage: Storage) -> Seen:
    """The highest epoch and checkpoint that anything outside SQL names for this region's uid."""
    checkpoint, epoch, where = 0, 0, []
    for tp, commit in admin.committed(group_id, tps).items():
        said = CommitMetadata.parse(commit.metadata)
        if said is not None and said.uid == uid and said.checkpoint > checkpoint:
            checkpoint, where = said.checkpoint, [f"the committed offset of {tp}"]
    for file in storage.list(uid):
        name = SegmentName.parse(file.path)
        if name is not None and name.epoch > epoch:
            epoch, last = name.epoch, file.path
    if epoch:
        where.append(f"the segment {last}")
    return Seen(epoch, checkpoint, " or ".join(where))
