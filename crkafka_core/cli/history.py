"""`checkpoints` and `events`: what has happened, from SQL alone, also when Kafka is away."""

from __future__ import annotations

from dataclasses import dataclass

import click

from crkafka_core.cli.call import Answer, number, verb
from crkafka_core.cli.output import moment, print_pairs, print_table, span
from crkafka_core.cli.resources import control_plane
from crkafka_core.config import RegionConfig
from crkafka_core.control import Reader
from crkafka_core.model.errors import NoSuchCheckpoint
from crkafka_core.model.rows import Checkpoint, Contribution, MergedOffset, Region, Segment
from crkafka_core.plane import events as log
from crkafka_core.plane.checkpoints import inside, newest


@dataclass(frozen=True)
class Detail:
    """One checkpoint with its offsets, contributions and segments."""

    checkpoint: Checkpoint
    offsets: tuple[MergedOffset, ...]
    contributions: tuple[Contribution, ...]
    segments: tuple[Segment, ...]


def _detail(reader: Reader, region: Region, number: int) -> Detail:
    row = reader.get(Checkpoint, number)
    if row is None:
        raise NoSuchCheckpoint(
            f"Region {region.name} has no checkpoint {number}.", hint="`crkafka checkpoints` lists them."
        )
    offsets, contributions, segments = inside(reader, number)
    return Detail(row, tuple(offsets), tuple(contributions), tuple(segments))


@verb("checkpoints")
@click.argument("wanted", type=number(1), metavar="[NUMBER]", required=False)
@click.option("--last", type=number(1), metavar="N", default=20, show_default=True, help="Number of checkpoints.")
@click.option("--all", "everything", is_flag=True, help="All checkpoints.")
def checkpoints(config: RegionConfig, *, wanted: int | None = None, last: int = 20, everything: bool = False) -> Answer:
    """List the last checkpoints, or show checkpoint NUMBER: its offsets, contributions, segments."""
    with control_plane(config) as plane:
        if wanted is not None:
            detail = plane.read(lambda reader, region: _detail(reader, region, wanted))
            return Answer(detail, lambda: _print_detail(detail))
        rows = plane.read(lambda reader, _: newest(reader, None if everything else last)[::-1])
    columns = ("id", "parent", "status", "rows", "segments", "members", "cause", "opened", "drain")
    cells = [(*(getattr(c, name) for name in columns[:-2]), moment(c.opened_at), span(c.drain_ms / 1000)) for c in rows]
    return Answer(rows, lambda: print_table(columns, cells, empty=f"region {config.region} has no checkpoint yet"))


def _print_detail(detail: Detail) -> None:
    c = detail.checkpoint
    print_pairs(
        [
            ("checkpoint", f"{c.id}, {c.status}"),
            ("parent", c.parent),
            ("epoch", c.epoch),
            ("cause", c.cause),
            ("note", c.note),
            ("opened", moment(c.opened_at)),
            ("merged", moment(c.merged_at)),
            ("rows", c.rows),
            ("bytes", c.bytes),
        ]
    )
    print()
    print_table(
        ("topic", "partition", "from", "to", "rows", "member"),
        (
            (o.topic, o.partition, o.from_offset, o.to_offset, o.rows, o.member or "carried forward")
            for o in detail.offsets
        ),
        title="offsets",
    )
    print()
    print_table(
        ("member", "incarnation", "rows", "drain"),
        ((p.member, p.incarnation, p.rows, span(p.drain_ms / 1000)) for p in detail.contributions),
        title="contributions",
    )
    print()
    print_table(("path", "rows", "bytes"), ((s.path, s.rows, s.bytes) for s in detail.segments), title="segments")


@verb("events")
@click.option("--last", type=number(1), metavar="N", default=30, show_default=True, help="Number of events.")
@click.option("--since", type=number(0), metavar="N", help="All events after this number.")
def events(config: RegionConfig, *, last: int = 30, since: int | None = None) -> Answer:
    """List the last events: what happened, to which checkpoint and member, on whose request, and why."""
    with control_plane(config) as plane:
        rows = plane.read(lambda reader, _: log.last(reader, last) if since is None else log.since(reader, since))
    columns = ("number", "when", "epoch", "event", "checkpoint", "member", "by", "what")
    cells = [(e.seq, moment(e.at), e.epoch, e.kind, e.checkpoint or None, e.member, e.by, e.text) for e in rows]
    return Answer(rows, lambda: print_table(columns, cells, empty=f"region {config.region} has no events"))
