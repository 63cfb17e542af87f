"""`show` and `health`: the region now, from SQL alone, also when Kafka is away (SPEC X6, X8)."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from crkafka_core.cli.call import Answer, control_plane, json_option, number, register, verb
from crkafka_core.cli.output import LAG, lag_cells, moment, phase_for, plain, print_json, print_pairs, print_table, span
from crkafka_core.control import Reader
from crkafka_core.model.errors import ConfigError, ServiceUnavailable
from crkafka_core.model.redaction import redact
from crkafka_core.model.rows import Checkpoint, Event, Region
from crkafka_core.model.visible import json_text
from crkafka_core.plane import events, handover, pauses
from crkafka_core.plane.checkpoints import newest
from crkafka_core.plane.status import MemberView, Status, status_of

if TYPE_CHECKING:
    from crkafka_core.config import RegionConfig
    from crkafka_core.config.address import Address

_INTERVAL = "Seconds between two views of --watch [default: 1]."
SHOWN = 8
"""Number of the last checkpoints, and of the last events, beside the status."""
_LEASES = {"reader": "read", "retire": "retirement"}
"""Kind of a lease → what its holder does, for people."""


@dataclass(frozen=True)
class StatusAndHistory:
    """The region now with its last checkpoints, newest first, and its last events, oldest first."""

    status: Status
    checkpoints: tuple[Checkpoint, ...]
    events: tuple[Event, ...]


def status_and_history(reader: Reader, region: Region) -> StatusAndHistory:
    return StatusAndHistory(status_of(reader, region), tuple(newest(reader, SHOWN)), tuple(events.last(reader, SHOWN)))


def show(config: RegionConfig | Address) -> StatusAndHistory:
    with control_plane(config) as plane:
        return plane.read(status_and_history)


def watch(config: RegionConfig | Address, *, interval: float = 1.0) -> Iterator[StatusAndHistory | ServiceUnavailable]:
    """The status after each change, at the latest after `interval` seconds, without end; or why it cannot be read."""
    with control_plane(config) as plane:
        while True:
            try:
                state = plane.read(status_and_history)
                yield state
                plane.wait(state.status.region.version, interval)
            except ServiceUnavailable as error:
                yield error
                time.sleep(interval)


@register("show", only_rows=True)
@click.option("--watch", "live", is_flag=True, help="A live view until Ctrl-C; with --json one line for each view.")
@click.option("--interval", type=number(0.1, kind=float), metavar="SECONDS", help=_INTERVAL)
@click.option("--once", is_flag=True, help="End --watch after one view.")
@json_option
def _show(config: Address, live: bool, interval: float | None, once: bool, as_json: bool) -> None:
    """The region now: phase, members, head, what it waits for."""
    if live:
        _watch(config, interval or 1.0, once, as_json)
        return
    if once or interval:
        raise click.UsageError("--interval and --once need --watch.")
    state = show(config)
    if as_json:
        print_json(flat(state))
    else:
        _print_region(state.status)


def _watch(config: Address, interval: float, once: bool, as_json: bool) -> None:
    """Show each view on the terminal, in place of the last one; as JSON, print a line for each."""
    from rich.console import Console
    from rich.live import Live

    from crkafka_core.cli.watching import view

    reads = watch(config, interval=interval)
    if as_json or once:
        console = Console()
        for state in reads:
            if once and isinstance(state, ServiceUnavailable):
                raise state
            if as_json:
                value = flat(state) if isinstance(state, StatusAndHistory) else {"error": redact(str(state))}
                print(json_text(value), flush=True)
            else:
                console.print(view(state, None))
            if once:
                return
    elif not sys.stdout.isatty():
        hint = "`crkafka show --watch --json` prints a line for each view, `crkafka show` the state once."
        raise ConfigError("A live view needs a terminal.", hint=hint)
    else:
        last: StatusAndHistory | None = None
        with suppress(KeyboardInterrupt), Live(screen=True, auto_refresh=False) as screen:  # Ctrl-C ends the view
            for state in reads:
                screen.update(view(state, last), refresh=True)
                last = state if isinstance(state, StatusAndHistory) else last


def flat(state: StatusAndHistory) -> dict[str, Any]:
    """For JSON: the status with the last checkpoints and events, without the configuration."""
    both: dict[str, Any] = plain(state)
    both["status"]["region"].pop("config", None)
    return {**both.pop("status"), **both}


def _print_region(status: Status) -> None:
    r, now = status.region, status.now
    due = status.cut_due_at
    print_pairs(
        [
            ("region", f"{r.name} (uid {r.uid})"),
            ("phase", f"{phase_for(r, now)}; wanted: {r.wanted}"),
            ("reason" if r.stop_reason else "waits for", status.waits_for),
            ("alarm", "" if r.stop_reason or status.alarm == status.waits_for else status.alarm),
            ("Kafka", "" if status.kafka_away in f"{status.waits_for} {status.alarm}" else status.kafka_away),
            ("epoch", r.epoch),
            ("head", r.head if status.head is None else f"{r.head}, merged {moment(status.head.merged_at)}"),
            ("open cut", f"{r.open_cut}, waits for {', '.join(status.missing) or 'the merge'}" if r.open_cut else ""),
            ("handover", "" if (handed := handover.current(r)) is None else handed.text),
            ("next cut", "" if due is None else "now" if due <= now else f"in {span(due - now)}"),
            ("members", f"{len(status.live)} of {r.members_wanted} wanted"),
            ("resets in a row", r.consecutive or ""),
            ("last start or reset", r.reset_cause),
            ("group", ", ".join(f"{g.group_id} on cluster {g.cluster_id}" for g in status.groups)),
            ("paused", ", ".join(f"{pauses.in_words(p)} (by {p.by})" for p in status.pauses)),
            ("retirement held", "; ".join(status.held)),
            ("leases", ", ".join(f"{_LEASES.get(each.kind, each.kind)} by {each.holder}" for each in status.leases)),
        ]
    )
    print()
    print_members(status.members)
    if status.lags:
        print()
        cells = [(*lag_cells(lag), not lag.owes_fence) for lag in status.lags]
        print_table((*LAG, "follows the last rewind"), cells)


def print_members(members: tuple[MemberView, ...]) -> None:
    columns = ("member", "status", "host", "pid", "partitions", "generation", "epoch", "base", "rebalances", "since")
    cells = []
    for m in members:
        held = "no report" if m.partitions is None else len(m.partitions)
        numbers = (m.generation, m.epoch, m.base, m.rebalances)
        cells.append(
            (m.name, m.status, m.machine, str(m.metrics.get("pid", "")), held, *numbers, moment(m.registered_at))
        )
    print_table(columns, cells, empty="no member has registered")


@verb("health", only_rows=True)
def health(config: RegionConfig | Address) -> Answer:
    """Does the region need attention? Exit code 0: no, 1: yes, and the reason is printed."""
    with control_plane(config) as plane:
        status = plane.read(status_of)
    away = "" if status.kafka_away in status.alarm else status.kafka_away
    alarm = " ".join(filter(None, (status.alarm, away))) if status.alarm else ""
    value = {"healthy": not alarm, "phase": status.region.phase, "alarm": alarm}
    return Answer(value, alarm or f"{status.region.phase}: healthy", code=int(bool(alarm)))
