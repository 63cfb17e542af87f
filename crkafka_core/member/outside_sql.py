"""Looks outside SQL: for what SQL never issued, as commits in Kafka, paths of segments, the mark of ownership (SPEC G10, T3); and for a
region of another control plane, unknown to ours, that uses the group (SPEC G1). Only the latter imports a client of Kafka."""

from __future__ import annotations

import re
import socket
from contextlib import closing, suppress
from dataclasses import dataclass

from crkafka_core.config import RegionConfig
from crkafka_core.kafka.edge import Admin
from crkafka_core.model.errors import ServiceUnavailable, WrongRegion
from crkafka_core.model.segment import SegmentName
from crkafka_core.plane import alarms, starts
from crkafka_core.plane.restored import Seen
from crkafka_core.plane.transact import Readable
from crkafka_core.protocol.commit_metadata import CommitMetadata
from crkafka_core.segments import owner
from crkafka_core.segments.storage import Storage

_MEMBER = re.compile(r"crkafka-(?P<uid>[0-9a-f]{8})-(?P<region>.+)/\d+-[0-9a-f]+")
"""Client id of a member."""


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


def refuse_anothers(admin: Admin, config: RegionConfig, uid: str) -> None:
    """Refuse a group in which another region commits, or has members. `uid`: of this region, empty before it is made. `start.adopt` takes
    over the commits of one that is gone, and no live members. A missing right refuses nothing here: the call that needs it reports it."""
    from crkafka_core.kafka.errors import NotAllowed

    group = config.group_id
    with suppress(NotAllowed):
        topics = admin.topics(config.topics or (), pattern=config.pattern)
        tps = [tp for topic, info in topics.items() for tp in info.tps(topic)]
        for tp, commit in sorted(admin.committed(group, tps).items()):
            parsed = CommitMetadata.parse(commit.metadata)
            if parsed is not None and parsed.uid not in (uid, config.start.adopt):
                raise WrongRegion(
                    f"Group {group!r} belongs to another region, with uid {parsed.uid}: it has committed offset {commit.offset} of {tp}.",
                    hint="Give this region a group.id of its own. If the other is gone for good, "
                    f"`start: {{position: default, adopt: {parsed.uid}}}` goes on where it stopped.",
                )
    with suppress(NotAllowed):
        for client in admin.client_ids(group):
            member = _MEMBER.fullmatch(client)
            if member is not None and alarms.is_foreign(uid, config.region, client):
                raise WrongRegion(
                    f"Group {group!r} has a member of region {member['region']}, which another control plane has: {client}.",
                    hint="Give this region a group.id of its own, or stop the other region for good first: "
                    "Kafka counts an ended member for its session.timeout.ms.",
                )


def refuse_anothers_now(config: RegionConfig, uid: str) -> None:
    """The same where Kafka answers already: a region is made and started without it, and its members look before they join."""
    from crkafka_core.kafka.admin import KafkaAdmin

    if not _listens(config.resolved_kafka()["bootstrap.servers"]):
        return
    with suppress(ServiceUnavailable), closing(KafkaAdmin(config.resolved_kafka(), timeout=4.0)) as admin:
        refuse_anothers(admin, config, uid)


def _listens(servers: str) -> bool:
    """Whether one of them takes connections: a client would wait its whole time for one that does not."""
    for server in servers.split(","):
        host, _, port = server.rpartition("://")[2].strip().rpartition(":")
        with suppress(OSError, ValueError), socket.create_connection((host.strip("[]"), int(port)), timeout=1.0):
            return True
    return False
