"""Compaction of the declared tables (SPEC K6)."""

import dagster as dg
from pydantic import Field

from crkafka_core.lake.in_turn import each
from dagster_project.failures import as_dagster_failure
from dagster_project.resources import RegionResource


class Maintain(dg.Config):
    """Which tables."""

    tables: list[str] = Field(default_factory=list, description="Declared tables to compact; none named: all of them.")


@dg.op(
    description="Make few large files of many small ones, and delete what no version within a table's retention needs."
)
def maintain(context: dg.OpExecutionContext, config: Maintain, region: RegionResource) -> dg.Output[None]:
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


@dg.graph(description="Compact the declared tables: few large files in the place of many small ones; no row changes.")
def maintain_tables() -> None:
    maintain()
