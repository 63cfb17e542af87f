"""Retire, scale, start and stop: one op each."""

import dagster as dg
from pydantic import Field

from crkafka_core.model.errors import RegionStopped
from crkafka_core.model.phase import Phase
from dagster_project.resources import RegionResource
from dagster_project.telling import asker, told


@dg.op(
    description="Delete what is older than the last `retain` checkpoints and held by nobody; collect orphaned files.",
)
def retire(context: dg.OpExecutionContext, region: RegionResource) -> dg.Output[int]:
    with told():
        done = region.open().retire(progress=context.log.info)
    for why in done.held:
        context.log.warning(f"Held back: {why}")
    return dg.Output(
        len(done.checkpoints),
        metadata={
            "checkpoints": len(done.checkpoints),
            "segments": done.segments,
            "orphans": done.orphans,
            "held_by": ", ".join(done.held) or "nobody",
        },
    )


@dg.graph(
    description="Delete old checkpoints with their segments; their offsets stay in the archive, so that they can be replayed from Kafka."
)
def retire_checkpoints() -> None:
    retire()


class Scale(dg.Config):
    """How many."""

    members: int = Field(description="Wanted number of members; the change costs at most one reset.", ge=1)


@dg.op(description="Want another number of members.")
def scale(context: dg.OpExecutionContext, config: Scale, region: RegionResource) -> dg.Output[int]:
    with told():
        row = region.open().scale(config.members, by=asker(context))
    return dg.Output(row.members_wanted, metadata={"members": row.members_wanted})


@dg.graph(description="Scale the group out or in.")
def scale_region() -> None:
    scale()


@dg.op(description="Want the region to run; also leaves STOPPED, once its reason is mended.")
def start(context: dg.OpExecutionContext, region: RegionResource) -> dg.Output[str]:
    with told():
        row = region.made().start(by=asker(context))
    return dg.Output(str(row.phase), metadata={"phase": str(row.phase), "epoch": row.epoch})


@dg.graph(
    description="Start the region, or mend a stopped one: make it in the control plane if it is not there, and want it to run."
)
def start_region() -> None:
    start()


@dg.op(description="Cut a last time; then members leave the group cleanly.")
def stop(context: dg.OpExecutionContext, region: RegionResource) -> dg.Output[str]:
    with told():
        row = region.open().stop(by=asker(context), progress=context.log.info)
    return dg.Output(str(row.phase), metadata={"phase": str(row.phase), "head": row.head})


@dg.graph(description="Stop the region after a last cut.")
def stop_region() -> None:
    stop()


@dg.op(description="Fails with the reason for which the region stopped: what alerting hooks on.")
def alarm(context: dg.OpExecutionContext, region: RegionResource) -> None:
    with told():
        row = region.read(lambda _, row: row)
        if row.phase is not Phase.STOPPED:
            context.log.info(f"Region {row.name} is {row.phase} by now: nothing to alarm.")
            return
        who = f" Most often by {row.stop_member}." if row.stop_member else ""
        raise RegionStopped(
            f"Region {row.name} is stopped: {row.stop_reason}.{who}",
            hint="Mend the cause; then run start_region, or reset_region to another checkpoint.",
        )


@dg.graph(description="Started by a sensor when the region has stopped itself: fails, so that alerts go out.")
def stopped_alarm() -> None:
    alarm()
