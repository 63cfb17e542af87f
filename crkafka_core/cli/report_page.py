"""The page of `crkafka report`: HTML and SVG by hand, without a script, a font or a link to elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from statistics import median
from typing import TYPE_CHECKING

from crkafka_core.cli.following import quiet
from crkafka_core.cli.output import LAG, lag_cells, moment, span
from crkafka_core.model.plural import plural
from crkafka_core.model.visible import visible

if TYPE_CHECKING:
    from crkafka_core.cli.history import Report
    from crkafka_core.model.rows import Checkpoint

WIDTH, LEFT, RIGHT = 1000.0, 90.0, 10.0
LEAST = 3.0
"""Least width of a bar, so that a moment in a month is visible."""
SHORT = 24
"""Most letters of a cell that does not wrap."""
_COLOURS = {
    "running": "var(--good)",
    "starting": "var(--c)",
    "resetting": "var(--warn)",
    "stopped": "var(--bad)",
    "idle": "var(--rest)",
}
_TABLES = ("var(--a)", "var(--b)", "var(--c)", "var(--d)")

_STYLE = """
:root { --ink:#1b1f24; --dim:#667; --paper:#fff; --box:#f5f6f8; --line:#d5d9e0; }
:root { --good:#3aa76d; --warn:#e8a33d; --bad:#d64545; --rest:#c3c8d0; --a:#2f6fde; --b:#9b59c9; --c:#1797a6; --d:#b3631a; }
@media (prefers-color-scheme: dark) {
  :root { --ink:#e6e8eb; --dim:#99a; --paper:#14171b; --box:#1e2328; --line:#39414b; --rest:#48505a; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
body { max-width: 1060px; margin: 2em auto; padding: 0 1em; }
h1 { margin-bottom: 0; }
h2 { margin: 2em 0 .3em; font-size: 1.15em; }
p { margin: .3em 0; color: var(--dim); }
.tiles { display: flex; flex-wrap: wrap; gap: .8em; margin: 1.2em 0; }
.tile { background: var(--box); border-radius: 8px; padding: .6em 1em; }
.tile b { display: block; font-size: 1.5em; }
.tile span { color: var(--dim); font-size: .85em; }
p.alarm { background: var(--bad); color: #fff; border-radius: 8px; padding: .6em 1em; }
svg { width: 100%; height: auto; background: var(--box); border-radius: 8px; }
svg text { fill: var(--dim); font: 12px system-ui, sans-serif; }
table { border-collapse: collapse; width: 100%; font-size: .9em; }
th, td { text-align: left; padding: .2em .7em .2em 0; border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere; }
th { overflow-wrap: normal; }
td.s { white-space: nowrap; }
td:first-child { padding-right: 1em; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.key i { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin: 0 .3em 0 1em; }
"""


def page(report: Report) -> str:
    r = report.status.region
    body = [
        f"<h1>Region {_text(r.name)}</h1>",
        f"<p>{_text(r.phase)}, head {r.head}, epoch {r.epoch}. From {moment(report.begin)} to {moment(report.status.now)}.</p>",
        f'<p class="alarm">{_text(report.status.alarm)}</p>' if report.status.alarm else "",
        _tiles(report),
        "<h2>Throughput, cuts and resets over time</h2>",
        _key(list(_COLOURS.items())),
        _timeline(report),
        "<p>One bar per checkpoint: its width is the time that it covers, its height its records per second; grey: superseded by a reset. "
        "A red line is a reset, ✖ a process that died.</p>",
        "<h2>Pause of each cut</h2>",
        _points(report, [(c.merged_at, c.drain_ms / 1000, _cut(c), "var(--a)") for c in report.cuts]),
        "<p>How long no record was submitted while the members drained and saved.</p>",
        *_freshness(report),
        "<h2>Resets</h2>",
        _table(
            ("when", "epoch", "cause", "by", "what"),
            [(moment(x.at), x.epoch, x.cause, x.member or x.by, x.text) for x in report.resets],
        ),
        "<h2>Lag now</h2>",
        _lag(report),
        *_last(report),
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Region {_text(r.name)}</title>'
    return (
        f"<!doctype html><html lang=en><head>{head}<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _tiles(report: Report) -> str:
    rows = sum(c.rows for c in report.cuts if c.status != "SUPERSEDED")
    fastest = max((_rate(report, c) for c in report.cuts), default=0.0)
    pauses = [c.drain_ms for c in report.cuts]
    away = [max(0.0, s.until - s.since) for s in report.stretches if s.state == "resetting" and s.until]
    fresh = [seconds for _, seconds in report.freshness]
    tiles = [
        _counted(rows, "record landed", "records landed"),
        ("records a second, in the fastest checkpoint", f"{fastest:,.0f}" if fastest else "–"),
        _counted(len(report.cuts), "checkpoint"),
        ("pause, median", f"{median(pauses):.0f} ms" if pauses else "–"),
        _counted(len(report.resets), "reset"),
        ("longest reset", span(max(away)) if away else "–"),
        ("tables fresh after, median", span(median(fresh)) if fresh else "–"),
    ]
    return f'<div class="tiles">{"".join(f"<div class=tile><b>{b}</b><span>{a}</span></div>" for a, b in tiles)}</div>'


def _rate(report: Report, cut: Checkpoint) -> float:
    """Records per second of the time that a checkpoint covers."""
    return cut.rows / max(cut.merged_at - report.began[cut.id], 0.1)


def _counted(number: int, *words: str) -> tuple[str, str]:
    count, _, noun = plural(number, *words).partition(" ")
    return noun, count


def _cut(cut: Checkpoint) -> str:
    return f"checkpoint {cut.id}, {cut.status}: {plural(cut.rows, 'record')}, pause {cut.drain_ms} ms, {moment(cut.merged_at)}"


class _Scale:
    """Maps a time to a position in a picture."""

    def __init__(self, report: Report) -> None:
        self.begin, self.end = report.begin, max(report.status.now, report.begin + 1.0)

    def x(self, at: float) -> float:
        part = (min(max(at, self.begin), self.end) - self.begin) / (self.end - self.begin)
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    def axis(self, y: float) -> str:
        """The axis: six times below the picture."""
        out, length = "", self.end - self.begin
        for n in range(6):
            at = self.begin + n * length / 5
            anchor = "start" if n == 0 else "end" if n == 5 else "middle"
            time = moment(at)[5 if length > 86_400 else 11 :]
            out += f'<text x="{self.x(at):.1f}" y="{y}" text-anchor="{anchor}">{time}</text>'
        return out


def _timeline(report: Report) -> str:
    scale, top, bottom = _Scale(report), 20.0, 200.0
    rates = [_rate(report, cut) for cut in report.cuts]
    most = max(rates, default=0.0) or 1.0
    out = [_height(most, "{:,.0f}/s".format, top, bottom)]
    for cut, rate in zip(report.cuts, rates, strict=True):
        x, y = scale.x(report.began[cut.id]), bottom - (bottom - top) * rate / most
        fill = "var(--rest)" if cut.status == "SUPERSEDED" else "var(--a)"
        out.append(_rect(x, y, max(scale.x(cut.merged_at) - x - 0.7, LEAST), bottom - y, fill, _cut(cut)))
    for reset in report.resets:
        x = scale.x(reset.at)
        title = _text(f"reset, epoch {reset.epoch}, {reset.cause}: {reset.text}, {moment(reset.at)}")
        line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom + 26}" stroke="var(--bad)" stroke-width="2">'
        out.append(f"{line}<title>{title}</title></line>")
    for death in report.deaths:
        title = _text(f"{death.text}, {moment(death.at)}")
        out.append(
            f'<text x="{scale.x(death.at):.1f}" y="{top - 5}" text-anchor="middle" style="fill:var(--bad)">✖<title>{title}</title></text>'
        )
    for state, since, until, text in report.stretches:
        x, end = scale.x(since), until or scale.end
        title = f"{state} for {span(max(0.0, end - since))}; {text}"
        out.append(_rect(x, bottom + 8, max(scale.x(end) - x, 1.0), 16, _COLOURS[state], title))
    return _svg(246, [*out, scale.axis(bottom + 42)], "throughput, cuts and resets over time")


def _freshness(report: Report) -> list[str]:
    if not report.status.lags:
        return []
    names = sorted({commit.table for commit, _ in report.freshness})
    colours = {name: _TABLES[n % len(_TABLES)] for n, name in enumerate(names)}
    points = []
    for commit, seconds in report.freshness:
        title = f"{commit.table}: checkpoint {commit.upto} after {span(seconds)}, {moment(commit.at)}"
        points.append((commit.at, seconds, title, colours[commit.table]))
    return [
        "<h2>Freshness of tables</h2>",
        _key(list(colours.items())),
        _points(report, points),
        "<p>From the merge of a checkpoint until its rows were committed to the table.</p>",
        _table(LAG, [lag_cells(lag) for lag in report.status.lags]),
    ]


def _points(report: Report, points: Sequence[tuple[float, float, str, str]]) -> str:
    """One dot per (time, seconds, title, colour)."""
    scale, top, bottom = _Scale(report), 14.0, 120.0
    most = max((value for _, value, *_ in points), default=0.0) or 1.0
    out = [_height(most, span, top, bottom)]
    for at, value, title, colour in points:
        y = bottom - (bottom - top) * value / most
        out.append(
            f'<circle cx="{scale.x(at):.1f}" cy="{y:.1f}" r="3" fill="{colour}"><title>{_text(title)}</title></circle>'
        )
    return _svg(142, [*out, scale.axis(bottom + 18)], "lengths over time")


def _last(report: Report) -> list[str]:
    rows = [
        (c.id, c.status, moment(c.merged_at), c.rows, f"{c.drain_ms} ms", c.cause) for c in reversed(report.cuts[-30:])
    ]
    shown = [e for e in reversed(report.events) if not quiet(e)]
    events = [(moment(e.at), e.kind, e.checkpoint or "", e.text, e.member or e.by) for e in shown]
    return [
        "<h2>Last checkpoints</h2>",
        _table(("id", "status", "merged", "rows", "pause", "cause"), rows),
        "<h2>Last events</h2>",
        _table(("when", "event", "checkpoint", "what", "who"), events),
    ]


def _lag(report: Report) -> str:
    """Positions of the members by their last reports."""
    rows = [
        (member.name, f"{topic}[{partition}]", int(position), max(0, int(high) - int(position)))
        for member in report.status.members
        for topic, partitions in (member.metrics.get("partitions") or {}).items()
        for partition, (position, high) in partitions.items()
    ]
    return _table(("member", "partition", "at", "waiting in Kafka"), rows) if rows else "<p>No member has reported.</p>"


def _height(most: float, label: Callable[[float], str], top: float, bottom: float) -> str:
    return "".join(
        f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{label(value)}</text>'
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="var(--line)"/>'
        for value, y in ((most, top), (most / 2, (top + bottom) / 2), (0.0, bottom))
    )


def _rect(x: float, y: float, width: float, height: float, fill: str, title: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"><title>{_text(title)}</title></rect>'


def _svg(height: int, parts: Iterable[str], label: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH:.0f} {height}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'


def _key(entries: Sequence[tuple[str, str]]) -> str:
    return (
        f'<p class="key">{"".join(f"<i style=background:{colour}></i>{_text(name)}" for name, colour in entries)}</p>'
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    if not rows:
        return "<p>none</p>"
    numeric = [all(isinstance(row[i], int) for row in rows) for i in range(len(columns))]

    def cell(tag: str, text: str, number: bool) -> str:
        classes = " ".join(name for name, holds in (("n", number), ("s", len(text) <= SHORT)) if holds)
        return f'<{tag} class="{classes}">{_text(text)}</{tag}>'

    def line(tag: str, cells: Iterable[object]) -> str:
        return f"<tr>{''.join(cell(tag, _cell(c), n) for c, n in zip(cells, numeric, strict=True))}</tr>"

    return f"<table>{line('th', columns)}{''.join(line('td', row) for row in rows)}</table>"


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _text(value: object) -> str:
    """Text from outside, escaped for HTML."""
    return escape(visible(str(value)))
