"""The format behind a declared table, with the options and the session that it is opened with."""

from __future__ import annotations

from pyspark.sql import SparkSession

from crkafka_core.config.location import has_log
from crkafka_core.lake.handle import Handle
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.rows import Table
from crkafka_core.spark import location
from crkafka_core.spark.delta_table import DeltaTable
from crkafka_core.spark.iceberg_table import IcebergTable
from crkafka_core.spark.table_format import TableFormat
from crkafka_core.tables.delta_log import DeltaLog, log_of


def table_of(spark: SparkSession, region: Handle, table: Table) -> TableFormat:
    """The format behind a declared table."""
    declared = region.config.table(table.name)
    given: tuple[SparkSession, Table, dict[str, str], tuple[str, ...]]
    given = (spark, table, {}, (declared and declared.partition_by) or ())
    match table.format:
        case "delta":
            return DeltaTable(*given, log=log_if_reached(region, table))
        case "iceberg":
            options = region.config.resolve().storage_options if reached(region, table) else None
            return IcebergTable(*given, storage_options=options)
    raise ConfigError(f"Table {table.name} is {table.format}: nothing writes that.")


def log_if_reached(region: Handle, table: Table) -> DeltaLog | None:
    """A Delta table's log, where we get to it as Spark does."""
    delta = table.format == "delta" and has_log(table.path)
    return log_of(region, table) if delta and reached(region, table) else None


def reached(region: Handle, table: Table) -> bool:
    """Whether we get to the table's folder: in an object store it is Spark's settings that do; ours are those of the segments."""
    return not location.in_object_store(table.path) or location.in_object_store(region.config.storage)


def session_for(spark: SparkSession | None, name: str) -> SparkSession:
    if spark is None:
        raise ConfigError(f"Table {name} has to be written by Spark.", hint="Give a Spark session.")
    return spark
