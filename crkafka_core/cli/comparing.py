"""`group` and `verify`: the region beside what Kafka, segments and tables really have (SPEC U5)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from crkafka_core.cli.call import Answer, control_plane, verb
from crkafka_core.cli.output import Say, plain, print_pairs, print_table, silent
from crkafka_core.cli.status import print_members
from crkafka_core.config import RegionConfig, redact
from crkafka_core.control import Reader
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.group import GroupReport, report
from crkafka_core.model import rows
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural
from crkafka_core.plane import alarms, lateness, starts
from crkafka_core.plane.status import MemberView, status_of

_OF_KAFKA = ("state", "coordinator", "assignor", "lag")
_PARTITION = ("topic", "partition", "committed", "head", "last_stable", "high_watermark", "lag", "holder")
Stored = tuple[tuple[MemberView, ...], rows.Region | None, dict[TP, int], set[TP], list[str]]
"""What the control plane knows, and why it has no answer."""


@verb("group")
def group(config: RegionConfig) -> Answer:
    """The consumer group as Kafka knows it, beside what the control plane knows."""
    try:
        with control_plane(config) as plane:
            stored = plane.read(_stored)
    except CrkafkaError as error:
        stored = (), None, {}, set(), [f"control plane: {redact(str(error))}"]
    members, region, offsets, known, gaps = stored
    admin = KafkaAdmin(config.resolved_kafka(), timeout=4.0)
    admin.cluster_id()  # a Kafka that is away fails here, once and soon
    topics = admin.topics(config.topics or (), pattern=config.pattern)
    kafka = report(admin, config.group_id, known | {tp for name, info in topics.items() for tp in info.tps(name)})
    gaps = [*kafka.gaps, *gaps]
    head, uid = (region.head, region.uid) if region is not None else (0, "")
    # Client ids in the group that are not members of this region (SPEC G8).
    foreign = [m.client_id for m in kafka.members if uid and alarms.is_foreign(uid, config.region, m.client_id)]
    partitions: list[tuple[object, ...]] = []
    for p in kafka.partitions:
        holders = ", ".join(m.name for m in members if m.partitions is not None and p.tp in m.partitions)
        partitions.append((*p.tp, p.committed, offsets.get(p.tp), p.last_stable, p.high_watermark, p.lag, holders))
    value = {name: getattr(kafka, name) for name in ("group_id", *_OF_KAFKA, "members")}
    value["partitions"] = [dict(zip(_PARTITION, row, strict=True)) for row in partitions]
    value |= {"foreign": foreign, "registered": members, "head": head, "gaps": gaps}
    notes = [f"not known: {gap}" for gap in gaps]
    if foreign:
        what = "not a member of this region; the region does not read its partitions. End it, or use another group.id"
        notes.insert(0, f"FOREIGN: {what}")
    return Answer(value, partial(_print, kafka, members, foreign, head, partitions), notes)


def _stored(reader: Reader, region: rows.Region) -> Stored:
    """Members, the region, its head's offsets and the known partitions."""
    merged = starts.merged(reader, region.head) if region.head else {}
    offsets = {tp: row.to_offset for tp, row in merged.items()}
    return status_of(reader, region).members, region, offsets, set(starts.known(reader)), []


def _print(
    kafka: GroupReport,
    members: tuple[MemberView, ...],
    foreign: list[str],
    head: int,
    partitions: list[tuple[object, ...]],
) -> None:
    print_pairs([("group", kafka.group_id), *((name, getattr(kafka, name)) for name in _OF_KAFKA)])
    print()
    clients = (
        (m.client_id, m.instance_id, m.host, len(m.partitions), "FOREIGN" if m.client_id in foreign else "")
        for m in kafka.members
    )
    print_table(("client", "instance", "host", "partitions", ""), clients, title="members that Kafka knows")
    print("\nmembers that the control plane knows")
    print_members(members)
    print()
    columns = ("topic", "partition", "committed", f"head {head}", "last stable", "high watermark", "lag", "held by")
    print_table(columns, partitions, title="partitions")


@verb("verify", doing="verifying")
@click.option("--kafka/--no-kafka", default=True, help="Compare with the records in Kafka.")
@click.option(
    "--ledger",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The ledger of the generator that produced the records.",
)
@click.option("--quiet", is_flag=True, help="The region is at rest: committed offsets must equal the head.")
def verify(
    config: RegionConfig, *, kafka: bool = True, ledger: Path | None = None, quiet: bool = False, say: Say = silent
) -> Answer:
    """Read back what landed, and the declared tables, and name the first record that breaks an invariant; then exit code 1.

    Changes nothing; the region may run meanwhile.
    """
    from crkafka_core.region import Region
    from crkafka_core.verify.ledger import Ledger
    from crkafka_core.verify.verify import verify as judge

    say("reading what landed")
    with Region.open(config) as region:
        verdict = judge(region, Ledger.load(ledger) if ledger else None, kafka=kafka, quiet=quiet)
        late = region.plane.read(lateness.late)  # declared tables (SPEC K6)
    notes, ok = list(verdict.notes), verdict.ok and not late
    if verdict.orphans:
        it, began = ("it", "it") if verdict.orphans == 1 else ("them", "they")
        collected = f"`crkafka retire` collects {it} once the head is past where {began} began"
        notes.insert(0, f"{plural(verdict.orphans, 'orphaned file')}, invisible to readers; {collected}")
    return Answer({**plain(verdict), "ok": ok, "late": late}, "\n".join([str(verdict), *late]), notes, int(not ok))
