"""A DataFrame of what Python tasks read by themselves, one task for each share (SPEC K3, K7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.spark import shipping
from crkafka_core.spark.schema import columns_of
from crkafka_core.spark.work import ReadRequest, Work

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
