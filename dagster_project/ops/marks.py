"""Pause, resume, skip records, forget a topic, undeclare a table: one op each (SPEC P2, S4, X4, X9)."""

import dagster as dg
from pydantic import Field

from crkafka_core.model.errors import ConfigError
from crkafka_core.model.offsets import parse_offsets
from crkafka_core.plane import tables
from dagster_project.failures import as_dagster_failure
from dagster_project.resources import RegionResource
from dagster_project.run_identity import asker

KINDS = ("partition", "topic", "pattern", "member")


class Mark(dg.Config):
    """What the mark is on."""

    kind: str = Field("topic", description="Kind of what is paused: partition, topic, pattern or member.")
    what: str = Field(
        description="Its name: a partition such as orders[3], a topic, a pattern of topics, a member such as orders/0."
    )
    member: str = Field("", description="Only while this member holds it; empty: any member.")

    def checked(self) -> str:
        """The kind, if it is one."""
        if self.kind not in KINDS:
            raise ConfigError(f"{self.kind!r} cannot be paused.", hint=f"Write one of {', '.join(KINDS)}.")
        if not self.what:
            raise ConfigError(f"`what` is empty: no {self.kind} is named.", hint=f"Write the {self.kind} there.")
        return self.kind


@dg.op
def pause(context: dg.OpExecutionContext, config: Mark, region: RegionResource) -> None:
    """Pause a partition, a topic, a pattern of topics, or a member until it is resumed. Includes partitions that do not exist yet."""
    with as_dagster_failure():
        region.open().pause(config.checked(), config.what, member=config.member, by=asker(context))
    context.log.info(f"{config.kind} {config.what} is paused")


@dg.op
def resume_mark(context: dg.OpExecutionContext, config: Mark, region: RegionResource) -> dg.Output[None]:
    """Resume what was paused."""
    with as_dagster_failure():
        was_paused = region.open().resume(config.checked(), config.what, member=config.member, by=asker(context))
    context.log.info(f"{config.kind} {config.what} " + ("flows again" if was_paused else "was not paused"))
    return dg.Output(None, metadata={"was_paused": was_paused})


class Forget(dg.Config):
    """Which topic."""

    topic: str = Field(description="A topic that was deleted or recreated.")
    sure: str = Field(
        description="The topic's name again, as confirmation. What was read of it stays; a recreated topic starts at its beginning."
    )


@dg.op
def forget(context: dg.OpExecutionContext, config: Forget, region: RegionResource) -> dg.Output[None]:
    """Forget a topic that was deleted or recreated, so that the region can go on. Its name has to be written twice."""
    with as_dagster_failure():
        if not config.topic:
            raise ConfigError(
                "`topic` is empty: no topic is named.", hint="Write the topic's name in it and in `sure`."
            )
        if config.sure != config.topic:
            raise ConfigError(
                f"Topic {config.topic} is not forgotten: `sure` says {config.sure!r}.",
                hint="Write the topic's name in both.",
            )
        partitions = region.open().forget(config.topic, by=asker(context))
    if not partitions:
        context.log.warning(f"The region knows no topic {config.topic}: nothing is forgotten.")
    return dg.Output(None, metadata={"partitions": partitions})


class Skip(dg.Config):
    """Which offsets."""

    offsets: str = Field(
        description="orders[3]@17 for one offset of a partition, orders[3]@17-20 for several, both ends included."
    )
    sure: str = Field(description="The same again, as confirmation: these records are lost for good.")


@dg.op
def skip(context: dg.OpExecutionContext, config: Skip, region: RegionResource) -> dg.Output[None]:
    """Skip offsets that no client can read; they become a recorded gap. The latest checkpoint must end at the first of them."""
    with as_dagster_failure():
        if config.sure != config.offsets:
            raise ConfigError(
                f"{config.offsets} is not skipped: `sure` says {config.sure!r}.", hint="Write the offsets in both."
            )
        tp, first, last = parse_offsets(config.offsets)
        goes_on = region.open().skip(tp, first, last, by=asker(context))
    context.log.info(f"{tp} goes on at offset {goes_on}")
    return dg.Output(None, metadata={"goes_on_at": goes_on})


class Undeclare(dg.Config):
    """Which table."""

    table: str = Field(description="A declared table that is not needed any more. Its rows are not deleted.")


@dg.op
def undeclare(context: dg.OpExecutionContext, config: Undeclare, region: RegionResource) -> None:
    """Remove a declared table from the control plane, once the configuration has it no more; nothing waits for it then."""
    with as_dagster_failure():
        if config.table in {t.name for t in region.settings.tables}:
            raise ConfigError(
                f"Table {config.table} is in the configuration of region {region.settings.region}.",
                hint="Take it out there first: it would be declared again.",
            )
        region.plane.do(lambda tx: tables.undeclare(tx, config.table, by=asker(context)))
