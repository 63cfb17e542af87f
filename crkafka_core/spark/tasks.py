"""A DataFrame of what Python tasks read by themselves, one task for each share (SPEC K3, K7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.spark import shipping
from crkafka_core.spark.schema import columns_of
from crkafka_core.spark.work import ReadRequest, Work

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Then:
    """What a task does with each batch that it has read: it adds columns."""

    columns: Sequence[StructField] = ()
    begin: Callable[[], Callable[[pa.RecordBatch], pa.RecordBatch]] = lambda: lambda batch: batch
    """Asked once in each task."""

    def added_to(self, before: StructType) -> StructType:
        return StructType([*before.fields, *self.columns])


NOTHING = Then()


def of_work(
    spark: SparkSession, config: RegionConfig, shares: Sequence[Work], wanted: ReadRequest, then: Then = NOTHING
) -> DataFrame:
    """The rows of all shares."""
    shipping.ship(spark)
    config_json, wanted_json = config.to_json(), wanted.to_json()
    texts, begin = [share.to_json() for share in shares], then.begin

    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        from crkafka_core.spark.work import ReadRequest, Work, rows_of

        what, more = ReadRequest.from_json(wanted_json), begin()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from map(more, rows_of(config_json, Work.from_json(texts[number]), what))

    columns = then.added_to(columns_of(wanted.columns))
    return spark.range(0, len(texts), 1, len(texts)).mapInArrow(run, columns)
