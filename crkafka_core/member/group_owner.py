"""The owner of a group by Kafka's account: a region of another control plane, unknown to ours, may use it (SPEC G1)."""

from __future__ import annotations

import re
import socket
from contextlib import closing, suppress

from crkafka_core.config import RegionConfig
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.edge import Admin
from crkafka_core.kafka.errors import NotAllowed
from crkafka_core.model.errors import ServiceUnavailable, WrongRegion
from crkafka_core.plane import alarms
from crkafka_core.protocol.commit_metadata import CommitMetadata

_MEMBER = re.compile(r"crkafka-(?P<uid>[0-9a-f]{8})-(?P<region>.+)/\d+-[0-9a-f]+")
"""Client id of a member."""


def refuse_anothers(admin: Admin, config: RegionConfig, uid: str) -> None:
    """Refuse a group in which another region commits, or has members. `uid`: of this region, empty before it is made. `start.adopt` takes
    over the commits of one that is gone, and no live members. A missing right refuses nothing here: the call that needs it reports it."""
    group = config.group_id
    with suppress(NotAllowed):
        topics = admin.topics(config.topics or (), pattern=config.pattern)
        tps = [tp for topic, info in topics.items() for tp in info.tps(topic)]
        for tp, commit in sorted(admin.committed(group, tps).items()):
            owner = CommitMetadata.parse(commit.metadata)
            if owner is not None and owner.uid not in (uid, config.start.adopt):
                raise WrongRegion(
                    f"Group {group!r} belongs to another region, with uid {owner.uid}: it has committed offset {commit.offset} of {tp}.",
                    hint="Give this region a group.id of its own. If the other is gone for good, "
                    f"`start: {{position: default, adopt: {owner.uid}}}` goes on where it stopped.",
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
