"""The declared tables: brought forward, written again, compacted, and what others have committed undone (SPEC A3, A7, K3, K6)."""

from collections.abc import Sequence

import dagster as dg
from pydantic import Field

from crkafka_core.lake.writing import each
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.plural import plural
from crkafka_core.plane import reading
from crkafka_core.plane import tables as plane_tables
from dagster_project import writing
from dagster_project.failures import as_dagster_failure
from dagster_project.resources import RegionResource, SparkSessionResource


class Advance(dg.Config):
    """Which table, and how far."""

    table: str = Field(description="The declared table.")
    upto: int = Field(description="Last checkpoint to write, inclusive.")


@dg.op
def advance(
    context: dg.OpExecutionContext, config: Advance, region: RegionResource, spark: SparkSessionResource
) -> None:
    """Write new checkpoints into a table, also those without a partition. The sensor publish launches it, a range at a time."""
    with as_dagster_failure():
        writing.TableRun(context, region, spark, config.table).advance(config.upto)


class Replay(dg.Config):
    """Which checkpoints, into what."""

    after: int = Field(
        description="Checkpoint before the first one to write: 3 begins behind checkpoint 3, 0 with the first one."
    )
    upto: int = Field(description="Last checkpoint to write, inclusive.")
    tables: list[str] = Field(default_factory=list, description="Declared tables to write; empty: all.")
    dry_run: bool = Field(
        default=False, description="Write nothing; log how many records would be read, and from where."
    )


@dg.op
def rewrite(
    context: dg.OpExecutionContext, config: Replay, region: RegionResource, spark: SparkSessionResource
) -> dg.Output[None]:
    """Write rows of checkpoints into tables again: from segments or, once deleted, from Kafka. Each is there once afterwards."""
    with as_dagster_failure():
        names = _tables(config, region.tables(), region.settings.region)
        plan = region.read(lambda reader, row: reading.plan(reader, row, after=config.after, upto=config.upto))
        about: dict[str, int | str] = {"rows": plan.rows, "checkpoints": len(plan.filled), "tables": ", ".join(names)}
        if config.dry_run:
            from_kafka = sum(r.rows for r in plan.ranges)
            context.log.info(
                f"{plural(plan.rows, 'record')} of {plural(len(plan.filled), 'checkpoint')} would be read again for {about['tables']}: "
                f"{plan.rows - from_kafka:,} from segments, {from_kafka:,} from Kafka."
            )
            return dg.Output(None, metadata={**about, "rows_from_kafka": from_kafka, "dry_run": True})
        for name in names:
            _rewrite(writing.TableRun(context, region, spark, name), plan)
    return dg.Output(None, metadata=about)


def _tables(config: Replay, declared: Sequence[str], region: str) -> Sequence[str]:
    """The tables that are meant; refuses what cannot be meant."""
    if not declared:
        raise ConfigError(f"Region {region} declares no table.", hint="Only declared tables are replayed.")
    if unknown := sorted(set(config.tables) - set(declared)):
        raise ConfigError(
            f"Region {region} declares no table {', '.join(unknown)}.", hint=f"Declared: {', '.join(declared)}."
        )
    return config.tables or declared


def _rewrite(run: writing.TableRun, plan: reading.ReadPlan) -> None:
    table = run.region.read(lambda reader, row: plane_tables.of(reader, run.name))
    run.rewrite([i for i in plan.filled if i <= table.acknowledged])
    if plan.filled and plan.filled[-1] > table.acknowledged:
        run.advance(plan.checkpoints[-1])
    run.materialize(plan.filled, replayed=True)


class Chosen(dg.Config):
    """Which tables."""

    tables: list[str] = Field(default_factory=list, description="Declared tables; empty: all.")


@dg.op
def maintain(context: dg.OpExecutionContext, config: Chosen, region: RegionResource) -> dg.Output[None]:
    """Compact the small files of declared tables, and delete files that no version within a table's retention needs. No row changes."""
    from crkafka_core.lake import compact
    from crkafka_core.lake.compact import Maintained, in_words

    def one(name: str) -> Maintained:
        done = compact.maintain(region.handle, name)
        context.log.info(f"{name}: {in_words(done)}")
        return done

    with as_dagster_failure():
        tried = each(config.tables or region.tables(), one)
        tried.end(context.log.error)
    texts = {name: in_words(done) for name, done in tried.done.items()}
    return dg.Output(None, metadata={"files": sum(done.merged for done in tried.done.values()), **texts})


@dg.op
def mend(
    context: dg.OpExecutionContext, config: Chosen, region: RegionResource, spark: SparkSessionResource
) -> dg.Output[None]:
    """Remove what other programs have committed to tables, and write missing rows again, as the check nothing_foreign reports."""
    from crkafka_core.spark import tables

    def one(name: str) -> bool:
        session = writing.session_for(region.read(lambda reader, row: plane_tables.of(reader, name)), spark)
        mended = tables.mend(session, region.handle, name) is not None
        context.log.info(f"{name}: {'mended' if mended else 'as it should be'}")
        return mended

    with as_dagster_failure():
        tried = each(config.tables or region.tables(), one)
        tried.end(context.log.error)
    return dg.Output(None, metadata={"mended": ", ".join(name for name, was in tried.done.items() if was) or "none"})
