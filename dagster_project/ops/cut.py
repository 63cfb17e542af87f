"""The cut in three ops: open it, wait until members have drained and contributed, wait until it is merged (SPEC §8, §9)."""

import dagster as dg
from pydantic import Field

from crkafka_core.model.errors import CutOpen, NotRunning, NotSettled
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, CheckpointStatus
from crkafka_core.region import Region
from crkafka_core.region.lease import DriverLease
from dagster_project.resources import RegionResource
from dagster_project.telling import asker, token, told


class OpenCut(dg.Config):
    """Why, and for which state of the region."""

    cause: str = Field("by hand", description="Shown with the checkpoint and in the event log.")
    epoch: int = Field(0, description="Only if the region is still in this epoch; 0: whatever it is. Sensors set it.")
    head: int = Field(
        -1, description="Only if this is still the latest checkpoint; -1: whatever it is. Sensors set it."
    )
    patience: float = Field(
        120.0,
        description="Seconds to wait for a region that is settling, resetting, or in another cut, before giving up.",
        ge=0,
    )


def driver(region: Region, context: dg.OpExecutionContext) -> DriverLease:
    """The right to drive cuts, kept from op to op; a second run is refused, with this one named (SPEC A6)."""
    return DriverLease(region.plane, "driver", asker(context), token=token(context))


@dg.op(
    out=dg.Out(int, is_required=False, description="The open cut; nothing when the reason for it is past."),
    description="Open a cut: fixes who is expected to contribute what. Members begin to drain.",
)
def open_cut(context: dg.OpExecutionContext, config: OpenCut, region: RegionResource):  # type: ignore[no-untyped-def]
    with told(), driver(it := region.open(), context) as lease:
        opened = _opened(context, config, it, lease)
        if opened is not None:
            lease.keep()
    if opened is not None:
        yield dg.Output(
            opened.id,
            metadata={
                "checkpoint": opened.id,
                "parent": opened.parent,
                "members": opened.members,
                "epoch": opened.epoch,
            },
        )


def _mine(region: Region, root: str) -> tuple[str, Checkpoint | None]:
    """The token of this run's cut, and the cut, if it or the run that it retries has opened one that was not aborted."""
    for number in range(1_000_000):
        name = f"{root}-{number}" if number else root
        found = region.plane.read(
            lambda reader, row, n=name: reader.select(Checkpoint, ("region", "=", row.name), ("token", "=", n), limit=1)  # type: ignore[misc]
        )
        if not found or found[0].status is not CheckpointStatus.ABORTED:
            return name, found[0] if found else None
    raise AssertionError("unreachable")


def _opened(context: dg.OpExecutionContext, config: OpenCut, region: Region, driver: DriverLease) -> Checkpoint | None:
    name, mine = _mine(region, token(context))
    if mine is not None:
        return mine
    left = config.patience
    while True:
        row = region.plane.read(lambda _, row: row)
        if config.epoch and (row.epoch, row.head) != (config.epoch, config.head):
            context.log.info(
                f"Region {row.name} is at epoch {row.epoch}, head {row.head}: the reason for this cut is past."
            )
            return None
        try:
            return region.open_cut(token=name, cause=config.cause, lease=driver.lease)
        except CutOpen as there:
            context.log.info(f"{there} Waiting for it.")
            other = region.plane.read(lambda _, row: row.open_cut)
            if other:
                region.await_drained(other, progress=context.log.info)
        except (NotRunning, NotSettled) as refused:
            if left <= 0 or row.phase in (Phase.IDLE, Phase.STOPPED):
                raise
            context.log.info(f"{refused} Waiting for at most {left:.0f} s.")
            before = row.version
            if row.phase is Phase.RUNNING:
                region.plane.wait(before, 1.0)
                left -= 1.0
            else:
                region.await_running(timeout=left, progress=context.log.info)


@dg.op(description="Wait until every member has drained, closed its segments, and contributed.")
def drain(context: dg.OpExecutionContext, region: RegionResource, checkpoint: int) -> dg.Output[int]:
    with told(), driver(it := region.open(), context) as lease:
        row = it.await_drained(checkpoint, progress=context.log.info)
        if row.status is CheckpointStatus.ABORTED:
            it.await_merged(checkpoint)
        lease.keep()
    return dg.Output(checkpoint, metadata={"checkpoint": checkpoint, "drain_ms": row.drain_ms})


@dg.op(
    name="checkpoint",
    description="Wait until the contributions are merged; the region goes on. An aborted cut fails here, with its reason.",
)
def merge(context: dg.OpExecutionContext, region: RegionResource, checkpoint: int) -> dg.Output[int]:
    with told(), driver(it := region.open(), context):
        row = it.await_merged(checkpoint, progress=context.log.info)
    return dg.Output(
        checkpoint,
        metadata={
            "checkpoint": row.id,
            "rows": row.rows,
            "bytes": row.bytes,
            "segments": row.segments,
            "members": row.members,
            "drain_ms": row.drain_ms,
            "cut_ms": round((row.merged_at - row.opened_at) * 1000),
        },
    )


@dg.graph(description="Drain the members, checkpoint them, go on: one consistent checkpoint of the whole group.")
def cut() -> None:
    merge(drain(open_cut()))
