"""The format behind a declared table, with the options and the session that it is opened with."""

from __future__ import annotations

from pyspark.sql import SparkSession

from crkafka_core.model.errors import ConfigError
from crkafka_core.model.rows import Table
from crkafka_core.spark.delta_table import DeltaTable
from crkafka_core.spark.iceberg_table import IcebergTable
from crkafka_core.spark.table_format import TableFormat
from crkafka_core.tables.handle import Handle


def table_of(spark: SparkSession, region: Handle, table: Table) -> TableFormat:
    """The format behind a declared table."""
    kinds: dict[str, type[TableFormat]] = {"delta": DeltaTable, "iceberg": IcebergTable}
    if table.format not in kinds:
        raise ConfigError(f"Table {table.name} is {table.format}: it is read and written by attempt, not as a whole.")
    declared = region.config.table(table.name)
    return kinds[table.format](spark, table, options_of(region, table), (declared and declared.partition_by) or ())


def options_of(region: Handle, table: Table) -> dict[str, str]:
    return region.config.resolved_table_options(table.name)


def session_for(spark: SparkSession | None, name: str) -> SparkSession:
    if spark is None:
        raise ConfigError(f"Table {name} has to be written by Spark.", hint="Give a Spark session.")
    return spark
