"""Undo what others have committed to the declared tables (SPEC K6)."""

import dagster as dg
from pydantic import Field

from dagster_project.failures import as_dagster_failure
from dagster_project.resources import RegionResource, SparkSessionResource


class Mend(dg.Config):
    """Which tables."""

    tables: list[str] = Field(default_factory=list, description="Declared tables to look at; none named: all of them.")


@dg.op(
    description="Compare tables with what was merged; rows that do not belong there leave, and what is missing is written again.",
)
def mend(
    context: dg.OpExecutionContext, config: Mend, region: RegionResource, spark: SparkSessionResource
) -> dg.Output[None]:
    from crkafka_core.spark import tables

    mended = []
    with as_dagster_failure():
        for name in config.tables or [t.name for t in region.settings.tables]:
            done = tables.mend(spark.session(), region.handle, name)
            context.log.info(f"{name}: {'as it should be' if done is None else 'mended'}")
            if done is not None:
                mended.append(name)
    return dg.Output(None, metadata={"mended": ", ".join(mended) or "none"})


@dg.graph(description="Undo what others have committed to the region's tables: what the check nothing_foreign finds.")
def mend_tables() -> None:
    mend()
