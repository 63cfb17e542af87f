"""A table brought forward past what Dagster shows as partitions: by a bounded range of checkpoints, and without any (SPEC A7)."""

import dagster as dg
from pydantic import Field

from dagster_project import writing
from dagster_project.failures import as_dagster_failure
from dagster_project.resources import RegionResource, SparkSessionResource


class Advance(dg.Config):
    """Which table, and how far."""

    table: str = Field(description="A declared table.")
    upto: int = Field(description="The last checkpoint that it gets, included.")


@dg.op(description="Write what follows in the table, up to a checkpoint; nothing where it has that one already.")
def advance(
    context: dg.OpExecutionContext, config: Advance, region: RegionResource, spark: SparkSessionResource
) -> None:
    with as_dagster_failure():
        writing.TableRun(context, region, spark, config.table).advance(config.upto)


@dg.graph(
    description="Bring a table forward over checkpoints that have left the partitions; the sensor launches it, a range at a time."
)
def advance_table() -> None:
    advance()
