"""Waiting for a region to reach a state, while doing what anyone may do who finds it due (SPEC G7)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from crkafka_core.control import Reader
from crkafka_core.model.errors import NotRunning, NotSettled, Refused, RegionStopped
from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.rows import Region
from crkafka_core.plane import advance
from crkafka_core.plane.status import waits_for
from crkafka_core.plane.transact import ControlPlane

T = TypeVar("T")
TICK = 0.25


def until(
    plane: ControlPlane, answer: Callable[[Reader, Region], T | None], *, timeout: float | None = None
) -> T | None:
    """Ask after every change of the region until there is an answer; None when the time is over."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        answered, region, due = plane.read(lambda reader, row: (answer(reader, row), row, advance.due(reader, row)))
        if answered is not None:
            return answered
        if end is not None and time.monotonic() >= end:
            return None
        if due:
            plane.do(advance.advance)
        plane.wait(region.version, TICK)


def until_running(
    plane: ControlPlane, epoch: int, progress: Callable[[str], None], *, timeout: float | None = None
) -> Region:
    """RUNNING or CUTTING in `epoch` or a later one."""
    said = ""

    def answer(reader: Reader, region: Region) -> Region | None:
        nonlocal said
        _refuse_stopped(region)
        if region.phase is Phase.IDLE and region.wanted is Wanted.STOP:
            raise NotRunning(
                f"Region {region.name} is idle: nobody wants it to run, so that there is nothing to wait for.",
                hint="`crkafka start` or `crkafka host` starts it.",
            )
        if region.phase in (Phase.RUNNING, Phase.CUTTING) and region.epoch >= epoch:
            return region
        words = f"{region.phase.lower()}: {waits_for(reader, region) or 'about to resume'}"
        if words != said:
            said = words
            progress(words)
        return None

    running = until(plane, answer, timeout=timeout)
    if running is None:
        raise NotSettled(
            f"Region {plane.region} did not run within {timeout:.0f} s: {said}.", hint="`crkafka show` tells more."
        )
    return running


def _refuse_stopped(region: Region) -> None:
    if region.phase is Phase.STOPPED:
        raise RegionStopped(
            f"Region {region.name} is stopped: {region.stop_reason}", hint="Mend it, then `crkafka start`."
        )


def until_idle(plane: ControlPlane, progress: Callable[[str], None]) -> Region:
    """IDLE: the last cut is done or given up, and members leave. An error when somebody wants the region to run again."""

    said = ""

    def answer(reader: Reader, region: Region) -> Region | None:
        nonlocal said
        if region.phase is Phase.IDLE:
            return region
        _refuse_stopped(region)
        if region.wanted is Wanted.RUN:
            raise Refused(
                f"Region {region.name} was started again before it had come to its end.",
                hint="It runs on; `crkafka stop` stops it.",
            )
        waits = "" if region.phase is Phase.CUTTING else waits_for(reader, region)
        words = f"{region.phase.lower()}: the last cut {f'waits: {waits}' if waits else 'is on its way'}"
        if words != said:
            said = words
            progress(words)
        return None

    idle = until(plane, answer)
    assert idle is not None
    return idle
