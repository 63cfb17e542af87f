"""`cut` and `consume`: a cut by hand, and a bounded run to the ends seen at its start (SPEC V3)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from crkafka_core.cli.call import json_option, with_config
from crkafka_core.cli.output import Say, note, print_json, progress, silent, span
from crkafka_core.config import RegionConfig
from crkafka_core.holder import whoami
from crkafka_core.model.errors import ServiceUnavailable
from crkafka_core.model.phase import Phase
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Checkpoint
from crkafka_core.region import Region, caught_up
from crkafka_core.region.availability import kafka_away
from crkafka_core.region.caught_up import CaughtUp


def cut(config: RegionConfig, *, cause: str = "by hand", say: Say = silent) -> Checkpoint:
    """Drain, checkpoint, merge, resume; the merged checkpoint."""
    with Region.open(config) as region:
        return region.cut(cause=cause, progress=say)


def consume(config: RegionConfig, *, logs: Path | None = None, say: Say = silent) -> CaughtUp:
    """Consume to the ends seen now, and cut. A region without a host is hosted here meanwhile, and stopped again if it was idle."""
    from crkafka_core.cli.hosting import folder_of_logs, members
    from crkafka_core.region.host import hosted, only_host

    if logs is not None:
        folder_of_logs(logs)
    with Region.open(config) as region:
        region.init(configure=False)
        phase = region.plane.read(lambda _, row: row.phase)
        idle = phase is Phase.IDLE
        if phase is Phase.STOPPED or (not idle and hosted(region)):
            return caught_up.consume(region, progress=say)
        if away := kafka_away(config, set()):  # members would wait for it without a limit
            raise ServiceUnavailable(away)
        with only_host(region, say=say):
            if idle:
                region.start(by=whoami())
            with members(region, logs):
                try:
                    return caught_up.consume(region, progress=say)
                finally:
                    if idle:
                        region.stop(by=whoami(), progress=say)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM acts like Ctrl-C: a region that was started here is stopped again, with a last cut, so that none is left without a host."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@click.command("cut")
@with_config
@click.option(
    "--cause",
    default=lambda: f"by hand, {whoami()}",
    show_default="by hand, and the user",
    help="Reason, for the event log.",
)
@json_option
def _cut(config: RegionConfig, cause: str, as_json: bool) -> None:
    """Drain, checkpoint, merge, resume. If this command is interrupted, the region completes the cut."""
    with progress("cutting", quiet=as_json) as say:
        merged = cut(config, cause=cause, say=lambda step: None if step.startswith("checkpoint ") else say(step))
    if as_json:
        print_json(merged)
    else:
        took = span(max(0.0, merged.merged_at - merged.opened_at))
        print(
            f"checkpoint {merged.id}: {plural(merged.rows, 'row')} of {plural(merged.members, 'member')} "
            f"in {plural(merged.segments, 'segment')}, {took}"
        )
        if merged.without:
            note(f"without {', '.join(merged.without)}: what it had submitted is read again")


@click.command("consume")
@with_config
@click.option(
    "--logs", type=click.Path(path_type=Path), metavar="FOLDER", help="Folder for the logs of members hosted here."
)
@json_option
def _consume(config: RegionConfig, logs: Path | None, as_json: bool) -> None:
    """Consume to the present end of the topics, and cut. An idle region is started, hosted here, and stopped again."""
    with _ended_by_sigterm(), progress("consuming", quiet=as_json) as say:
        done = consume(config, logs=logs, say=say)
    if as_json:
        print_json(done)
        return
    c = done.checkpoint
    print(
        f"checkpoint {c.id}: {plural(c.rows, 'row')}; {plural(done.partitions, 'partition is', 'partitions are')} caught up"
    )
    if done.left_out:
        note(f"paused, and left out: {', '.join(map(str, done.left_out))}")


COMMANDS: dict[str, Any] = {"cut": _cut, "consume": _consume}
