"""Checks that archived offset ranges belong to Kafka's present topics, not to a deleted one or another cluster (SPEC K3, T2)."""

from __future__ import annotations

from collections.abc import Sequence

from crkafka_core.kafka.edge import Admin
from crkafka_core.model.errors import DataLoss
from crkafka_core.plane.reading import KafkaRange


def check_same(admin: Admin, ranges: Sequence[KafkaRange]) -> None:
    """Refuse ranges of another cluster or another topic of the same name, naming both ids."""
    clusters = {r.cluster_id for r in ranges if r.cluster_id}
    cluster = admin.cluster_id() if clusters else ""
    topics = admin.topics({r.topic for r in ranges})
    for r in ranges:
        archived = f"Checkpoint {r.checkpoint} is archived"
        if r.cluster_id and r.cluster_id != cluster:
            raise DataLoss(
                f"{archived}: it was read from the Kafka cluster {r.cluster_id}; bootstrap.servers leads to the cluster {cluster}.",
                hint="Read it with a configuration that names the cluster of that time, if it still exists.",
            )
        now = topics.get(r.topic)
        if now is None:
            raise DataLoss(
                f"{archived}, and Kafka no longer has topic {r.topic} with id {r.topic_id or 'unknown'}.",
                hint="It cannot be read again.",
            )
        if r.topic_id is None:
            raise DataLoss(
                f"{archived} without the id of topic {r.topic}, which was made anew at some time: it is unknown whether it was read from "
                f"the present topic, with id {now.id}.",
                hint="It was archived before ids were kept; it cannot be read again.",
            )
        if r.topic_id and now.id and r.topic_id != now.id:
            raise DataLoss(
                f"{archived}: it was read from topic {r.topic} with id {r.topic_id}; the topic of this name has the id {now.id} now.",
                hint="The topic was deleted and made anew: the records of the old one cannot be read again.",
            )


def check_uncut(admin: Admin, ranges: Sequence[KafkaRange]) -> None:
    """Refuse ranges of a log that was cut below their ends, also if other records have been written there since (SPEC S4). Only the last
    range of a partition is compared: leaders of the same epoch have the same log up to its end."""
    last = {r.tp: r for r in sorted(ranges, key=lambda r: r.stop) if r.leader_epoch >= 0}
    cut = admin.cut_below({tp: (r.stop, r.leader_epoch) for tp, r in last.items()}) if last else {}
    for r in sorted(ranges, key=lambda r: r.checkpoint):
        if r.stop > cut.get(r.tp, r.stop):
            raise DataLoss(
                f"Checkpoint {r.checkpoint} is archived: {r.tp} [{r.start}, {r.stop}) was read under the leader epoch "
                f"{last[r.tp].leader_epoch} or an earlier one, whose log ends at {cut[r.tp]} now.",
                hint="An unclean leader election cut it; other records have these offsets now.",
            )
