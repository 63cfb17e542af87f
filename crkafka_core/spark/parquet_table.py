"""Plain Parquet: each attempt has a folder of its own, and SQL says which attempt counts for a checkpoint (SPEC K6).

Read through `read_table`, it changes from one commit to the next at once, and a late write is never visible. A program that
lists the folder by itself also sees attempts that do not count, until `sweep` has removed them.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from crkafka_core.model.errors import ConfigError
from crkafka_core.model.rows import Table
from crkafka_core.spark import location
from crkafka_core.spark.names import CHECKPOINT

COMMIT = "crkafka_commit"


def folder(table: Table, number: int) -> str:
    """Where a commit writes; relative to the table's path."""
    return f"{COMMIT}={number}"


def write(frame: DataFrame, table: Table, number: int, options: Mapping[str, str]) -> int:
    """Write the rows as this commit's attempt; how many there are in the files."""
    if CHECKPOINT not in frame.columns:
        raise ConfigError(f"What is written to table {table.name} has no column {CHECKPOINT}.", hint="Keep it.")
    target = location.uri(table.path, folder(table, number))
    frame.write.mode("overwrite").partitionBy(CHECKPOINT).options(**options).parquet(target)
    return frame.sparkSession.read.schema(_body(frame.schema)).options(**location.EXACTLY).parquet(target).count()


def _body(schema: StructType) -> StructType:
    return StructType([f for f in schema.fields if f.name not in (CHECKPOINT, COMMIT)] or schema.fields)


def read(
    spark: SparkSession, table: Table, counting: Mapping[int, int], written: Mapping[int, frozenset[int]]
) -> DataFrame | None:
    """The rows that count. `counting`: checkpoint → commit; `written`: commit → checkpoints in its folder. None: no commit yet."""
    numbers = sorted(set(counting.values()))
    if not numbers:
        return None
    location.list_on_driver(spark)
    paths = [location.uri(table.path, folder(table, n)) for n in numbers]
    reader = spark.read.option("basePath", location.uri(table.path)).options(**location.EXACTLY)
    if table.shape:  # its columns may have become more
        reader = reader.option("mergeSchema", "true")
    rows = reader.parquet(*paths)
    for number in numbers:
        stale = sorted(c for c in written[number] if counting.get(c) != number)
        if stale:
            rows = rows.where(~((F.col(COMMIT) == number) & F.col(CHECKPOINT).isin(stale)))
    return rows.drop(COMMIT).withColumn(CHECKPOINT, F.col(CHECKPOINT).cast("bigint"))


__all__ = ["COMMIT", "folder", "read", "write"]
