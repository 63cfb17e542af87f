"""Columns of a checkpoint's rows: those of Spark's own Kafka source, and the checkpoint's number (SPEC K2)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from crkafka_core.model.errors import ConfigError
from crkafka_core.segments.batch import CHECKPOINT

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

RECORDS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", HEADERS),
    ]
)
"""Columns of `format("kafka")` with `includeHeaders`, with the same nullability."""


def with_checkpoint(schema: StructType = RECORDS) -> StructType:
    """The schema with the checkpoint's number at the end."""
    return StructType([*schema.fields, StructField(CHECKPOINT, LongType())])


def no_records(spark: SparkSession) -> DataFrame:
    """An empty frame with the columns of records and the checkpoint's number."""
    return spark.createDataFrame([], with_checkpoint())


def columns_of(names: Sequence[str]) -> StructType:
    """The named columns, in this order."""
    known = with_checkpoint()
    wrong = [name for name in names if name not in known.fieldNames()]
    if wrong or not names:
        raise ConfigError(
            f"Records have no column {wrong[0]!r}." if wrong else "No column is named.",
            hint=f"There are: {', '.join(RECORDS.fieldNames())}.",
        )
    return StructType([known[name] for name in names])


__all__ = ["CHECKPOINT", "HEADERS", "RECORDS", "columns_of", "no_records", "with_checkpoint"]
