"""`host`: runs the region's members until it is interrupted, and prints the region's events (SPEC K1)."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryFile
from typing import Any

import click

from crkafka_core import logs as logs_of
from crkafka_core.cli.call import PATH, register
from crkafka_core.cli.following import Follower
from crkafka_core.cli.output import Say, note
from crkafka_core.config import RegionConfig, redact
from crkafka_core.holder import whoami
from crkafka_core.model.errors import ConfigError, CrkafkaError, Refused, ServiceUnavailable
from crkafka_core.model.phase import Phase
from crkafka_core.region import Region
from crkafka_core.region.availability import kafka_away, lacks_topics
from crkafka_core.region.driver import driving
from crkafka_core.region.host import Host, check_still_ours, hosting, only_host
from crkafka_core.region.probes import Pulse, serving
from crkafka_core.spark import java_log
from crkafka_core.still import spark_starts, telling

AT_ONCE = 2.0
"""Seconds to return leases after a second interrupt."""


def host(
    config: RegionConfig,
    *,
    stop: threading.Event,
    start: bool = True,
    drive: bool = True,
    leave_running: bool = False,
    until_idle: bool = False,
    logs: Path | None = None,
    metrics: str = "",
    tell: Say = print,
) -> None:
    """Run the members, and with `drive` open the cuts that are due, until `stop` is set; then cut and stop the region. `until_idle`: end
    also once another process has stopped the region. `leave_running`: the members leave, but the region stays wanted, so that another host
    can go on. `metrics`: HOST:PORT that serves probes and Prometheus meanwhile."""
    folder_of_logs(logs)
    with Region.open(config) as region, ExitStack() as stack:
        region.init(configure=False)
        pulse, reported = Pulse(), set[str]()

        def why() -> str:
            return kafka_away(config, reported) or lacks_topics(config)

        if metrics:
            tell(f"metrics at {stack.enter_context(serving(region, metrics, pulse))}/metrics")
        right = stack.enter_context(only_host(region, say=tell))
        running = stack.enter_context(members(region, logs, tell, partial(_begin, region, start, stop, tell, why)))
        stack.enter_context(driving(region, drive=drive))
        follower = Follower(region, tell, logs=logs, why=why)
        try:
            while not stop.is_set():
                pulse.beat()
                check_still_ours(running, right, more="`crkafka show`")
                if follower.turn(stop) is Phase.IDLE and until_idle:
                    break
        finally:
            pulse.end()
        if not leave_running:
            _last_cut(region, tell)


def _last_cut(region: Region, tell: Say) -> None:
    if region.plane.read(lambda _, row: row.phase is Phase.IDLE):  # another process has stopped it
        return
    tell("stopping: a last cut, then members leave")
    head = region.stop(by=whoami()).head
    if missed := region.status().last_cut_missed:
        raise Refused(f"Region {region.config.region} was {missed}.")
    tell(f"stopped after a last cut; the head is checkpoint {head}" if head else "stopped")


def _begin(region: Region, start: bool, stop: threading.Event, tell: Say, why: Callable[[], str]) -> None:
    """Before the first member starts: mark the region as wanted, and print what the members will wait for. The host has its lease by then,
    so it waits for an SQL that is away, as it does once members run."""
    while True:
        try:
            region.start(by=whoami()) if start else region.refuse_copy()
            break
        except ServiceUnavailable as error:
            if type(error) is not ServiceUnavailable or stop.is_set():  # any other service than SQL
                raise
            tell(f"{redact(str(error))} The host waits for it.")
            stop.wait(1.0)
    if away := why():
        tell(f"{away} Members wait for it.")


def folder_of_logs(folder: Path | None) -> None:
    """Make the folder of the logs, if one is named; refuse one that cannot be written: members would not start."""
    if folder is None:
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        text = f"No logs can be written to {folder}: {error.strerror}."
        raise ConfigError(text, hint="Name another folder with --logs.") from None


@contextmanager
def members(
    region: Region, logs: Path | None, tell: Say = lambda _: None, ready: Callable[[], None] = lambda: None
) -> Iterator[Host]:
    """Members run until the block ends; `ready` is called when Spark has started, before the members do. PySpark's handler of interrupts is
    replaced: it would cancel the members' jobs before the last cut."""
    interrupt = signal.getsignal(signal.SIGINT)
    quiet = region.config.host.spark is None or region.config.host.connect  # a Spark Connect server runs already
    with ExitStack() as stack:
        if not quiet:
            note("Spark starts")
        with nullcontext() if quiet else telling(note, spark_starts):
            running = stack.enter_context(hosting(region, logs, tell=tell, ready=ready))
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)
        yield running


@register("host")
@click.option("--start/--no-start", default=True, help="Start the region.")
@click.option("--drive/--no-drive", default=True, help="Open due cuts, and retire old checkpoints.")
@click.option("--leave-running", is_flag=True, help="At the end members leave, but the region stays wanted.")
@click.option("--until-idle", is_flag=True, help="End once the region is idle, such as after `crkafka stop`.")
@click.option("--logs", type=PATH, metavar="FOLDER", help="Folder for the logs of members that are local processes.")
@click.option(
    "--metrics", default="", show_default=False, metavar="HOST:PORT", help="Serve /metrics, /livez and /readyz."
)
def _host(config: RegionConfig, **options: Any) -> int:
    """Run the region's members until interrupted, and print the region's events; then a last cut. A second interrupt ends at once.

    Where Dagster opens the cuts, use --no-drive.
    """
    for text in config.warnings():
        note(f"warning: {text}", "WARNING")
    if "CRKAFKA_LOG" not in os.environ:  # no other output names a refused driver or a dead member
        logging.getLogger("crkafka_core").setLevel(logging.WARNING)
        logs_of.in_one_voice()
    with _interrupts() as stop:
        try:
            host(config, stop=stop, tell=partial(_print, stop), **options)
        except CrkafkaError as error:
            if not stop.is_set():
                raise
            text = "the last cut failed; the next host reads again what was not merged."
            note(f"{text} {redact(str(error))}", "ERROR")
            return 1
    return 0


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """The first interrupt sets the event; a second one ends the process at once, but for SIGHUP, which a closed terminal may send twice."""
    stop = threading.Event()
    caught: SimpleQueue[bool] = SimpleQueue()
    """Whether each signal is a second interrupt. Handlers interrupt the main thread anywhere, also where it holds the event's lock."""
    seen = False

    def interrupted(number: int, frame: object) -> None:
        nonlocal seen
        again, seen = seen or stop.is_set(), True
        caught.put(again)
        if again:
            raise KeyboardInterrupt

    def react() -> None:
        while not caught.get():
            stop.set()
        time.sleep(AT_ONCE)
        # End like a killed host: its children end with it, and the next host goes on from the last checkpoint.
        java_log.remove()
        note("interrupted", "WARNING")
        os._exit(130)

    threading.Thread(target=react, name="signals", daemon=True).start()
    before = {n: signal.signal(n, interrupted) for n in (signal.SIGINT, signal.SIGTERM)}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup` ignores it
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: caught.put(False))
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print(stop: threading.Event, text: str) -> None:
    """Print a line; if stdout is closed, such as of a terminal that is gone, end the host with a last cut."""
    try:
        print(logs_of.log_line(text), flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        stop.set()
