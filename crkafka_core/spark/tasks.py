"""A DataFrame of what Python tasks read by themselves, one task for each share (SPEC K3, K7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.lake.again import check_held
from crkafka_core.plane.reading import ReadPlan
from crkafka_core.spark import location, shipping
from crkafka_core.spark.schema import columns_of
from crkafka_core.spark.work import ReadRequest, Work, spread

if TYPE_CHECKING:
    import pyarrow as pa


def of_work(spark: SparkSession, config: RegionConfig, shares: Sequence[Work], wanted: ReadRequest) -> DataFrame:
    """The rows of all shares."""
    shipping.ship(spark)
    config_json, wanted_json = config.to_json(), wanted.to_json()
    texts = [share.to_json() for share in shares]

    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        from crkafka_core.spark.work import ReadRequest, Work, rows_of

        what = ReadRequest.from_json(wanted_json)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from rows_of(config_json, Work.from_json(texts[number]), what)

    return spark.range(0, len(texts), 1, len(texts)).mapInArrow(run, columns_of(wanted.columns))


def of_ranges(spark: SparkSession, config: RegionConfig, plan: ReadPlan, wanted: ReadRequest) -> DataFrame:
    """The rows of the plan's ranges, read again from Kafka; refused at once if Kafka no longer holds one of them."""
    check_held(config, plan)
    return of_work(spark, config, spread(plan.ranges, 2 * location.slots(spark)), wanted)
