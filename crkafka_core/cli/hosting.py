"""`host`: runs the region's members until it is interrupted, and tells what happens (SPEC K1)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from crkafka_core.cli.call import caller, with_config
from crkafka_core.cli.fencing import follow
from crkafka_core.cli.output import moment, note
from crkafka_core.config import RegionConfig, redact
from crkafka_core.model.errors import CrkafkaError, ServiceUnavailable
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Event
from crkafka_core.plane import events
from crkafka_core.region import Region
from crkafka_core.region.driver import Driver
from crkafka_core.region.host import hosting

Tell = Callable[[str], None]


def host(
    config: RegionConfig,
    *,
    stop: threading.Event,
    start: bool = True,
    drive: bool = True,
    leave_running: bool = False,
    until_idle: bool = False,
    logs: Path | None = None,
    tell: Tell = print,
) -> None:
    """Run the members, and with `drive` open the cuts that are due, until `stop` is set; then cut and stop the region.

    With `until_idle`, also until somebody else has stopped it. With `leave_running` the members leave, but the region stays
    wanted, for another host to go on with.
    """
    with Region.open(config) as region:
        region.init()
        if start:
            region.start(by=caller())
        with members(region, logs), _driving(region, drive, tell):
            _follow(region, stop, until_idle, tell)
            if not leave_running and not region.plane.read(lambda _, row: row.phase is Phase.IDLE):
                tell("stopping: a last cut, then members leave")
                region.stop(by=caller())


@contextmanager
def members(region: Region, logs: Path | None) -> Iterator[None]:
    """Members run until the block ends. PySpark's own answer to an interrupt would cancel their jobs before the last cut."""
    interrupt = signal.getsignal(signal.SIGINT)
    with hosting(region, logs):
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)
        yield


@contextmanager
def _driving(region: Region, drive: bool, tell: Tell) -> Iterator[None]:
    if not drive:
        yield
        return
    driver = Driver(region)
    driver.start()
    try:
        yield
    finally:
        driver.end()


def _follow(region: Region, stop: threading.Event, until_idle: bool, tell: Tell) -> None:
    """Tell each event as it comes, until the end; the control plane may be away for a while."""
    seen = -1
    told: set[tuple[int, str]] = set()
    away = False
    while not stop.is_set():
        try:
            if seen < 0:
                seen = max((e.seq for e in region.plane.read(lambda r, row: events.last(r, row.name, 1))), default=0)
                tell(f"hosting region {region.config.region}")
            fresh, row = region.plane.read(lambda r, row, after=seen: (events.since(r, row.name, after), row))  # type: ignore[misc]
            for event in fresh:
                tell(line(event))
                seen = event.seq
            if until_idle and row.phase is Phase.IDLE:
                return
            if row.phase is Phase.REWINDING and region.config.host.spark is None:
                _fence(region, row.epoch, told, tell)
            away = False
            region.plane.wait(row.version, 0.5)
        except ServiceUnavailable as error:
            if not away:
                tell(redact(str(error)))
            away = True
            stop.wait(1.0)


def _fence(region: Region, epoch: int, told: set[tuple[int, str]], tell: Tell) -> None:
    """The Spark host does it itself; local processes have no Spark, and Parquet tables need none."""
    for table in follow(region, lambda step: None, spark=False):
        if (epoch, table) not in told:
            told.add((epoch, table))
            tell(f"the region waits for table {table} to follow the rewind; Dagster does it, or `crkafka reset`")


def line(event: Event) -> str:
    """An event as one line."""
    where = f" checkpoint {event.checkpoint}" if event.checkpoint else ""
    who = " ".join(dict.fromkeys(w for w in (event.member, event.by) if w))
    return (
        f"{moment(event.at)} {event.kind}{where}{': ' + event.text if event.text else ''}{f' ({who})' if who else ''}"
    )


@click.command("host")
@with_config
@click.option("--start/--no-start", default=True, show_default=True, help="Want the region to run.")
@click.option("--drive/--no-drive", default=True, show_default=True, help="Open the cuts that are due, and retire.")
@click.option("--leave-running", is_flag=True, help="At the end members leave, but the region is not stopped.")
@click.option("--until-idle", is_flag=True, help="End when the region is idle, as after `crkafka stop`.")
@click.option(
    "--logs", type=click.Path(path_type=Path), metavar="FOLDER", help="Where local processes write their logs."
)
def _host(
    config: RegionConfig, start: bool, drive: bool, leave_running: bool, until_idle: bool, logs: Path | None
) -> None:
    """Run the region's members until interrupted; then a last cut. A second interrupt ends at once.

    Where Dagster opens the cuts, say --no-drive.
    """
    for text in config.warnings():
        note(f"warning: {text}")
    stop = threading.Event()

    def interrupted(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {n: signal.signal(n, interrupted) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        host(
            config,
            stop=stop,
            start=start,
            drive=drive,
            leave_running=leave_running,
            until_idle=until_idle,
            logs=logs,
            tell=_tell,
        )
    except CrkafkaError:
        if not stop.is_set():
            raise
        note("the last cut did not come about; what was not merged is read again by the next host")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(text: str) -> None:
    print(text, flush=True)


COMMANDS: dict[str, Any] = {"host": _host}
