"""A bounded run: members consume to the ends seen at its start, are cut, and leave (SPEC V3)."""

import dagster as dg
from pydantic import Field

from crkafka_core.model.rows import Member, MemberStatus
from crkafka_core.region import Region
from crkafka_core.region.caught_up import consume as caught_up
from dagster_project.ops import host
from dagster_project.resources import RegionResource, SparkSessionResource
from dagster_project.telling import asker, token, told


class Consume(dg.Config):
    """What happens afterwards."""

    stop: bool = Field(
        True, description="Stop the region at the end, if this run started its members; off: it stays as it is."
    )


@dg.op(
    description="Consume to the ends seen now, then cut. Members are started, and stopped again, if nobody hosts them.",
)
def consume(
    context: dg.OpExecutionContext, config: Consume, region: RegionResource, spark: SparkSessionResource
) -> dg.Output[int]:
    it = region.open()
    with told():
        it.init()
        if _hosted(it):
            done = caught_up(it, token=token(context), progress=context.log.info)
        else:
            it.start(by=asker(context))
            hosting = host.begin(it, spark)
            try:
                done = caught_up(it, token=token(context), progress=context.log.info)
                if config.stop:
                    it.stop(by=asker(context), progress=context.log.info)
            finally:
                hosting.end()
    row = done.checkpoint
    left_out = ", ".join(map(str, done.left_out)) or "none"
    return dg.Output(
        row.id,
        metadata={
            "checkpoint": row.id,
            "rows": row.rows,
            "bytes": row.bytes,
            "partitions": done.partitions,
            "paused_and_left_out": left_out,
        },
    )


def _hosted(region: Region) -> bool:
    return bool(
        region.plane.read(
            lambda reader, row: reader.count(Member, ("region", "=", row.name), ("status", "=", MemberStatus.LIVE))
        )
    )


@dg.graph(description="For teams without resident members: start them, consume what is there, cut, stop.")
def consume_until_caught_up() -> None:
    consume()
