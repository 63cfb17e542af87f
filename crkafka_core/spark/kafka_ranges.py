"""Archived checkpoints as a DataFrame: their exact ranges, read again from Kafka in parallel tasks (SPEC K3)."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.archived_ranges import check_same, check_uncut
from crkafka_core.model.errors import DataLoss
from crkafka_core.plane.reading import ReadPlan
from crkafka_core.spark import location, tasks
from crkafka_core.spark.tasks import NOTHING, Then
from crkafka_core.spark.work import ReadRequest, spread


def frame(
    spark: SparkSession, config: RegionConfig, plan: ReadPlan, wanted: ReadRequest, then: Then = NOTHING
) -> DataFrame:
    """The rows of the plan's ranges; refused at once if Kafka no longer holds one of them."""
    check_held(config, plan)
    return tasks.of_work(spark, config, spread(plan.ranges, 2 * location.slots(spark)), wanted, then)


def check_held(config: RegionConfig, plan: ReadPlan) -> None:
    """Refuse ranges of another topic or cluster, and those that Kafka has let go, naming the first checkpoint that can still be read."""
    admin = KafkaAdmin(config.resolved_kafka(), client_id=f"crkafka-{config.region}-reads")
    try:
        check_same(admin, plan.ranges)
        ends = admin.watermarks({r.tp for r in plan.ranges})
        gone = [r for r in plan.ranges if r.start < ends[r.tp][0]]
        if not gone:
            check_uncut(admin, plan.ranges)
    finally:
        admin.close()
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
        hint=f"Of what was asked for, {rest}. A table that has nothing yet begins where the archive does: `history` with fewer "
        "checkpoints, `crkafka init` and `crkafka retire` let it begin later.",
    )
