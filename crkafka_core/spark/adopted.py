"""Tables that adopt segments, where Spark is needed for them: Iceberg's log, rows that are read from Kafka again, and reading."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from crkafka_core.lake.handle import Handle
from crkafka_core.model.errors import ConfigError, Refused
from crkafka_core.model.rows import Table
from crkafka_core.plane import numbers
from crkafka_core.plane import tables as plane
from crkafka_core.plane.reading import ReadPlan
from crkafka_core.spark import frames, iceberg_catalog, location
from crkafka_core.spark.formats import options_of
from crkafka_core.spark.iceberg_log import IcebergLog
from crkafka_core.spark.schema import CHECKPOINT, no_records
from crkafka_core.tables import files
from crkafka_core.tables.delta_log import open_log
from crkafka_core.tables.log import Logs, MarkedRows, TableLog

T = TypeVar("T")


def adopts(region: Handle, name: str, spark: SparkSession | None = None) -> bool:
    """Whether the table adopts segments.

    Through Connect Iceberg's log cannot be written: a session of that kind that is the first to write the table makes it one of rows.
    """
    table = region.plane.read(lambda reader, row: plane.of(reader, name))
    if table.layout == plane.FILES and table.format == "iceberg" and spark is not None and location.is_connect(spark):
        with contextlib.suppress(Refused):
            return region.plane.do(lambda tx: plane.shape(tx, name)).layout == plane.FILES
    return table.layout == plane.FILES


def logs_of(spark: SparkSession | None) -> Logs:
    """Opens the logs of tables that adopt segments, with this session where one is needed."""

    def opened(region: Handle, table: Table) -> TableLog:
        if table.format != "iceberg" or spark is None:
            return open_log(region, table)
        if location.is_connect(spark):
            raise ConfigError(
                f"Table {table.name} adopts segments by Iceberg's Java library, which is not reached through Spark Connect.",
                hint="Use a classic session; or declare it at another path: what Connect writes first it writes row by row.",
            )
        return IcebergLog(spark, table, region.config.resolve().storage_options)

    return opened


def adopting(spark: SparkSession | None, region: Handle, name: str, work: Callable[..., T]) -> T:
    """Of a table that adopts segments Spark reads from Kafka again; of Delta also writes rows anew that are marked as deleted; of Iceberg
    its Java process writes the log. `work` is one of `adopt`.
    """
    logs = logs_of(spark)
    if spark is None:
        return work(region, name, logs=logs)
    session, table = spark, region.plane.read(lambda reader, row: plane.of(reader, name))

    def fetch(plan: ReadPlan, target: str) -> None:
        rows = frames.from_plan(session, region.config, replace(plan, segments=()))
        parted = rows.withColumn(files.FETCHED, F.col(CHECKPOINT))  # the column itself stays in the files
        writer = parted.write.partitionBy(files.FETCHED).options(**options_of(region, table))
        writer.parquet(location.uri(target))

    try:
        return work(region, name, fetch=fetch, logs=logs)
    except MarkedRows:
        session.sql(f"REORG TABLE delta.`{location.uri(table.path)}` APPLY (PURGE)")
        return work(region, name, fetch=fetch, logs=logs)


def rows_of(spark: SparkSession, region: Handle, table: Table) -> DataFrame:
    """What belongs there, by the number of each row: what has to leave may be there still (SPEC C8)."""
    snapshot = logs_of(spark)(region, table).snapshot() if table.version else None
    if snapshot is None or not snapshot.at:
        return no_records(spark)
    dead, now = region.plane.read(lambda reader, row: (numbers.dead(reader), plane.of(reader, table.name)))
    if table.format == "delta":
        there = spark.read.format("delta").option("versionAsOf", snapshot.at).load(location.uri(table.path))
    else:
        there = spark.read.option("versionAsOf", snapshot.at).table(iceberg_catalog.named(spark, table.path))
    rows = there.where(F.col(CHECKPOINT) <= now.acknowledged)
    for after, upto in dead.intervals:
        rows = rows.where((F.col(CHECKPOINT) <= after) | (F.col(CHECKPOINT) > upto))
    return rows
