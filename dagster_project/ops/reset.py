"""A reset in three ops: ask for it, let partitions and tables follow, wait until the region runs (SPEC §11, X4)."""

from typing import Literal

import dagster as dg
from pydantic import Field

from crkafka_core.model.errors import ConfigError
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Event
from crkafka_core.plane import resets
from dagster_project.ops.partitions import remove_superseded
from dagster_project.resources import RegionResource, SparkSessionResource
from dagster_project.telling import asker, root, told


class Reset(dg.Config):
    """Where to, and why."""

    to: str = Field(
        "head",
        description="head: undo what is not checkpointed yet. A number: that merged checkpoint; those after it are superseded, and "
        "their rows leave the tables. initial: the offsets at which the group first saw each partition.",
    )
    cause: str = Field("asked by a person", description="Shown in the event log and with what is superseded.")
    follow: bool = Field(
        False, description="Ask for nothing: only finish what somebody else has asked for. Sensors set it."
    )


def target(text: str) -> int | Literal["initial"] | None:
    """What `to` means."""
    if text == "head":
        return None
    if text == "initial":
        return "initial"
    if not text.isascii() or not text.isdigit():
        raise ConfigError(
            f"{text!r} is no target of a reset.", hint="Write head, initial, or the number of a merged checkpoint."
        )
    return int(text)


@dg.op(
    description="Raise the epoch: members seek back and rest. Refused if Kafka no longer holds the target.",
)
def reset(context: dg.OpExecutionContext, config: Reset, region: RegionResource) -> dg.Output[int]:
    mine = f"dagster run {root(context)}"
    with told():
        it = region.open()
        row, asked = it.plane.read(
            lambda reader, row: (
                row,
                [e for e in reader.select(Event, ("region", "=", row.name), ("kind", "=", "reset"), order=("seq",), desc=True, limit=50)
                 if e.by.startswith(mine)],
            )
        )  # fmt: skip
        if config.follow or asked:
            epoch = asked[0].epoch if asked else row.epoch
        else:
            epoch = it.reset(target(config.to), by=asker(context), cause=config.cause)
        head = it.plane.read(lambda _, row: row.head)
    return dg.Output(epoch, metadata={"epoch": epoch, "head": head})


@dg.op(
    description="Remove superseded partitions, and their rows from every declared table that owes it.",
)
def rewind(
    context: dg.OpExecutionContext, region: RegionResource, spark: SparkSessionResource, epoch: int
) -> dg.Output[int]:
    with told():
        removed = remove_superseded(context.instance, region)
        owed = region.read(lambda reader, row: resets.unfenced(reader, row.name))
        if owed:
            from crkafka_core.spark.tables import fence_all

            session = spark.session() if any(t.format != "parquet" for t in owed) else None
            fence_all(session, region.handle)
    return dg.Output(
        epoch, metadata={"partitions_removed": len(removed), "tables": ", ".join(t.name for t in owed) or "none"}
    )


@dg.op(description="Wait until the region runs again.")
def resume(context: dg.OpExecutionContext, region: RegionResource, epoch: int) -> dg.Output[int]:
    with told():
        it = region.open()
        row = it.plane.read(lambda _, row: row)
        if row.phase is Phase.IDLE:
            context.log.info("The region is idle: it goes on from its head when it is started.")
        else:
            row = it.await_running(epoch, progress=context.log.info)
    return dg.Output(
        row.epoch,
        metadata={"epoch": row.epoch, "head": row.head, "seconds": round(max(0.0, row.resumed_at - row.reset_at), 3)},
    )


@dg.graph(description="Go back to the latest checkpoint, to an older one, or to the beginning; always accepted.")
def reset_region() -> None:
    resume(rewind(reset()))
