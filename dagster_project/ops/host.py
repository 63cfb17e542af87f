"""Hosting the members from Dagster: a run that lasts as long as the region is wanted (SPEC K1)."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
from pydantic import Field

from crkafka_core.control import Reader
from crkafka_core.model.errors import ServiceUnavailable
from crkafka_core.model.phase import UNSETTLED, Phase
from crkafka_core.model.rows import MemberStatus
from crkafka_core.model.rows import Region as Row
from crkafka_core.plane import roster
from crkafka_core.region import Region
from crkafka_core.region.driver import driving
from crkafka_core.region.host import LEASE, Host, check_still_ours, running
from crkafka_core.region.lease import DriverLease
from dagster_project.failures import PAUSE_S, as_dagster_failure
from dagster_project.resources import RegionResource, SparkSessionResource
from dagster_project.run_identity import asker, token

POLL_S = 2.0
"""Seconds between two looks at the region."""


class HostConfig(dg.Config):
    """How to begin."""

    start: bool = Field(
        True, description="Start the region, too. Off: only run the members of a region that is started."
    )


@dg.op
def host(
    context: dg.OpExecutionContext, config: HostConfig, region: RegionResource, spark: SparkSessionResource
) -> None:
    """Run the members until the region is stopped. Terminating the run ends them; the sensor host launches another."""
    with as_dagster_failure():
        it = region.initialised(configure=False)
        with (
            hosted(context, it, spark, start=config.start) as (hosting, right),
            driving(it, drive=not region.options.cuts),
        ):
            _join(context, it, hosting, right)


def _join(context: dg.OpExecutionContext, region: Region, hosting: Host, right: DriverLease) -> None:
    """Until the region is idle; tells what changes. Members outlive an outage of SQL; so does their host (SPEC G4, fault 37).

    A run that slept while another host took over ends: the members are not its to keep.
    """
    last = ""
    while True:
        try:
            now = region.plane.read(state)
            if now != last:
                context.log.info(now)
            last = now
            if hosting.join(POLL_S):
                return
            check_still_ours(hosting, right, more="its page")
        except ServiceUnavailable as error:
            context.log.warning(f"{error} The members stay.")
            time.sleep(PAUSE_S)


def state(reader: Reader, region: Row) -> str:
    """What the run's log tells when it changes: phase, epoch, members, why the region stopped. Not its cuts: there would be too many."""
    members = roster.all_of(reader)
    phase = Phase.RUNNING if region.phase is Phase.CUTTING else region.phase
    live = ", ".join(m.name for m in members if m.status is MemberStatus.LIVE) or "none"
    gone = "".join(f"; {m.name} is {m.status.lower()}" for m in members if m.status is not MemberStatus.LIVE)
    why = f"; {region.stop_reason}" if phase is Phase.STOPPED else ""
    if region.reset_cause and not why:  # a quick reset is over before anybody looks
        why = f"; {'' if phase in UNSETTLED else 'the last reset: '}{region.reset_cause}"
    return f"{phase}, epoch {region.epoch}; members: {live}{gone}{why}"


@contextmanager
def hosted(
    context: dg.OpExecutionContext, region: Region, spark: SparkSessionResource, *, start: bool = True
) -> Iterator[tuple[Host, DriverLease]]:
    """Members run until the block ends, under a lease in SQL: sensors see by it that they are hosted, and a second host is refused."""
    with DriverLease(region.plane, LEASE, asker(context), token=token(context)) as right:
        region.init()
        if start:
            region.start(by=asker(context))
        else:
            region.refuse_copy()
        hosting = _opened(region, spark)
        with running(region, hosting, tell=context.log.warning, news=context.log.info):
            context.log.info(f"Members of region {region.config.region} are hosted by this run.")
            yield hosting, right


def _opened(region: Region, spark: SparkSessionResource) -> Host:
    """A host of the configured kind."""
    if region.config.host.spark:
        from crkafka_core.spark.host import SparkHost

        return SparkHost(spark.session(), region)
    from crkafka_core.hosts.processes import ProcessHost

    return ProcessHost(region.config, region.plane)
