"""`watch`: a live view of members, partitions, tables, cuts and resets, on a terminal of 80 columns or more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from crkafka_core.cli.call import json_option, with_config
from crkafka_core.cli.history import without_configuration
from crkafka_core.cli.output import moment, phase_for, shown, span
from crkafka_core.cli.pauses import in_words
from crkafka_core.cli.plane import control_plane
from crkafka_core.cli.snapshot import Snapshot, take
from crkafka_core.config import RegionConfig, redact
from crkafka_core.model.errors import ServiceUnavailable
from crkafka_core.model.plural import plural
from crkafka_core.model.visible import json_text, visible

_COLOUR = {"RUNNING": "green", "CUTTING": "cyan", "STOPPED": "bold red", "IDLE": "dim"}


def watch(config: RegionConfig, *, interval: float = 1.0) -> Iterator[Snapshot | ServiceUnavailable]:
    """A snapshot after each change, at the latest after `interval` seconds, for ever; or why there is none."""
    with control_plane(config) as plane:
        while True:
            try:
                snapshot = plane.read(lambda reader, region: take(reader, region, config))
                yield snapshot
                plane.wait(snapshot.region.version, interval)
            except ServiceUnavailable as error:
                yield error
                time.sleep(interval)


@click.command("watch")
@with_config
@click.option(
    "--interval", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="Seconds between looks."
)
@click.option("--once", is_flag=True, help="One look.")
@json_option
def _watch(config: RegionConfig, interval: float, once: bool, as_json: bool) -> None:
    """A live view: members, partitions, lag, cuts, resets. With --json, one line per look."""
    looks = watch(config, interval=interval)
    if as_json or once:
        console = Console()
        for look in looks:
            if as_json:
                print(json_text(_plain(look)), flush=True)
            else:
                console.print(view(look, 0.0, None))
            if once:
                return
    else:
        _live(looks)


def _live(looks: Iterator[Snapshot | ServiceUnavailable]) -> None:
    last: Snapshot | None = None
    with Live(screen=True, auto_refresh=False) as live:
        for look in looks:
            live.update(view(look, rate_of(last, look), last), refresh=True)
            last = look if isinstance(look, Snapshot) else last


def _plain(look: Snapshot | ServiceUnavailable) -> dict[str, Any]:
    return without_configuration(look) if isinstance(look, Snapshot) else {"error": redact(str(look))}


def _submitted(look: Snapshot) -> float:
    return sum(float(m.metrics.get("submitted", 0)) for m in look.members)


def rate_of(last: Snapshot | None, look: Snapshot | ServiceUnavailable) -> float:
    """Records a second between two looks."""
    if last is None or not isinstance(look, Snapshot) or look.now <= last.now:
        return 0.0
    return max(0.0, (_submitted(look) - _submitted(last)) / (look.now - last.now))


def view(look: Snapshot | ServiceUnavailable, rate: float, last: Snapshot | None) -> RenderableType:
    """One look as a picture; when the control plane is away, the last one with the reason."""
    if not isinstance(look, Snapshot):
        away = Text(visible(redact(str(look))), style="bold red")
        return away if last is None else Group(away, view(last, 0.0, None))
    return Group(brief(look, rate), _history(look))


def brief(look: Snapshot, rate: float) -> RenderableType:
    """The upper half of the view, for who tells the history otherwise."""
    return Group(_head(look, rate), _members(look), *([_tables(look)] if look.lags else []))


def _head(look: Snapshot, rate: float) -> RenderableType:
    r = look.region
    text = Text()
    text.append(phase_for(r, look.now), style=_COLOUR.get(r.phase, "yellow"))
    text.append(f"   epoch {r.epoch}   head {r.head}   ")
    if look.cut_due_at is not None:
        text.append(f"next cut {'now' if look.cut_due_at <= look.now else 'in ' + span(look.cut_due_at - look.now)}   ")
    if rate:
        text.append(f"{rate:,.0f} tuples/s   ")
    if r.consecutive:
        text.append(f"{plural(r.consecutive, 'reset')} in a row", style="red")
    if look.open_cut is not None:
        text.append(f"\ncut {look.open_cut.id} waits for {', '.join(look.missing) or 'the merge'}")
    if look.waits_for:
        text.append(f"\n{look.waits_for}", style="yellow")
    if look.alarm and look.alarm != look.waits_for:
        text.append(f"\n{look.alarm}", style="bold red")
    if look.unfenced:
        text.append(f"\ntables that have to follow the rewind: {', '.join(look.unfenced)}", style="yellow")
    if look.pauses:
        text.append(f"\npaused: {', '.join(map(in_words, look.pauses))}")
    for who in look.held:
        text.append(f"\nretirement held: {who}", style="yellow")
    text.plain = visible(text.plain)
    return Panel(text, title=shown(f"region {r.name}"), title_align="left")


def _members(look: Snapshot) -> RenderableType:
    table = Table("member", "status", "host", "pid", "partitions", "epoch", "queue", "submitted", "lag", box=None)
    for m in look.members:
        held = "no report" if m.partitions is None else _packed(m.partitions)
        style = "" if m.status == "LIVE" else "red"
        metrics = m.metrics
        table.add_row(
            *map(shown, (m.name, m.status, m.host, metrics.get("pid", ""), held, m.epoch)),
            *(f"{metrics.get(key, 0):,}" for key in ("queueRecords", "submitted", "lag")),
            style=style,
        )
    return Panel(table, title=f"members, {look.region.members_wanted} wanted", title_align="left")


def _tables(look: Snapshot) -> RenderableType:
    table = Table("table", "format", "acknowledged", "waiting", "for", box=None)
    for lag in look.lags:
        waits = span(lag.seconds) if lag.waiting else "fresh"
        cells = (lag.table.name, lag.table.format, lag.table.acknowledged, lag.waiting, waits)
        table.add_row(*map(shown, cells), style="red" if lag.late or lag.owes_fence else "")
    return Panel(table, title="tables", title_align="left")


def _packed(tps: tuple[Any, ...]) -> str:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in tps:
        by_topic.setdefault(topic, []).append(partition)
    return (
        " ".join(f"{t}{ps if len(ps) <= 6 else f'[{ps[0]}…{ps[-1]}: {len(ps)}]'}" for t, ps in by_topic.items())
        or "none"
    )


def _history(look: Snapshot) -> RenderableType:
    cuts = Table("id", "status", "rows", "drain", "merged", "cause", box=None)
    for c in look.checkpoints:
        cuts.add_row(
            *map(
                shown, (c.id, c.status, f"{c.rows:,}", span(c.drain_ms / 1000), moment(c.merged_at), c.cause or c.note)
            )
        )
    log = Table("when", "event", "what", "who", box=None)
    for e in reversed(look.events):
        what = f"{e.kind}{f' {e.checkpoint}' if e.checkpoint else ''}"
        log.add_row(*map(shown, (moment(e.at), what, e.text, e.member or e.by)))
    return Group(Panel(cuts, title="cuts", title_align="left"), Panel(log, title="events", title_align="left"))


COMMANDS: dict[str, Any] = {"watch": _watch}
