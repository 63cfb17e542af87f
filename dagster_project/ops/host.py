"""Hosting the members from Dagster: a run that lasts as long as the region is wanted (SPEC K1)."""

import dagster as dg
from pydantic import Field

from crkafka_core.region import Region
from dagster_project.resources import RegionResource, SparkSessionResource
from dagster_project.telling import asker, told


class Host(dg.Config):
    """How to begin."""

    start: bool = Field(True, description="Also want the region to run. Off: only host it while it is wanted.")


@dg.op(
    description="Run the members until the region is stopped. Terminating the run ends them; a sensor starts another.",
)
def host(context: dg.OpExecutionContext, config: Host, region: RegionResource, spark: SparkSessionResource) -> None:
    it = region.open()
    with told():
        it.init()
        if config.start:
            it.start(by=asker(context))
        run(context, it, spark)


def run(context: dg.OpExecutionContext, region: Region, spark: SparkSessionResource) -> None:
    """Until the region is idle and its members have left."""
    hosting = begin(region, spark)
    try:
        context.log.info(f"Members of region {region.config.region} are hosted by this run.")
        hosting.join()
    finally:
        hosting.end()


def begin(region: Region, spark: SparkSessionResource):  # type: ignore[no-untyped-def]
    """A host of the configured kind, started."""
    if region.config.host.spark:
        from crkafka_core.spark.host import SparkHost

        hosting = SparkHost(spark.session(), region)
    else:
        from crkafka_core.hosts.processes import ProcessHost

        hosting = ProcessHost(region.config, region.plane)
    hosting.begin()
    return hosting


@dg.graph(description="Host the region's members in this run until the region is stopped.")
def host_members() -> None:
    host()
