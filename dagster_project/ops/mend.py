"""Undo what others have committed to the declared tables (SPEC K6)."""

from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from crkafka_core.lake.in_turn import each
from crkafka_core.plane import tables as plane_tables
from dagster_project.failures import as_dagster_failure
from dagster_project.resources import RegionResource, SparkSessionResource
from dagster_project.writing import SparkIfNeeded

if TYPE_CHECKING:
    from crkafka_core.lake.writing import Committed


class Mend(dg.Config):
    """Which tables."""

    tables: list[str] = Field(default_factory=list, description="Declared tables to look at; none named: all of them.")


@dg.op(
    description="Compare tables with what was merged; rows that do not belong there leave, and what is missing is written again.",
)
def mend(
    context: dg.OpExecutionContext, config: Mend, region: RegionResource, spark: SparkSessionResource
) -> dg.Output[None]:
    def one(name: str) -> bool:
        done = _mended(context, region, spark, name)
        context.log.info(f"{name}: {'as it should be' if done is None else 'mended'}")
        return done is not None

    with as_dagster_failure():
        tried = each(config.tables or region.tables(), one)
        tried.end(context.log.error)
    mended = [name for name, was in tried.done.items() if was]
    return dg.Output(None, metadata={"mended": ", ".join(mended) or "none"})


def _mended(
    context: dg.OpExecutionContext, region: RegionResource, spark: SparkSessionResource, name: str
) -> "Committed | None":
    """What was written; Spark is started only where it is needed."""
    from crkafka_core.spark import tables

    table = region.read(lambda reader, row: plane_tables.of(reader, name))
    return SparkIfNeeded.of(table, spark, context.log.info).do(lambda s: tables.mend(s, region.handle, name))


@dg.graph(description="Undo what others have committed to the region's tables: what the check nothing_foreign finds.")
def mend_tables() -> None:
    mend()
