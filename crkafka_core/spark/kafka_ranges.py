"""Archived checkpoints as a DataFrame: their exact ranges, read again from Kafka in parallel tasks (SPEC K3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.model.errors import DataLoss
from crkafka_core.plane.reading import KafkaRange, ReadPlan
from crkafka_core.spark import location, shipping
from crkafka_core.spark.schema import RECORDS, with_checkpoint
from crkafka_core.spark.work import Work, spread

if TYPE_CHECKING:
    import pyarrow as pa


def frame(spark: SparkSession, config: RegionConfig, plan: ReadPlan, *, numbered: bool) -> DataFrame:
    """The rows of the plan's ranges; refused at once if Kafka no longer holds one of them."""
    check_held(config, plan)
    return of_work(spark, config, spread(plan.ranges, 2 * location.slots(spark)), numbered=numbered)


def of_work(spark: SparkSession, config: RegionConfig, shares: Sequence[Work], *, numbered: bool) -> DataFrame:
    """One Python task for each share."""
    shipping.ship(spark)
    schema = with_checkpoint() if numbered else RECORDS
    config_json = config.to_json()

    texts = [share.to_json() for share in shares]

    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        from crkafka_core.spark.work import Work, rows_of

        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from rows_of(config_json, Work.from_json(texts[number]), numbered=numbered)

    return spark.range(0, len(texts), 1, len(texts)).mapInArrow(run, schema)


def check_held(config: RegionConfig, plan: ReadPlan) -> None:
    """Refuse ranges that Kafka has let go, naming the first checkpoint that can still be read."""
    admin = KafkaAdmin(config.resolved_kafka(), client_id=f"crkafka-{config.region}-reads")
    try:
        ends = admin.watermarks({r.tp for r in plan.ranges})
    finally:
        admin.close()
    gone = [r for r in plan.ranges if r.start < ends[r.tp][0]]
    if not gone:
        return
    first = gone[0]
    last = max(r.checkpoint for r in gone)
    left = [c for c in plan.checkpoints if c > last]
    rest = (
        f"checkpoints {left[0]} … {left[-1]} are still there" if left else "none of these checkpoints is there any more"
    )
    raise DataLoss(
        f"Region {plan.region}: checkpoint {first.checkpoint} is archived, and Kafka no longer holds its records: {first.tp} "
        f"[{first.start}, {first.stop}), while Kafka begins at {ends[first.tp][0]}.",
        hint=f"Of what was asked for, {rest}.",
    )


__all__ = ["KafkaRange", "check_held", "frame", "of_work"]
