"""A DataFrame of what Python tasks read by themselves, one task for each share (SPEC K3, K7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.spark import shipping
from crkafka_core.spark.schema import columns_of
from crkafka_core.spark.work import ReadRequest, Work

if TYPE_CHECKING:
    import pyarrow as pa


def _the_same(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    return batches


@dataclass(frozen=True)
class Then:
    """What a task makes of the rows that it has read."""

    columns: Callable[[StructType], StructType] = lambda read: read
    """Of what comes out, by those of what was read."""
    run: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]] = _the_same
    """Called once in each task."""


NOTHING = Then()


def of_work(
    spark: SparkSession, config: RegionConfig, shares: Sequence[Work], wanted: ReadRequest, then: Then = NOTHING
) -> DataFrame:
    """The rows of all shares."""
    shipping.ship(spark)
    config_json, wanted_json = config.to_json(), wanted.to_json()
    texts, further = [share.to_json() for share in shares], then.run

    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        from crkafka_core.spark.work import ReadRequest, Work, rows_of

        what = ReadRequest.from_json(wanted_json)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from further(rows_of(config_json, Work.from_json(texts[number]), what))

    return spark.range(0, len(texts), 1, len(texts)).mapInArrow(run, then.columns(columns_of(wanted.columns)))
