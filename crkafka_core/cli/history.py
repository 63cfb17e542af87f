"""`checkpoints`, `show`, `events`: what the control plane knows; reads SQL only, also when Kafka is away."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from crkafka_core.cli.call import MOST, json_option, with_config
from crkafka_core.cli.output import moment, phase_for, plain, print_json, print_pairs, print_table, span
from crkafka_core.cli.pauses import in_words
from crkafka_core.cli.plane import control_plane
from crkafka_core.config import RegionConfig
from crkafka_core.control import Reader
from crkafka_core.model.errors import NoSuchCheckpoint
from crkafka_core.model.rows import Checkpoint, Contribution, Event, MergedOffset, Region, Segment
from crkafka_core.plane import events as log
from crkafka_core.plane.checkpoints import inside, newest
from crkafka_core.plane.lateness import TableLag
from crkafka_core.plane.status import MemberView, Status, status_of

SHOWN = 8
"""The last checkpoints and events that `show` and `watch` have."""
_RIGHT = {"reader": "read", "retire": "retirement"}
"""Kind of a lease → what its holder does, for people."""


@dataclass(frozen=True)
class Detail:
    """One checkpoint with all that belongs to it."""

    checkpoint: Checkpoint
    offsets: tuple[MergedOffset, ...]
    contributions: tuple[Contribution, ...]
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class StatusAndHistory:
    """What `show` and `watch` have, from one read."""

    status: Status
    checkpoints: tuple[Checkpoint, ...]
    """The last ones, newest first."""
    events: tuple[Event, ...]
    """The last ones, oldest first."""


def status_and_history(reader: Reader, region: Region, config: RegionConfig) -> StatusAndHistory:
    """The region now, and how it came there."""
    status = status_of(reader, region, config.trigger)
    return StatusAndHistory(status, tuple(newest(reader, SHOWN)), tuple(log.last(reader, SHOWN)))


def checkpoints(config: RegionConfig, *, last: int | None = 20) -> list[Checkpoint]:
    """The last checkpoints, oldest first; all of them without `last`."""
    with control_plane(config) as plane:

        def ask(reader: Reader, region: Region) -> list[Checkpoint]:
            return newest(reader, last)[::-1]

        return plane.read(ask)


def checkpoint(config: RegionConfig, number: int) -> Detail:
    """One checkpoint, its offsets, contributions and segments."""
    with control_plane(config) as plane:
        return plane.read(lambda reader, region: _detail(reader, region, number))


def _detail(reader: Reader, region: Region, number: int) -> Detail:
    row = reader.get(Checkpoint, number)
    if row is None:
        raise NoSuchCheckpoint(
            f"Region {region.name} has no checkpoint {number}.", hint="`crkafka checkpoints` lists what there is."
        )
    offsets, contributions, segments = inside(reader, number)
    return Detail(row, tuple(offsets), tuple(contributions), tuple(segments))


def show(config: RegionConfig) -> StatusAndHistory:
    """The region now."""
    with control_plane(config) as plane:
        return plane.read(partial(status_and_history, config=config))


def events(config: RegionConfig, *, last: int = 30, since: int | None = None) -> list[Event]:
    """The last events, or all after number `since`; oldest first."""
    with control_plane(config) as plane:
        if since is not None:
            return plane.read(lambda reader, region: log.since(reader, since))
        return plane.read(lambda reader, region: log.last(reader, last))


@click.command("checkpoints")
@with_config
@click.argument("number", type=click.IntRange(1, MOST), required=False)
@click.option("--last", type=click.IntRange(1, MOST), default=20, show_default=True, help="How many.")
@click.option("--all", "everything", is_flag=True, help="All of them.")
@json_option
def _checkpoints(config: RegionConfig, number: int | None, last: int, everything: bool, as_json: bool) -> None:
    """List checkpoints, or show the one with this NUMBER: offsets, contributions, segments."""
    if number is not None:
        detail = checkpoint(config, number)
        print_json(detail) if as_json else _print_detail(detail)
        return
    rows = checkpoints(config, last=None if everything else last)
    if as_json:
        print_json(rows)
    else:
        print_table(
            ("id", "parent", "status", "rows", "segments", "members", "cause", "opened", "drain"),
            (
                (
                    c.id,
                    c.parent,
                    c.status,
                    c.rows,
                    c.segments,
                    c.members,
                    c.cause,
                    moment(c.opened_at),
                    span(c.drain_ms / 1000),
                )
                for c in rows
            ),
            empty=f"region {config.region} has no checkpoint yet",
        )


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


@click.command("show")
@with_config
@json_option
def _show(config: RegionConfig, as_json: bool) -> None:
    """The region now: phase, members, head, what it waits for."""
    state = show(config)
    if as_json:
        print_json(flat(state))
    else:
        print_region(state.status)


def flat(state: StatusAndHistory) -> dict[str, Any]:
    """For JSON: the status with the last checkpoints and events; the configuration is in its own place already."""
    both: dict[str, Any] = plain(state)
    both["status"]["region"].pop("config", None)
    return {**both.pop("status"), **both}


def print_region(status: Status) -> None:
    """For people."""
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
            ("next cut", "" if due is None else "now" if due <= now else f"in {span(due - now)}"),
            ("members", f"{len(status.live)} of {r.members_wanted} wanted"),
            ("resets in a row", r.consecutive or ""),
            ("last start or reset", r.reset_cause),
            ("group", ", ".join(f"{g.group_id} on cluster {g.cluster_id}" for g in status.groups)),
            ("paused", ", ".join(f"{in_words(p)} (by {p.by})" for p in status.pauses)),
            ("retirement held", "; ".join(status.held)),
            (
                "leases",
                ", ".join(f"{_RIGHT.get(lease.kind, lease.kind)} by {lease.holder}" for lease in status.leases),
            ),
        ]
    )
    print()
    print_members(status.members)
    if status.lags:
        print()
        _print_lags(status.lags)


def _print_lags(lags: Iterable[TableLag]) -> None:
    print_table(
        ("table", "format", "acknowledged", "waiting", "for", "follows the last rewind"),
        (
            (
                lag.table.name,
                lag.table.format,
                lag.table.acknowledged,
                lag.waiting,
                span(lag.seconds) if lag.waiting else "",
                not lag.owes_fence,
            )
            for lag in lags
        ),
    )


def print_members(members: tuple[MemberView, ...]) -> None:
    """One line each."""
    print_table(
        ("member", "status", "host", "pid", "partitions", "generation", "epoch", "base", "rebalances", "since"),
        (
            (
                m.name,
                m.status,
                m.machine,
                str(m.metrics.get("pid", "")),
                "no report" if m.partitions is None else len(m.partitions),
                m.generation,
                m.epoch,
                m.base,
                m.rebalances,
                moment(m.registered_at),
            )
            for m in members
        ),
        empty="no member has registered",
    )


@click.command("events")
@with_config
@click.option("--last", type=click.IntRange(1, MOST), default=30, show_default=True, help="How many.")
@click.option("--since", type=click.IntRange(0, MOST), help="All after this number.")
@json_option
def _events(config: RegionConfig, last: int, since: int | None, as_json: bool) -> None:
    """What happened, to whom, who asked, and why."""
    rows = events(config, last=last, since=since)
    if as_json:
        print_json(rows)
    else:
        print_table(
            ("number", "when", "epoch", "event", "checkpoint", "member", "by", "what"),
            ((e.seq, moment(e.at), e.epoch, e.kind, e.checkpoint or None, e.member, e.by, e.text) for e in rows),
            empty=f"region {config.region} has no events",
        )


COMMANDS: dict[str, Any] = {"checkpoints": _checkpoints, "show": _show, "events": _events}
