"""`cut` and `consume`: a cut by hand, and a bounded run to the ends seen at its start (SPEC V3)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from crkafka_core.cli.call import PATH, Answer, verb
from crkafka_core.cli.output import Say, silent, span
from crkafka_core.config import RegionConfig
from crkafka_core.holder import whoami
from crkafka_core.model.errors import ServiceUnavailable
from crkafka_core.model.phase import Phase
from crkafka_core.model.plural import plural
from crkafka_core.region import Region, caught_up
from crkafka_core.region.availability import kafka_away
from crkafka_core.region.caught_up import CaughtUp

_BY = "by hand, and the user"


@verb("cut", doing="cutting")
@click.option("--cause", default=lambda: f"by hand, {whoami()}", show_default=_BY, help="Reason, for the event log.")
def cut(config: RegionConfig, *, cause: str = "by hand", say: Say = silent) -> Answer:
    """Drain, checkpoint, merge, resume. If this command is interrupted, the region completes the cut."""
    with Region.open(config) as region:
        merged = region.cut(cause=cause, progress=lambda step: None if step.startswith("checkpoint ") else say(step))
    took = span(max(0.0, merged.merged_at - merged.opened_at))
    rows, members = plural(merged.rows, "row"), plural(merged.members, "member")
    without = [f"without {', '.join(merged.without)}: what it had submitted is read again"] if merged.without else []
    text = f"checkpoint {merged.id}: {rows} of {members} in {plural(merged.segments, 'segment')}, {took}"
    return Answer(merged, text, without)


def consume(config: RegionConfig, *, logs: Path | None = None, say: Say = silent) -> CaughtUp:
    """Consume to the ends seen now, and cut. A region without a host is hosted here meanwhile, and stopped again if it was idle."""
    from crkafka_core.cli.hosting import folder_of_logs, members
    from crkafka_core.region.host import hosted, only_host

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


@verb("consume", doing="consuming")
@click.option("--logs", type=PATH, metavar="FOLDER", help="Folder for the logs of members hosted here.")
def _consume(config: RegionConfig, logs: Path | None, say: Say) -> Answer:
    """Consume to the present end of the topics, and cut. An idle region is started, hosted here, and stopped again."""
    with _ended_by_sigterm():
        done = consume(config, logs=logs, say=say)
    rows = plural(done.checkpoint.rows, "row")
    partitions = plural(done.partitions, "partition is", "partitions are")
    left_out = [f"paused, and left out: {', '.join(map(str, done.left_out))}"] if done.left_out else []
    return Answer(done, f"checkpoint {done.checkpoint.id}: {rows}; {partitions} caught up", left_out)
