"""Replay: the rows of a range of checkpoints written into tables again, from segments or from Kafka (SPEC A3, K3)."""

import dagster as dg
from pydantic import Field

from crkafka_core.model.errors import ConfigError
from crkafka_core.plane import reading
from dagster_project.names import key_of
from dagster_project.resources import RegionResource, SparkSessionResource
from dagster_project.telling import told


class Replay(dg.Config):
    """Which checkpoints, into what."""

    after: int = Field(
        description="The first bound, left out: 3 begins with what followed checkpoint 3; 0 with the first one.", ge=0
    )
    upto: int = Field(description="The last checkpoint, included.", ge=1)
    tables: list[str] = Field([], description="Declared tables to write; none named: all of them.")


@dg.op(
    description="Write the rows of (after, upto] again; each is in the table once afterwards, however often it is replayed.",
)
def rewrite(
    context: dg.OpExecutionContext, config: Replay, region: RegionResource, spark: SparkSessionResource
) -> dg.Output[int]:
    from crkafka_core.spark import tables

    declared = [t.name for t in region.settings.tables]
    with told():
        unknown = sorted(set(config.tables) - set(declared))
        if unknown or not declared:
            raise ConfigError(
                f"Region {region.settings.region} declares no table {', '.join(unknown)}."
                if unknown
                else "The region declares no table.",
                hint=f"Declared: {', '.join(declared) or 'none'}.",
            )
        plan = region.read(lambda reader, row: reading.plan(reader, row, after=config.after, upto=config.upto))
        rows = 0
        for name in config.tables or declared:
            table = region.read(lambda reader, row, n=name: tables.plane.of(reader, row.name, n))  # type: ignore[misc]
            done = tables.rewrite(
                spark.session(), region.handle, name, [i for i in plan.filled if i <= table.acknowledged]
            )
            if plan.filled and plan.filled[-1] > table.acknowledged:
                tables.advance(spark.session(), region.handle, name, upto=plan.checkpoints[-1])
            rows += done.rows if done else 0
            for checkpoint in plan.filled:
                context.log_event(
                    dg.AssetMaterialization(
                        region.names.table(name), partition=key_of(checkpoint), metadata={"replayed": True}
                    )
                )
    return dg.Output(rows, metadata={"rows": rows, "checkpoints": len(plan.filled)})


@dg.graph(description="Write a range of checkpoints into the tables again.")
def replay() -> None:
    rewrite()
