"""`group`: the consumer group as Kafka knows it, beside what the control plane knows (SPEC U5)."""

from __future__ import annotations

from functools import partial

from crkafka_core.cli.call import Answer, verb
from crkafka_core.cli.output import print_pairs, print_table
from crkafka_core.cli.resources import control_plane
from crkafka_core.cli.status import print_members
from crkafka_core.config import RegionConfig, redact
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.group import GroupReport, report
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Region
from crkafka_core.plane import alarms, starts
from crkafka_core.plane.status import MemberView, status_of

_OF_KAFKA = ("state", "coordinator", "assignor", "lag")
_PARTITION = ("topic", "partition", "committed", "head", "last_stable", "high_watermark", "lag", "holder")


@verb("group")
def group(config: RegionConfig) -> Answer:
    """The consumer group as Kafka knows it, beside what the control plane knows."""
    members, region, offsets, known, gaps = _stored(config)
    admin = KafkaAdmin(config.resolved_kafka(), timeout=4.0)
    admin.cluster_id()  # a Kafka that is away fails here, once and soon
    topics = admin.topics(config.topics or (), pattern=config.pattern)
    kafka = report(admin, config.group_id, known | {tp for name, info in topics.items() for tp in info.tps(name)})
    gaps = [*kafka.gaps, *gaps]
    head, uid = (region.head, region.uid) if region is not None else (0, "")
    # Client ids in the group that are not members of this region (SPEC G8).
    foreign = [m.client_id for m in kafka.members if uid and alarms.is_foreign(uid, config.region, m.client_id)]
    partitions = list[tuple[object, ...]]()
    for p in kafka.partitions:
        holders = (m.name for m in members if m.partitions is not None and p.tp in m.partitions)
        ends = (p.last_stable, p.high_watermark, p.lag)
        partitions.append((*p.tp, p.committed, offsets.get(p.tp), *ends, ", ".join(holders)))

    value = {
        **{name: getattr(kafka, name) for name in ("group_id", *_OF_KAFKA, "members")},
        "partitions": [dict(zip(_PARTITION, row, strict=True)) for row in partitions],
        "foreign": foreign,
        "registered": members,
        "head": head,
        "gaps": gaps,
    }
    notes = [f"not known: {gap}" for gap in gaps]
    if foreign:
        what = "not a member of this region; the region does not read its partitions. End it, or use another group.id"
        notes.insert(0, f"FOREIGN: {what}")
    return Answer(value, partial(_print, kafka, members, foreign, head, partitions), notes)


def _stored(
    config: RegionConfig,
) -> tuple[tuple[MemberView, ...], Region | None, dict[TP, int], set[TP], list[str]]:
    """Members, the region, its head's offsets and the known partitions, by the control plane; and why it has no answer."""
    try:
        with control_plane(config) as plane:
            status, merged, known = plane.read(
                lambda reader, region: (
                    status_of(reader, region),
                    starts.merged(reader, region.head) if region.head else {},
                    set(starts.known(reader)),
                )
            )
    except CrkafkaError as error:
        return (), None, {}, set(), [f"control plane: {redact(str(error))}"]
    return status.members, status.region, {tp: o.to_offset for tp, o in merged.items()}, known, []


def _print(
    kafka: GroupReport,
    members: tuple[MemberView, ...],
    foreign: list[str],
    head: int,
    partitions: list[tuple[object, ...]],
) -> None:
    print_pairs([("group", kafka.group_id), *((name, getattr(kafka, name)) for name in _OF_KAFKA)])
    print()
    print_table(
        ("client", "instance", "host", "partitions", ""),
        (
            (m.client_id, m.instance_id, m.host, len(m.partitions), "FOREIGN" if m.client_id in foreign else "")
            for m in kafka.members
        ),
        title="members that Kafka knows",
    )
    print("\nmembers that the control plane knows")
    print_members(members)
    print()
    columns = ("topic", "partition", "committed", f"head {head}", "last stable", "high watermark", "lag", "held by")
    print_table(columns, partitions, title="partitions")
