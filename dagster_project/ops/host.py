"""Hosting the members from Dagster: a run that lasts as long as the region is wanted (SPEC K1)."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
from pydantic import Field

from crkafka_core.model.errors import ServiceUnavailable
from crkafka_core.region import Region
from crkafka_core.region.host import Host
from crkafka_core.region.lease import DriverLease
from dagster_project.resources import RegionResource, SparkSessionResource
from dagster_project.telling import PAUSE, asker, token, told

LEASE = "host"
"""Kind of the lease of a run that hosts the members."""


class HostConfig(dg.Config):
    """How to begin."""

    start: bool = Field(True, description="Also want the region to run. Off: only host it while it is wanted.")


@dg.op(
    description="Run the members until the region is stopped. Terminating the run ends them; a sensor starts another.",
)
def host(
    context: dg.OpExecutionContext, config: HostConfig, region: RegionResource, spark: SparkSessionResource
) -> None:
    with told(), hosted(context, region.made(), spark, start=config.start) as hosting:
        _join(context, hosting)


def _join(context: dg.OpExecutionContext, hosting: Host) -> None:
    """Members outlive an outage of SQL; so does their host (SPEC G4, fault 37)."""
    while True:
        try:
            hosting.join()
            return
        except ServiceUnavailable as error:
            context.log.warning(f"{error} The members stay.")
            time.sleep(PAUSE)


@contextmanager
def hosted(
    context: dg.OpExecutionContext, region: Region, spark: SparkSessionResource, *, start: bool = True
) -> Iterator[Host]:
    """Members run until the block ends, under a lease in SQL: sensors see by it that they are hosted, and a second host is refused."""
    with DriverLease(region.plane, LEASE, asker(context), token=token(context)):
        if start:
            region.start(by=asker(context))
        hosting = _begun(region, spark)
        try:
            context.log.info(f"Members of region {region.config.region} are hosted by this run.")
            yield hosting
        finally:
            hosting.end()


def _begun(region: Region, spark: SparkSessionResource) -> Host:
    """A host of the configured kind, started."""
    hosting: Host
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
