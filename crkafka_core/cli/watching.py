"""`show --watch`: a live view of members, partitions, tables, cuts and resets, on a terminal of 80 columns or more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from crkafka_core.cli.output import LAG, lag_cells, moment, phase_for, shown, span
from crkafka_core.model.errors import ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural
from crkafka_core.model.redaction import redact
from crkafka_core.model.visible import visible
from crkafka_core.plane.pauses import in_words
from crkafka_core.plane.status import Status

if TYPE_CHECKING:
    from crkafka_core.cli.status import StatusAndHistory

_COLOUR = {"RUNNING": "green", "CUTTING": "cyan", "STOPPED": "bold red", "IDLE": "dim"}


def rate_of(last: Status | None, status: Status) -> float:
    """Records per second between two reads."""
    if last is None or status.now <= last.now:
        return 0.0
    before, after = (sum(float(m.metrics.get("submitted", 0)) for m in each.members) for each in (last, status))
    return max(0.0, (after - before) / (status.now - last.now))


def view(state: StatusAndHistory | ServiceUnavailable, last: StatusAndHistory | None) -> RenderableType:
    """One read as a picture; while the control plane is away, the last read below the reason."""
    if isinstance(state, ServiceUnavailable):
        away = Text(visible(redact(str(state))), style="bold red")
        return away if last is None else Group(away, view(last, None))
    return Group(brief(state.status, rate_of(last.status if last else None, state.status)), _history(state))


def brief(status: Status, rate: float) -> RenderableType:
    """The upper half of the view, without the history."""
    return Group(_head(status, rate), _members(status), *([_tables(status)] if status.lags else []))


def _head(status: Status, rate: float) -> RenderableType:
    r = status.region
    text = Text()
    text.append(phase_for(r, status.now), style=_COLOUR.get(r.phase, "yellow"))
    text.append(f"   epoch {r.epoch}   head {r.head}   ")
    if (due := status.cut_due_at) is not None:
        text.append(f"next cut {'now' if due <= status.now else 'in ' + span(due - status.now)}   ")
    if rate:
        text.append(f"{rate:,.0f} records/s   ")
    if r.consecutive:
        text.append(f"{plural(r.consecutive, 'reset')} in a row", style="red")
    if status.open_cut is not None:
        text.append(f"\ncut {status.open_cut.id} waits for {', '.join(status.missing) or 'the merge'}")
    if status.waits_for:
        text.append(f"\n{status.waits_for}", style="yellow")
    if status.kafka_away and status.kafka_away not in f"{status.waits_for} {status.alarm}":
        text.append(f"\n{status.kafka_away}", style="yellow")
    if status.alarm and status.alarm != status.waits_for:
        text.append(f"\n{status.alarm}", style="bold red")
    if status.unfenced:
        text.append(f"\ntables that have to follow the rewind: {', '.join(status.unfenced)}", style="yellow")
    if status.pauses:
        text.append(f"\npaused: {', '.join(map(in_words, status.pauses))}")
    for who in status.held:
        text.append(f"\nretirement held: {who}", style="yellow")
    text.plain = visible(text.plain)
    return Panel(text, title=shown(f"region {r.name}"), title_align="left")


def _members(status: Status) -> RenderableType:
    table = Table("member", "status", "host", "pid", "partitions", "epoch", "queue", "submitted", "lag", box=None)
    for m in status.members:
        held = "no report" if m.partitions is None else _packed(m.partitions)
        about = map(shown, (m.name, m.status, m.machine, m.metrics.get("pid", ""), held, m.epoch))
        counts = (f"{m.metrics.get(key, 0):,}" for key in ("queueRecords", "submitted", "lag"))
        table.add_row(*about, *counts, style="" if m.status == "LIVE" else "red")
    return Panel(table, title=f"members, {status.region.members_wanted} wanted", title_align="left")


def _tables(status: Status) -> RenderableType:
    table = Table(*LAG, box=None)
    for lag in status.lags:
        table.add_row(*map(shown, lag_cells(lag)), style="red" if lag.late or lag.owes_fence else "")
    return Panel(table, title="tables", title_align="left")


def _packed(tps: tuple[TP, ...]) -> str:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in tps:
        by_topic.setdefault(topic, []).append(partition)
    packed = (f"{t}{ps if len(ps) <= 6 else f'[{ps[0]}…{ps[-1]}: {len(ps)}]'}" for t, ps in by_topic.items())
    return " ".join(packed) or "none"


def _history(state: StatusAndHistory) -> RenderableType:
    cuts = Table("id", "status", "rows", "drain", "merged", "cause", box=None)
    for c in state.checkpoints:
        times = span(c.drain_ms / 1000), moment(c.merged_at)
        cuts.add_row(*map(shown, (c.id, c.status, f"{c.rows:,}", *times, c.cause or c.note)))
    log = Table("when", "event", "what", "by", box=None)
    for e in reversed(state.events):
        what = f"{e.kind}{f' {e.checkpoint}' if e.checkpoint else ''}"
        log.add_row(*map(shown, (moment(e.at), what, e.text, e.member or e.by)))
    return Group(Panel(cuts, title="cuts", title_align="left"), Panel(log, title="events", title_align="left"))
