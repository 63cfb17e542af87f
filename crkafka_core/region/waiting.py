"""Waits for a region to reach a state, and meanwhile advances it, as any process may (SPEC G7)."""

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
    """Evaluate `answer` after each change of the region until it is not None; None after the timeout."""
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
    """Wait until the region is RUNNING or CUTTING in `epoch` or a later one."""
    reported = ""

    def answer(reader: Reader, region: Region) -> Region | None:
        nonlocal reported
        _refuse_stopped(region)
        if region.phase is Phase.IDLE and region.wanted is Wanted.STOP:
            raise NotRunning(
                f"Region {region.name} is idle and not wanted to run: there is nothing to wait for.",
                hint="`crkafka start` or `crkafka host` starts it.",
            )
        if region.phase in (Phase.RUNNING, Phase.CUTTING) and region.epoch >= epoch:
            return region
        words = f"{region.phase.lower()}: {waits_for(reader, region) or 'about to resume'}"
        if words != reported:
            reported = words
            progress(words)
        return None

    running = until(plane, answer, timeout=timeout)
    if running is None:
        raise NotSettled(
            f"Region {plane.region} did not run within {timeout:.0f} s: {reported}.", hint="See `crkafka show`."
        )
    return running


def _refuse_stopped(region: Region) -> None:
    if region.phase is Phase.STOPPED:
        raise RegionStopped(
            f"Region {region.name} is stopped: {region.stop_reason}", hint="Mend it, then `crkafka start`."
        )


def until_idle(plane: ControlPlane, progress: Callable[[str], None]) -> Region:
    """Wait until the region is IDLE: the last cut is done or given up, and members leave. Refused if it is started again."""
    reported = ""

    def answer(reader: Reader, region: Region) -> Region | None:
        nonlocal reported
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
        if words != reported:
            reported = words
            progress(words)
        return None

    idle = until(plane, answer)
    assert idle is not None
    return idle
