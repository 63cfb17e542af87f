"""`checkpoints`, `events` and `report`: what has happened, from SQL alone, also when Kafka is away (SPEC X8)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import click

from crkafka_core.cli.call import PATH, Answer, control_plane, number, verb
from crkafka_core.cli.output import moment, print_pairs, print_table, span
from crkafka_core.config import RegionConfig
from crkafka_core.control import Reader
from crkafka_core.model import rows
from crkafka_core.model.errors import ConfigError, NoSuchCheckpoint
from crkafka_core.model.plural import plural
from crkafka_core.plane import events as log
from crkafka_core.plane import resets, tables
from crkafka_core.plane.checkpoints import inside, newest
from crkafka_core.plane.status import Status, status_of

COUNTED = (rows.CheckpointStatus.MERGED, rows.CheckpointStatus.RETIRED, rows.CheckpointStatus.SUPERSEDED)
_TURNS = {"resumed": "running", "idle": "idle", "stopped": "stopped"}
"""Event that begins or ends a stretch of RUNNING → the state after it."""


@dataclass(frozen=True)
class Detail:
    """One checkpoint with what belongs to it."""

    checkpoint: rows.Checkpoint
    offsets: tuple[rows.MergedOffset, ...]
    contributions: tuple[rows.Contribution, ...]
    segments: tuple[rows.Segment, ...]


def _detail(reader: Reader, region: rows.Region, number: int) -> Detail:
    row = reader.get(rows.Checkpoint, number)
    if row is None:
        hint = "`crkafka checkpoints` lists them."
        raise NoSuchCheckpoint(f"Region {region.name} has no checkpoint {number}.", hint=hint)
    offsets, contributions, segments = inside(reader, number)
    return Detail(row, tuple(offsets), tuple(contributions), tuple(segments))


@verb("checkpoints")
@click.argument("wanted", type=number(1), metavar="[NUMBER]", required=False)
@click.option("--last", type=number(1), metavar="N", default=20, help="Number of checkpoints.")
@click.option("--all", "everything", is_flag=True, help="All checkpoints.")
def checkpoints(config: RegionConfig, *, wanted: int | None = None, last: int = 20, everything: bool = False) -> Answer:
    """List the last checkpoints, or show checkpoint NUMBER: its offsets, contributions, segments."""
    with control_plane(config) as plane:
        if wanted is not None:
            detail = plane.read(lambda reader, region: _detail(reader, region, wanted))
            return Answer(detail, lambda: _print_detail(detail))
        listed = plane.read(lambda reader, _: newest(reader, None if everything else last)[::-1])
    columns = ("id", "parent", "status", "rows", "segments", "members", "cause", "opened", "drain")
    cells = [
        (*(getattr(c, name) for name in columns[:-2]), moment(c.opened_at), span(c.drain_ms / 1000)) for c in listed
    ]
    return Answer(listed, lambda: print_table(columns, cells, empty=f"region {config.region} has no checkpoint yet"))


def _print_detail(detail: Detail) -> None:
    c = detail.checkpoint
    about = [(name, getattr(c, name)) for name in ("parent", "epoch", "cause", "note")]
    times = [("opened", moment(c.opened_at)), ("merged", moment(c.merged_at))]
    print_pairs([("checkpoint", f"{c.id}, {c.status}"), *about, *times, ("rows", c.rows), ("bytes", c.bytes)])
    offsets = (
        (o.topic, o.partition, o.from_offset, o.to_offset, o.rows, o.member or "carried forward")
        for o in detail.offsets
    )
    print()
    print_table(("topic", "partition", "from", "to", "rows", "member"), offsets, title="offsets")
    parts = ((p.member, p.incarnation, p.rows, span(p.drain_ms / 1000)) for p in detail.contributions)
    print()
    print_table(("member", "incarnation", "rows", "drain"), parts, title="contributions")
    print()
    print_table(("path", "rows", "bytes"), ((s.path, s.rows, s.bytes) for s in detail.segments), title="segments")


@verb("events")
@click.option("--last", type=number(1), metavar="N", default=30, help="Number of events.")
@click.option("--since", type=number(0), metavar="N", help="All events after this number.")
def events(config: RegionConfig, *, last: int = 30, since: int | None = None) -> Answer:
    """List the last events: what happened, to which checkpoint and member, on whose request, and why."""
    with control_plane(config) as plane:
        listed = plane.read(lambda reader, _: log.last(reader, last) if since is None else log.since(reader, since))
    columns = ("number", "when", "epoch", "event", "checkpoint", "member", "by", "what")
    cells = [(e.seq, moment(e.at), e.epoch, e.kind, e.checkpoint or None, e.member, e.by, e.text) for e in listed]
    return Answer(listed, lambda: print_table(columns, cells, empty=f"region {config.region} has no events"))


class Stretch(NamedTuple):
    state: str
    """running, starting, resetting, stopped or idle."""
    since: float
    until: float
    """0 while it lasts."""
    text: str


@dataclass(frozen=True)
class Report:
    """The data of the page, from one read of the control plane."""

    status: Status
    events: tuple[rows.Event, ...]
    """The last 60, oldest first."""
    cuts: tuple[rows.Checkpoint, ...]
    """Merged ones, oldest first."""
    began: Mapping[int, float]
    """Checkpoint → the earliest time of its first record: the cut before it, or the resume after that."""
    stretches: tuple[Stretch, ...]
    resets: tuple[rows.Reset, ...]
    deaths: tuple[rows.Event, ...]
    freshness: tuple[tuple[rows.TableCommit, float], ...]
    """Commits to tables, and the age of the newest checkpoint of each then."""

    @property
    def begin(self) -> float:
        return min((*self.began.values(), *(s.since for s in self.stretches)), default=self.status.now)


def _read(reader: Reader, region: rows.Region, last: int) -> Report:
    cuts = newest(reader, last, COUNTED)[::-1]
    since = cuts[0].opened_at if len(cuts) == last else 0.0
    logged, begun = log.after(reader, since), resets.after(reader, since)
    ends = sorted((*(e.at for e in logged if e.kind == "resumed"), *(row.merged_at for row in cuts)))
    before = {row.id: bisect_left(ends, row.opened_at) for row in cuts}
    merged = {c.id: c.merged_at for c in cuts if c.rows}
    return Report(
        status=status_of(reader, region),
        events=tuple(log.last(reader, 60)),
        cuts=tuple(cuts),
        began={row.id: ends[before[row.id] - 1] if before[row.id] else row.opened_at for row in cuts},
        stretches=tuple(_stretches(logged, begun)),
        resets=tuple(r for r in begun if r.cause not in (rows.ResetCause.START, rows.ResetCause.STOP)),
        deaths=tuple(e for e in logged if e.kind == "process died"),
        freshness=tuple((c, max(0.0, c.at - merged[c.upto])) for c in tables.advances(reader) if c.upto in merged),
    )


def _stretches(logged: list[rows.Event], resets: list[rows.Reset]) -> list[Stretch]:
    marks = [(e.at, _TURNS[e.kind], e.text) for e in logged if e.kind in _TURNS]
    for reset in resets:
        if reset.cause is not rows.ResetCause.STOP:
            marks.append((reset.at, "starting" if reset.cause is rows.ResetCause.START else "resetting", reset.text))
    marks.sort(key=lambda mark: mark[0])
    stretches: list[Stretch] = []
    for (at, state, text), until in zip(marks, [*(at for at, *_ in marks[1:]), 0.0], strict=False):
        if stretches and stretches[-1].state == state:
            stretches[-1] = stretches[-1]._replace(until=until)
        else:
            stretches.append(Stretch(state, at, until, text))
    return stretches


def read_report(config: RegionConfig, *, last: int = 500) -> Report:
    """The last `last` checkpoints, and the events meanwhile."""
    with control_plane(config) as plane:
        return plane.read(lambda reader, region: _read(reader, region, last))


@verb("report")
@click.option("-o", "--output", type=PATH, metavar="FILE", help="The file [default: report-REGION.html].")
@click.option("--last", type=number(2), metavar="N", default=500, help="Number of the newest checkpoints.")
def report(config: RegionConfig, *, output: Path | None = None, last: int = 500) -> Answer:
    """Write the region's history into one HTML file: cuts, resets, pauses, tables' freshness, lag.

    Reads the control plane only; the region may run or not. The page needs no network.
    """
    from crkafka_core.cli.report_page import page

    file = output or Path(f"report-{config.region}.html")
    result = read_report(config, last=last)
    try:
        file.write_text(page(result), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}.", hint="Name another file with -o.") from None
    text = f"{file}: {plural(len(result.cuts), 'checkpoint')}, {plural(len(result.resets), 'reset')}"
    return Answer({"file": str(file), "checkpoints": len(result.cuts), "resets": len(result.resets)}, text)
