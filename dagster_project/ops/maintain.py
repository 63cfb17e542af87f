"""Compaction of the declared tables that adopt segments (SPEC K6)."""

import dagster as dg
from pydantic import Field

from dagster_project.failures import as_dagster_failure
from dagster_project.resources import RegionResource


class Maintain(dg.Config):
    """Which tables."""

    tables: list[str] = Field(default_factory=list, description="Tables that adopt segments; none named: all of these.")


@dg.op(
    description="Make few large files of many small ones, and delete what no version within a table's retention needs."
)
def maintain(context: dg.OpExecutionContext, config: Maintain, region: RegionResource) -> dg.Output[int]:
    from crkafka_core.tables import maintain as adopted

    merged, said = 0, {}
    with as_dagster_failure():
        for name in region.handle.plane.read(lambda reader, _: adopted.chosen(reader, config.tables)):
            done = adopted.maintain(region.handle, name)
            merged, said[name] = merged + done.merged, adopted.in_words(done)
            context.log.info(f"{name}: {said[name]}")
    return dg.Output(merged, metadata={"files": merged, **said})


@dg.graph(
    description="Compact the tables that adopt segments: few large files in the place of many small ones; no row changes."
)
def maintain_tables() -> None:
    maintain()
