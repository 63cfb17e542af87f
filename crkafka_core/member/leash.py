"""A member ends with its host, and in the host's order: by the pipe between them, not by signals (SPEC G9, K1; faults 81, 85).

| what happens | what the member does |
|---|---|
| the host closes the pipe, or dies of anything, `kill -9` too | leaves cleanly, within `PATIENCE` |
| SIGTERM or SIGINT, as systemd sends them to all processes of a service | leaves after `GRACE`, unless a stop is wanted: last cut first |
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from queue import SimpleQueue

from crkafka_core.config import RegionConfig
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.phase import Wanted
from crkafka_core.plane.transact import open_plane

_log = logging.getLogger(__name__)
GRACE = 5.0
"""Seconds in which a host that got the same signal asks the region to stop."""
PATIENCE = 30.0
"""Seconds for a clean end once the host is gone; after that the process is ended, with what its threads were at in its log."""


def hold(pipe: int, config: RegionConfig, stop: threading.Event) -> None:
    """Watch the pipe and the signals from now on; to be called on the main thread."""
    threading.Thread(target=_until_broken, args=(pipe, stop), name="leash", daemon=True).start()
    on_signal(partial(_after_signal, config, stop))


def on_signal(act: Callable[[], None]) -> None:
    """Call `act` on a thread of its own after SIGTERM or SIGINT; to be called on the main thread. The handlers only put into a queue: they
    interrupt the main thread anywhere, also where it holds the lock of an event."""
    caught: SimpleQueue[int] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: caught.put(number))

    def react() -> None:
        caught.get()
        act()

    threading.Thread(target=react, name="signals", daemon=True).start()


def _until_broken(pipe: int, stop: threading.Event) -> None:
    while os.read(pipe, 1):
        pass
    if not stop.is_set():
        _log.info("the host wants this member no more, or is gone")
    # From C: a client that hangs may hold Python's lock, and then no thread of ours runs any more (docs/clients.md C-K28).
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    stop.set()


def _after_signal(config: RegionConfig, stop: threading.Event) -> None:
    if stop.wait(GRACE):
        return
    if _stop_is_wanted(config):
        _log.info("signalled while the region stops: the last cut comes first")
    else:
        stop.set()


def _stop_is_wanted(config: RegionConfig) -> bool:
    """The region ends its members itself, once the last cut is done or given up."""
    with suppress(CrkafkaError):
        plane = open_plane(config)
        with closing(plane.store):
            return plane.read(lambda _, region: region.wanted is Wanted.STOP)
    return False
