"""Waits for a region to reach a state, and meanwhile advances it, as any process may (SPEC G7)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TypeVar

from crkafka_core.control import Reader
from crkafka_core.model.errors import NoSuchCheckpoint, NotRunning, NotSettled, Refused, RegionStopped
from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Region
from crkafka_core.plane import advance, merging
from crkafka_core.plane.status import waits_for
from crkafka_core.plane.transact import ControlPlane

T = TypeVar("T")
Progress = Callable[[str], None]
TICK = 0.25
_DURATION = re.compile(r"[\d.]+ s\b")
"""A duration in the text of a step: a step that differs only in it is the same one."""


class CutAborted(Refused):
    """The cut was aborted; the region resets to the head. Reaction: look at the reason; the next cut is due by itself."""


def silent(_: str) -> None:
    """Ignores a step."""


def until(
    plane: ControlPlane,
    answer: Callable[[Reader, Region], T | str],
    progress: Progress = silent,
    *,
    timeout: float | None = None,
) -> T:
    """Evaluate `answer` after each change of the region, as long as it is a text: what is waited for, which goes to `progress`."""
    end = None if timeout is None else time.monotonic() + timeout
    reported = ""
    while True:
        answered, region, due = plane.read(lambda reader, row: (answer(reader, row), row, advance.due(reader, row)))
        if not isinstance(answered, str):
            return answered
        before, reported = reported, answered
        if _DURATION.sub("", before) != _DURATION.sub("", answered):
            progress(answered)
        if end is not None and time.monotonic() >= end:
            text = f"Region {plane.region} did not get there within {timeout:.0f} s: {reported}."
            raise NotSettled(text, hint="See `crkafka show`.")
        if due:
            plane.do(advance.advance)
        plane.wait(region.version, TICK)


def until_running(plane: ControlPlane, epoch: int, progress: Progress, *, timeout: float | None = None) -> Region:
    """Wait until the region is RUNNING or CUTTING in `epoch` or a later one."""

    def answer(reader: Reader, region: Region) -> Region | str:
        refuse_stopped(region)
        if region.phase is Phase.IDLE and region.wanted is Wanted.STOP:
            text = f"Region {region.name} is idle and not wanted to run: there is nothing to wait for."
            raise NotRunning(text, hint="`crkafka start` or `crkafka host` starts it.")
        if region.phase in (Phase.RUNNING, Phase.CUTTING) and region.epoch >= epoch:
            return region
        return f"{region.phase.lower()}: {waits_for(reader, region) or 'about to resume'}"

    return until(plane, answer, progress, timeout=timeout)


def refuse_stopped(region: Region) -> None:
    if region.phase is Phase.STOPPED:
        text = f"Region {region.name} is stopped: {region.stop_reason}"
        raise RegionStopped(text, hint="Mend it, then `crkafka start`.")


def until_idle(plane: ControlPlane, progress: Progress) -> Region:
    """Wait until the region is IDLE: the last cut is done or given up, and members leave. Refused if it is started again."""

    def answer(reader: Reader, region: Region) -> Region | str:
        if region.phase is Phase.IDLE:
            return region
        refuse_stopped(region)
        if region.wanted is Wanted.RUN:
            text = f"Region {region.name} was started again before it had come to its end."
            raise Refused(text, hint="It runs on; `crkafka stop` stops it.")
        waits = "" if region.phase is Phase.CUTTING else waits_for(reader, region)
        return f"{region.phase.lower()}: the last cut {f'waits: {waits}' if waits else 'is on its way'}"

    return until(plane, answer, progress)


def until_drained(plane: ControlPlane, checkpoint: int, progress: Progress) -> Checkpoint:
    """Wait until all expected members have contributed, or the cut has ended (SPEC D1-D4)."""

    def answer(reader: Reader, region: Region) -> Checkpoint | str:
        row = _row(reader, region, checkpoint)
        left = merging.waits_for(reader) if row.status is CheckpointStatus.OPEN else []
        return f"cut {checkpoint} waits for {plural(len(left), 'member')}" if left else row

    return until(plane, answer, progress)


def until_merged(plane: ControlPlane, checkpoint: int, progress: Progress) -> Checkpoint:
    """Wait until the cut is merged (SPEC C1-C7); CutAborted if it is aborted."""

    def answer(reader: Reader, region: Region) -> Checkpoint | str:
        row = _row(reader, region, checkpoint)
        return "" if row.status is CheckpointStatus.OPEN else row

    cut = until(plane, answer)
    if cut.status is CheckpointStatus.EMPTY:
        progress(f"cut {checkpoint}: {cut.note}")
        return cut
    if not cut.merged_at:
        text = f"Cut {checkpoint} of region {plane.region} was aborted: {cut.note}"
        raise CutAborted(text, hint="The region resets to its head by itself.")
    without = f", without {', '.join(cut.without)}" if cut.without else ""
    progress(f"checkpoint {checkpoint}: {plural(cut.rows, 'row')}{without}")
    return cut


def _row(reader: Reader, region: Region, checkpoint: int) -> Checkpoint:
    row = reader.get(Checkpoint, checkpoint)
    if row is None:
        hint = "`crkafka checkpoints` lists them."
        raise NoSuchCheckpoint(f"Region {region.name} has no checkpoint {checkpoint}.", hint=hint)
    return row
