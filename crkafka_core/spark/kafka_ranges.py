"""Archived checkpoints as a DataFrame: their exact ranges, read again from Kafka in parallel tasks (SPEC K3)."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.lake.again import check_held
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
