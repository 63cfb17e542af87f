"""A reset in three ops: ask for it, let partitions and tables follow, wait until the region runs (SPEC X1-X7).

The ops hand nothing on but their order: each finds the run's reset by its token.
"""

from collections.abc import Collection
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from crkafka_core.control import Reader
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.phase import Phase
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Region as Row
from crkafka_core.plane import checkpoints, epochs, resets
from crkafka_core.plane import tables as plane_tables
from dagster_project import partitions
from dagster_project.failures import as_dagster_failure
from dagster_project.names import FOLLOWS
from dagster_project.resources import RegionResource, SparkSessionResource
from dagster_project.run_identity import asker, token


class Reset(dg.Config):
    """Where to, and why."""

    to: Any = Field(
        "head",
        description="head: undo what is not checkpointed yet. A number: that merged checkpoint; those after it are superseded, and "
        "their rows leave the tables. initial, or 0: the offsets at which the group first saw each partition.",
    )
    cause: str = Field("", description="Reason, shown in the event log and with the superseded checkpoints.")
    give_up: list[str] = Field(
        default=[], description="Forgotten topics whose rows may leave the tables, though they are not read again."
    )
    dry_run: bool = Field(False, description="Reset nothing; log the checkpoints and rows that would be superseded.")
    sure: str = Field(
        default="",
        description="For `initial` only: the region's name, as confirmation. All checkpoints are superseded, and leave the tables.",
    )


def target(to: object) -> int | Literal["initial"] | None:
    """What `to` means; YAML makes a number of 10."""
    text = str(to)
    if text == "head":
        return None
    if text == "initial":
        return "initial"
    if not text.isascii() or not text.isdigit():
        raise ConfigError(
            f"{text!r} is not a target for a reset.", hint="Write head, initial, or the number of a merged checkpoint."
        )
    return int(text) or "initial"


def superseded_by(
    reader: Reader, region: Row, to: int | Literal["initial"] | None, give_up: Collection[str] = ()
) -> dict[int, int]:
    """The rows of each checkpoint that a reset would leave behind; refused as the reset would be."""
    after = region.head if to is None else 0 if to == "initial" else to
    resets.check_target(reader, region, after, give_up)
    return checkpoints.rows_of(reader, checkpoints.filled(reader, above=after))


def _confirmed(config: Reset, region: str) -> None:
    """Going back to the beginning supersedes every checkpoint: a slip of the hand must not do it."""
    if target(config.to) == "initial" and config.sure != region:
        raise ConfigError(
            f"Region {region} is not reset to its beginning: `sure` says {config.sure!r}. All checkpoints would be superseded, and their "
            "rows would leave the tables.",
            hint=f"Look with `dry_run: true`; if you mean it, write `sure: {region}`.",
        )


@dg.op(out=dg.Out(dg.Nothing, is_required=False, description="Missing after a dry run."))
def reset(context: dg.OpExecutionContext, config: Reset, region: RegionResource):  # type: ignore[no-untyped-def]
    """Begin the reset: members go back to the target. Refused if Kafka no longer has its offsets."""
    mine = token(context)
    if config.dry_run:
        with as_dagster_failure():
            to = target(config.to)
            gone = region.read(lambda reader, row: superseded_by(reader, row, to, config.give_up))
        first, last = (min(gone), max(gone)) if gone else (0, 0)
        context.log.info(
            f"A reset to {config.to} would supersede {plural(len(gone), 'checkpoint')} with {plural(sum(gone.values()), 'row')}"
            + (f", {first} to {last}." if gone else ".")
        )
        return
    with as_dagster_failure():
        it = region.open()
        row, asked = it.plane.read(lambda reader, row: (row, resets.of_token(reader, mine)))
        if asked is not None:
            epoch = asked.epoch
        elif FOLLOWS in context.run.tags:
            epoch = row.epoch  # a sensor's run finishes a reset that was asked for already
        else:
            _confirmed(config, row.name)
            epoch = it.reset(
                target(config.to), by=asker(context), cause=config.cause, token=mine, give_up=config.give_up
            )
        head = it.plane.read(lambda _, row: row.head)
    yield dg.Output(None, metadata={"epoch": epoch, "head": head})


@dg.op(ins={"asked": dg.In(dg.Nothing)})
def rewind(context: dg.OpExecutionContext, region: RegionResource, spark: SparkSessionResource) -> dg.Output[None]:
    """Remove superseded partitions, and their rows from every declared table that has not followed yet."""
    with as_dagster_failure():
        removed = partitions.remove_superseded(context.instance, region)
        owed = region.read(lambda reader, row: epochs.unfenced(reader))
        if owed:
            from crkafka_core.spark.tables import fence_all

            session = spark.session() if any(plane_tables.needs_spark(t) for t in owed) else None
            fence_all(session, region.handle)
    return dg.Output(
        None, metadata={"partitions_removed": len(removed), "tables": ", ".join(t.name for t in owed) or "none"}
    )


@dg.op(ins={"rewound": dg.In(dg.Nothing)})
def resume(context: dg.OpExecutionContext, region: RegionResource) -> dg.Output[None]:
    """Wait until the region runs again."""
    mine = token(context)
    with as_dagster_failure():
        it = region.open()
        row, asked = it.plane.read(lambda reader, row: (row, resets.of_token(reader, mine)))
        if row.phase is Phase.IDLE:
            context.log.info("The region is idle: it goes on from its head when it is started.")
        else:
            row = it.await_running(row.epoch if asked is None else asked.epoch, progress=context.log.info)
        since = row.reset_at if asked is None else asked.at
    return dg.Output(
        None, metadata={"epoch": row.epoch, "head": row.head, "seconds": round(max(0.0, row.resumed_at - since), 3)}
    )


@dg.graph
def reset_region() -> None:
    """Go back to the latest checkpoint, to an older one, or to the beginning."""
    resume(rewound=rewind(asked=reset()))
