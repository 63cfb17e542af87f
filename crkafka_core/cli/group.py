"""`group`: the consumer group as Kafka knows it, beside what the control plane knows (SPEC U5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from crkafka_core.cli.call import json_option, with_config
from crkafka_core.cli.output import note, print_json, print_pairs, print_table
from crkafka_core.cli.resources import control_plane
from crkafka_core.cli.status import print_members
from crkafka_core.config import RegionConfig, redact
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.group import GroupReport, report
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.plane import alarms, starts
from crkafka_core.plane.status import MemberView, status_of


@dataclass(frozen=True)
class GroupView:
    """One group as Kafka and the control plane know it."""

    kafka: GroupReport
    members: tuple[MemberView, ...]
    head: int
    head_offsets: dict[TP, int]
    gaps: tuple[str, ...]
    """Questions without an answer, each with the reason."""
    foreign: tuple[str, ...] = ()
    """Client ids in the group that are not members of this region (SPEC G8)."""


def group(config: RegionConfig) -> GroupView:
    """Ask Kafka and the control plane; a missing answer is named in `gaps`."""
    gaps: list[str] = []
    members: tuple[MemberView, ...] = ()
    head, offsets, known = 0, {}, set[TP]()
    try:
        with control_plane(config) as plane:
            status, merged, known = plane.read(
                lambda reader, region: (
                    status_of(reader, region),
                    starts.merged(reader, region.head) if region.head else {},
                    set(starts.known(reader)),
                )
            )
            members, head = status.members, status.region.head
            offsets = {tp: o.to_offset for tp, o in merged.items()}
    except CrkafkaError as error:
        gaps.append(f"control plane: {redact(str(error))}")
    admin = KafkaAdmin(config.resolved_kafka(), timeout=4.0)
    admin.cluster_id()  # a Kafka that is away fails here, once and soon
    topics = admin.topics(config.topics or (), pattern=config.pattern)
    tps = known | {tp for name, info in topics.items() for tp in info.tps(name)}
    described = report(admin, config.group_id, tps)
    ours = {f"crkafka-{m.name}-{m.incarnation}" for m in members}
    foreign = tuple(m.client_id for m in described.members if alarms.is_foreign(config.region, m.client_id, ours))
    return GroupView(described, members, head, offsets, (*described.gaps, *gaps), foreign)


@click.command("group")
@with_config
@json_option
def _group(config: RegionConfig, as_json: bool) -> None:
    """The consumer group as Kafka knows it, beside what the control plane knows."""
    view = group(config)
    if as_json:
        print_json(_plain(view))
    else:
        _print(view)


def _plain(view: GroupView) -> dict[str, Any]:
    return {
        **{name: getattr(view.kafka, name) for name in _OF_KAFKA},
        "partitions": [
            {
                "topic": p.tp.topic,
                "partition": p.tp.partition,
                "committed": p.committed,
                "head": view.head_offsets.get(p.tp),
                "last_stable": p.last_stable,
                "high_watermark": p.high_watermark,
                "lag": p.lag,
                "holder": _holder(view, p.tp),
            }
            for p in view.kafka.partitions
        ],
        "foreign": view.foreign,
        "registered": view.members,
        "head": view.head,
        "gaps": view.gaps,
    }


def _print(view: GroupView) -> None:
    k = view.kafka
    print_pairs(
        [
            ("group", k.group_id),
            ("state", k.state),
            ("coordinator", k.coordinator),
            ("assignor", k.assignor),
            ("lag", k.lag),
        ]
    )
    print()
    print_table(
        ("client", "instance", "host", "partitions", ""),
        (
            (m.client_id, m.instance_id, m.host, len(m.partitions), "FOREIGN" if m.client_id in view.foreign else "")
            for m in k.members
        ),
        title="members that Kafka knows",
    )
    print("\nmembers that the control plane knows")
    print_members(view.members)
    print()
    _print_partitions(view)
    if view.foreign:
        note(
            "FOREIGN: not a member of this region; the region does not read its partitions. End it, or use another group.id"
        )
    for gap in view.gaps:
        note(f"not known: {gap}")


def _print_partitions(view: GroupView) -> None:
    print_table(
        ("topic", "partition", "committed", f"head {view.head}", "last stable", "high watermark", "lag", "held by"),
        (
            (
                *p.tp,
                p.committed,
                view.head_offsets.get(p.tp),
                p.last_stable,
                p.high_watermark,
                p.lag,
                _holder(view, p.tp),
            )
            for p in view.kafka.partitions
        ),
        title="partitions",
    )


_OF_KAFKA = ("group_id", "state", "coordinator", "assignor", "members", "lag")


def _holder(view: GroupView, tp: TP) -> str:
    return ", ".join(m.name for m in view.members if m.partitions is not None and tp in m.partitions)


COMMANDS: dict[str, Any] = {"group": _group}
