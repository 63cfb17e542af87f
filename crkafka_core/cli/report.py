"""`report`: a region's history as one HTML file without dependencies: timeline, pauses, freshness, lag (SPEC X8)."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

import click

from crkafka_core.cli import report_page
from crkafka_core.cli.call import Answer, number, verb
from crkafka_core.cli.resources import control_plane
from crkafka_core.config import RegionConfig
from crkafka_core.control import Reader
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Event, Region, Reset, ResetCause
from crkafka_core.plane import checkpoints, events, resets, tables
from crkafka_core.plane.status import Status, status_of

COUNTED = (CheckpointStatus.MERGED, CheckpointStatus.RETIRED, CheckpointStatus.SUPERSEDED)
_TURNS = ("resumed", "idle", "stopped")
"""Events that begin or end a stretch of RUNNING."""
_NOT_BREAKS = (ResetCause.START, ResetCause.STOP)


@dataclass(frozen=True)
class Stretch:
    """A span of time in one state; `until` is 0 while it lasts."""

    state: str
    """running, starting, resetting, stopped or idle."""
    since: float
    until: float
    text: str = ""


@dataclass(frozen=True)
class Cut:
    """A merged checkpoint as a stretch of throughput."""

    id: int
    status: str
    rows: int
    began: float
    """The earliest time of its first record: the cut before it, or the resume after that."""
    merged: float
    drain_ms: int
    cause: str


@dataclass(frozen=True)
class Freshness:
    """One commit of a table, and the age of its newest checkpoint then."""

    table: str
    upto: int
    at: float
    seconds: float


@dataclass(frozen=True)
class Report:
    """The data of the page, from one read of the control plane."""

    status: Status
    events: tuple[Event, ...]
    """The last 60, oldest first."""
    cuts: tuple[Cut, ...]
    stretches: tuple[Stretch, ...]
    resets: tuple[Reset, ...]
    deaths: tuple[Event, ...]
    freshness: tuple[Freshness, ...]

    @property
    def begin(self) -> float:
        return min((*(c.began for c in self.cuts), *(s.since for s in self.stretches)), default=self.status.now)

    @property
    def positions(self) -> list[tuple[str, str, int, int]]:
        """Member, partition, position, and number of offsets behind the end, by the members' last reports."""
        return [
            (member.name, f"{topic}[{partition}]", int(position), max(0, int(high) - int(position)))
            for member in self.status.members
            for topic, partitions in (member.metrics.get("partitions") or {}).items()
            for partition, (position, high) in partitions.items()
        ]


def report(config: RegionConfig, *, last: int = 500) -> Report:
    """The last `last` checkpoints, and the events meanwhile."""
    with control_plane(config) as plane:
        return plane.read(lambda reader, region: _read(reader, region, last))


def _read(reader: Reader, region: Region, last: int) -> Report:
    rows = checkpoints.newest(reader, last, COUNTED)[::-1]
    since = rows[0].opened_at if len(rows) == last else 0.0
    logged = events.after(reader, since)
    begun = resets.after(reader, since)
    resumed = [e.at for e in logged if e.kind == "resumed"]
    merged = {c.id: c.merged_at for c in rows if c.rows}
    return Report(
        status=status_of(reader, region),
        events=tuple(events.last(reader, 60)),
        cuts=tuple(_cuts(rows, resumed)),
        stretches=tuple(_stretches([e for e in logged if e.kind in _TURNS], begun)),
        resets=tuple(r for r in begun if r.cause not in _NOT_BREAKS),
        deaths=tuple(e for e in logged if e.kind == "process died"),
        freshness=tuple(
            Freshness(c.table, c.upto, c.at, max(0.0, c.at - merged[c.upto]))
            for c in tables.advances(reader)
            if c.upto in merged
        ),
    )


def _cuts(rows: list[Checkpoint], resumed: list[float]) -> list[Cut]:
    out: list[Cut] = []
    ends = sorted((*resumed, *(row.merged_at for row in rows)))
    for row in rows:
        at = bisect_left(ends, row.opened_at)
        began = ends[at - 1] if at else row.opened_at
        out.append(Cut(row.id, row.status, row.rows, began, row.merged_at, row.drain_ms, row.cause))
    return out


def _stretches(turns: list[Event], resets: list[Reset]) -> list[Stretch]:
    names = {"resumed": "running", "idle": "idle", "stopped": "stopped"}
    marks = [(e.at, names[e.kind], e.text) for e in turns]
    for reset in resets:
        if reset.cause is not ResetCause.STOP:
            marks.append((reset.at, "starting" if reset.cause is ResetCause.START else "resetting", reset.text))
    marks.sort(key=lambda mark: mark[0])
    out: list[Stretch] = []
    for index, (at, state, text) in enumerate(marks):
        until = marks[index + 1][0] if index + 1 < len(marks) else 0.0
        if out and out[-1].state == state:
            out[-1] = Stretch(state, out[-1].since, until, out[-1].text)
        else:
            out.append(Stretch(state, at, until, text))
    return out


@verb("report")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The file [default: report-REGION.html].",
)
@click.option(
    "--last", type=number(2), metavar="N", default=500, show_default=True, help="Number of the newest checkpoints."
)
def _report(config: RegionConfig, output: Path | None, last: int) -> Answer:
    """Write the region's history into one HTML file: cuts, resets, pauses, tables' freshness, lag.

    Reads the control plane only; the region may run or not. The page needs no network.
    """
    file = output or Path(f"report-{config.region}.html")
    result = report(config, last=last)
    try:
        file.write_text(report_page.page(result), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}.", hint="Name another file with -o.") from None
    text = f"{file}: {plural(len(result.cuts), 'checkpoint')}, {plural(len(result.resets), 'reset')}"
    return Answer({"file": str(file), "checkpoints": len(result.cuts), "resets": len(result.resets)}, text)
