"""A bounded run: members consume to the ends seen at its start, are cut, and leave (SPEC V3)."""

import dagster as dg
from pydantic import Field

from crkafka_core.control import Reader
from crkafka_core.model import limits
from crkafka_core.model.errors import NotSettled
from crkafka_core.model.rows import Lease
from crkafka_core.model.rows import Region as Row
from crkafka_core.plane import roster
from crkafka_core.region import Region, waiting
from crkafka_core.region.caught_up import consume as caught_up
from crkafka_core.region.host import LEASE
from dagster_project.failures import as_dagster_failure
from dagster_project.ops import host
from dagster_project.resources import RegionResource, SparkSessionResource
from dagster_project.run_identity import asker, token


class Consume(dg.Config):
    """What happens afterwards."""

    stop: bool = Field(True, description="Stop the region at the end, if this run has started its members.")


@dg.op
def consume(
    context: dg.OpExecutionContext, config: Consume, region: RegionResource, spark: SparkSessionResource
) -> dg.Output[None]:
    """Read all topics to their present ends, then make a checkpoint. Where no host runs members, this run starts and stops them."""
    with as_dagster_failure():
        it = region.initialised(configure=False)
        if _hosted(it, token(context)):
            done = caught_up(it, token=token(context), progress=context.log.info)
        else:
            with host.hosted(context, it, spark):
                done = caught_up(it, token=token(context), progress=context.log.info)
                if config.stop:
                    it.stop(by=asker(context), progress=context.log.info)
    row = done.checkpoint
    left_out = ", ".join(map(str, done.left_out)) or "none"
    return dg.Output(
        None,
        metadata={
            "checkpoint": row.id,
            "rows": row.rows,
            "bytes": row.bytes,
            "partitions": done.partitions,
            "paused_and_left_out": left_out,
        },
    )


def _hosted(region: Region, mine: str) -> bool:
    """Whether another host runs members. Those of a killed host stay LIVE until their leases have stood still for long enough (SPEC G4)."""
    before, lease, now, patience = region.plane.read(_hosting)
    if lease is not None and lease.token == mine:
        return False  # the run that this one retries hosted them
    if lease is not None and lease.until > now:
        return True

    def renewed(reader: Reader, row: Row) -> bool | str:
        renewals = _hosting(reader, row)[0]
        return any(renewals[who] > before.get(who, -1) for who in renewals) or ("no renewal" if renewals else False)

    try:
        return bool(before) and waiting.until(region.plane, renewed, timeout=patience)
    except NotSettled:
        return False


def _hosting(reader: Reader, row: Row) -> tuple[dict[str, int], Lease | None, float, float]:
    """Renewals of each live incarnation, the lease of a run that hosts them, the time, and how long a member's lease is."""
    members = roster.live(reader)
    lease = reader.get(Lease, LEASE, "")
    return {m.incarnation: m.renewals for m in members}, lease, reader.now(), limits.of(row).session_timeout
