"""The cut in three ops: open it, wait until members have drained and contributed, wait until it is merged (SPEC D1-D4, C1-C7).

The ops hand nothing on but their order: each finds the run's cut by its token, so that no run leaves files behind.
"""

from contextlib import AbstractContextManager, nullcontext

import dagster as dg
from pydantic import Field

from crkafka_core.model.errors import CutOpen, NotRunning, NotSettled, Refused
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, CheckpointStatus
from crkafka_core.plane import checkpoints
from crkafka_core.plane.leases import DRIVER
from crkafka_core.region import Region
from crkafka_core.region.lease import DriverLease
from dagster_project.failures import as_dagster_failure, refuse_less_than
from dagster_project.resources import RegionResource
from dagster_project.run_identity import asker, followed, is_reexecution, token


class OpenCut(dg.Config):
    """Why."""

    cause: str = Field("by hand", description="Reason, shown with the checkpoint and in the event log.")
    patience: float = Field(
        120.0,
        description="Seconds to wait for a region that is settling, resetting, or in another cut, before giving up.",
    )


def driver(region: RegionResource, context: dg.OpExecutionContext) -> AbstractContextManager[DriverLease | None]:
    """The right to drive cuts, kept from op to op; a second run is refused, with this one named (SPEC A6).

    Where the members' host drives them, this run is a person's and opens its cut beside it. A run that follows a cut opens none.
    """
    if followed(context) or not region.options.cuts:
        return nullcontext()
    return DriverLease(region.plane, DRIVER, asker(context), token=token(context))


@dg.op(out=dg.Out(dg.Nothing, is_required=False, description="Missing when the region does not know the cut any more."))
def open_cut(context: dg.OpExecutionContext, config: OpenCut, region: RegionResource):  # type: ignore[no-untyped-def]
    """Open a cut: members begin to drain. A run that the sensor trigger has launched follows the cut that is open already."""
    refuse_less_than(0, patience=config.patience)
    opened = None
    with as_dagster_failure(), driver(region, context) as lease:
        opened = _opened(context, config, region.open(), lease)
        if opened is not None and lease is not None:
            lease.keep()
    if opened is not None:
        if is_reexecution(context):
            context.log.info(
                f"Cut {opened.id} is another one: what run {context.run.parent_run_id} has cut stays as it is."
            )
        yield dg.Output(
            None,
            metadata={
                "checkpoint": opened.id,
                "parent": opened.parent,
                "members": opened.members,
                "epoch": opened.epoch,
            },
        )


def _of_run(region: Region, root: str) -> list[Checkpoint]:
    """The cuts that a run, and those that it goes on with, have opened; oldest first, all but the last aborted."""
    cuts: list[Checkpoint] = []
    while True:
        token = _token(root, len(cuts))
        opened = region.plane.read(lambda reader, _, t=token: checkpoints.of_token(reader, t))  # type: ignore[misc]
        if not opened:
            return cuts
        cuts += opened


def _token(root: str, number: int) -> str:
    return f"{root}-{number}" if number else root


def _opened(
    context: dg.OpExecutionContext, config: OpenCut, region: Region, driver: DriverLease | None
) -> Checkpoint | None:
    mine = _of_run(region, token(context))
    if followed(context):
        if not mine:
            context.log.info(
                f"Region {region.config.region} does not know the cut any more that this run would follow."
            )
        return mine[-1] if mine else None
    if mine and mine[-1].status is not CheckpointStatus.ABORTED:
        return mine[-1]
    name = _token(token(context), len(mine))
    left = config.patience
    while True:
        row = region.plane.read(lambda _, row: row)
        try:
            return region.open_cut(token=name, cause=config.cause, lease=driver.lease if driver else None)
        except CutOpen as open_cut:
            context.log.info(f"{open_cut} Waiting for it.")
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


def _begun(region: Region, context: dg.OpExecutionContext) -> int:
    """The cut that this run, or the one that it goes on with, has opened last."""
    mine = _of_run(region, token(context))
    if not mine:
        raise Refused(
            f"SQL knows no cut of region {region.config.region} that this run has opened.",
            hint="Run the whole job again.",
        )
    return mine[-1].id


@dg.op(ins={"opened": dg.In(dg.Nothing)})
def drain(context: dg.OpExecutionContext, region: RegionResource) -> dg.Output[None]:
    """Wait until every member has drained, closed its segments, and contributed."""
    with as_dagster_failure(), driver(region, context) as lease:
        it = region.open()
        checkpoint = _begun(it, context)
        row = it.await_drained(checkpoint, progress=context.log.info)
        if row.status is CheckpointStatus.ABORTED:
            it.await_merged(checkpoint)
        if lease is not None:
            lease.keep()
    return dg.Output(None, metadata={"checkpoint": checkpoint, "drain_ms": row.drain_ms})


@dg.op(name="checkpoint", ins={"drained": dg.In(dg.Nothing)})
def merge(context: dg.OpExecutionContext, region: RegionResource) -> dg.Output[None]:
    """Wait until the contributions are merged; the region goes on. An aborted cut fails here, with its reason."""
    with as_dagster_failure(), driver(region, context):
        it = region.open()
        row = it.await_merged(_begun(it, context), progress=context.log.info)
    if row.status is CheckpointStatus.EMPTY:
        return dg.Output(None, metadata={"checkpoint": row.parent, "rows": 0, "note": row.note})
    return dg.Output(
        None,
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


@dg.graph
def cut() -> None:
    """Make one consistent checkpoint of the whole group: members drain, contribute their offsets and files, and go on."""
    merge(drained=drain(opened=open_cut()))
