"""What Kafka knows of the group and its topics: offsets, ends, lag; asked by a run, since sensors read SQL only (SPEC A2, A4, U5)."""

from collections.abc import Iterable

import dagster as dg

from crkafka_core.kafka.group import PartitionProgress, report
from crkafka_core.plane import starts
from dagster_project.failures import as_dagster_failure
from dagster_project.metadata import table
from dagster_project.resources import RegionResource

SHOWN = 200


@dg.op
def observe(context: dg.OpExecutionContext, region: RegionResource) -> dg.Output[None]:
    """Read the state and lag of the group from Kafka, and record them with the group and its topics."""
    names = region.names
    with as_dagster_failure():
        it = region.open()
        known = region.read(lambda reader, row: list(starts.known(reader)))
        progress = report(it.admin(), region.settings.group_id, known)
    for gap in progress.gaps:
        context.log.warning(gap)
    lag = _lag(progress.partitions)
    context.log_event(
        dg.AssetObservation(
            names.group,
            metadata={
                **lag,
                "state": progress.state,
                "coordinator": progress.coordinator,
                "assignor": progress.assignor,
                "kafka_members": len(progress.members),
                "partitions": len(progress.partitions),
                "progress": _table(progress.partitions[:SHOWN]),
            },
        )
    )
    topics = sorted({p.tp.topic for p in progress.partitions})
    for topic in topics:
        parts = [p for p in progress.partitions if p.tp.topic == topic]
        details: dict[str, dg.RawMetadataValue] = {"topic": topic, "partitions": len(parts), **_lag(parts)}
        details["progress"] = _table(parts[:SHOWN])
        context.log_event(dg.AssetObservation(names.topic(topic), metadata=details))
    if region.settings.pattern:
        together = {"topics": len(topics), "partitions": len(progress.partitions), **lag}
        context.log_event(dg.AssetObservation(names.topics, metadata=together))
    return dg.Output(None, metadata={**lag, "topics": len(topics)})


def _lag(parts: Iterable[PartitionProgress]) -> dict[str, int]:
    """The sum of what is known; nothing where Kafka could not tell: 0 would say that all is read."""
    known = [p.lag for p in parts if p.lag is not None]
    return {"lag": sum(known)} if known else {}


def _table(parts: Iterable[PartitionProgress]) -> dg.TableMetadataValue:
    rows = [(p.tp.topic, p.tp.partition, p.committed, p.last_stable, p.lag) for p in parts]
    texts = [["" if value is None else value for value in row] for row in rows]
    return table(texts, topic="string", partition="string", committed="string", last_stable="string", lag="string")
