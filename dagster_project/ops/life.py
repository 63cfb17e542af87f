"""Retire, scale, start and stop: one op each."""

import dagster as dg
from pydantic import Field

from crkafka_core.control import Reader
from crkafka_core.model.errors import ConfigError, RegionStopped
from crkafka_core.model.phase import Phase
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Checkpoint, Region
from crkafka_core.plane import checkpoints
from crkafka_core.plane import retire as retiring
from dagster_project.failures import as_dagster_failure
from dagster_project.resources import RegionResource
from dagster_project.run_identity import asker


class Retire(dg.Config):
    """Whether to do it."""

    dry_run: bool = Field(
        default=False, description="Delete nothing; log what would be deleted, and what is held back."
    )


@dg.op
def retire(context: dg.OpExecutionContext, config: Retire, region: RegionResource) -> dg.Output[None]:
    """Delete segments of checkpoints before the last `retain`, unless still needed. Their rows can be read from Kafka again."""
    if config.dry_run:
        return _would_retire(context, region)
    with as_dagster_failure():
        done = region.open().retire(progress=context.log.info)
    for why in done.held:
        context.log.warning(f"Held back: {why}")
    return dg.Output(
        None,
        metadata={
            "checkpoints": len(done.checkpoints),
            "segments": done.segments,
            "orphans": done.orphans,
            "held_by": ", ".join(done.held) or "nobody",
        },
    )


def _would_retire(context: dg.OpExecutionContext, region: RegionResource) -> dg.Output[None]:
    with as_dagster_failure():
        plan, old = region.read(_retirable)
    rows, segments, size = (sum(getattr(c, what) for c in old) for what in ("rows", "segments", "bytes"))
    which = f", {old[0].id} to {old[-1].id}," if old else ""
    context.log.info(
        f"The segments of {plural(len(old), 'checkpoint')}{which} would be deleted: "
        f"{plural(rows, 'row')} in {plural(segments, 'file')} of {plural(size, 'byte')}."
    )
    for why in plan.held:
        context.log.warning(f"Held back: {why}")
    about = {"would_retire": len(old), "rows": rows, "segments": segments, "bytes": size}
    return dg.Output(None, metadata={**about, "held_by": ", ".join(plan.held) or "nobody"})


def _retirable(reader: Reader, row: Region) -> tuple[retiring.Plan, list[Checkpoint]]:
    plan = retiring.plan(reader, row)
    return plan, checkpoints.within(reader, plan.retire)


class Scale(dg.Config):
    """How many."""

    members: int = Field(description="Number of members, at least 1. The change costs one reset at most.")


@dg.op
def scale(context: dg.OpExecutionContext, config: Scale, region: RegionResource) -> dg.Output[None]:
    """Set the number of members."""
    with as_dagster_failure():
        if config.members < 1:
            raise ConfigError(
                f"A region cannot be scaled to {config.members} members.",
                hint="Write 1 or more; stop_region makes it rest.",
            )
        row = region.open().scale(config.members, by=asker(context))
    return dg.Output(None, metadata={"members": row.members_wanted})


@dg.op
def start(context: dg.OpExecutionContext, region: RegionResource) -> dg.Output[None]:
    """Start the region; create it in the control plane if it is not there. Restarts a region that a failure has stopped, too."""
    with as_dagster_failure():
        row = region.initialised().start(by=asker(context))
    return dg.Output(None, metadata={"phase": str(row.phase), "epoch": row.epoch})


@dg.op
def stop(context: dg.OpExecutionContext, region: RegionResource) -> dg.Output[None]:
    """Stop the region: members make a last checkpoint, then leave the group."""
    with as_dagster_failure():
        row = region.open().stop(by=asker(context), progress=context.log.info)
    return dg.Output(None, metadata={"phase": str(row.phase), "head": row.head})


@dg.op
def alarm(context: dg.OpExecutionContext, region: RegionResource) -> None:
    """Fails with the reason for which the region has stopped, so that alerts are sent. The sensor watch launches it."""
    with as_dagster_failure():
        row = region.read(lambda _, row: row)
        if row.phase is not Phase.STOPPED:
            context.log.info(f"Region {row.name} is {row.phase} by now: nothing to alarm.")
            return
        who = f" Most often by {row.stop_member}." if row.stop_member else ""
        raise RegionStopped(
            f"Region {row.name} is stopped: {row.stop_reason}.{who}",
            hint="Remove the cause; then launch start_region, or reset_region to another checkpoint.",
        )
