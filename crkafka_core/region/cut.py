"""Waits for the steps of a cut: drained, merged (SPEC D1-D4, C1-C7). Each may be repeated by any process."""

from __future__ import annotations

from collections.abc import Callable

from crkafka_core.control import Reader
from crkafka_core.model.errors import NoSuchCheckpoint, Refused
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Region
from crkafka_core.plane import cuts
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.region import waiting

Progress = Callable[[str], None]


class CutAborted(Refused):
    """The cut was aborted; the region resets to the head. Reaction: look at the reason; the next cut is due by itself."""


def _row(reader: Reader, region: Region, checkpoint: int) -> Checkpoint:
    row = reader.get(Checkpoint, checkpoint)
    if row is None:
        raise NoSuchCheckpoint(
            f"Region {region.name} has no checkpoint {checkpoint}.", hint="`crkafka checkpoints` lists them."
        )
    return row


def await_drained(plane: ControlPlane, checkpoint: int, progress: Progress) -> Checkpoint:
    """Wait until all expected members have contributed, or the cut has ended."""
    waits: list[str] = []

    def answer(reader: Reader, region: Region) -> Checkpoint | None:
        nonlocal waits
        row = _row(reader, region, checkpoint)
        if row.status is not CheckpointStatus.OPEN:
            return row
        left = cuts.waits_for(reader, checkpoint)
        if left and left != waits:
            waits = left
            progress(f"cut {checkpoint} waits for {plural(len(left), 'member')}")
        return None if left else row

    drained = waiting.until(plane, answer)
    assert drained is not None
    return drained


def await_merged(plane: ControlPlane, checkpoint: int, progress: Progress) -> Checkpoint:
    """Wait until the cut is merged; CutAborted if it is aborted."""

    def answer(reader: Reader, region: Region) -> Checkpoint | None:
        row = _row(reader, region, checkpoint)
        return None if row.status is CheckpointStatus.OPEN else row

    cut = waiting.until(plane, answer)
    assert cut is not None
    if cut.status is CheckpointStatus.EMPTY:
        progress(f"cut {checkpoint}: {cut.note}")
        return cut
    if not cut.merged_at:
        raise CutAborted(
            f"Cut {checkpoint} of region {plane.region} was aborted: {cut.note}",
            hint="The region resets to its head by itself.",
        )
    without = f", without {', '.join(cut.without)}" if cut.without else ""
    progress(f"checkpoint {checkpoint}: {plural(cut.rows, 'row')}{without}")
    return cut
