"""The rows of a declared table that count (SPEC K6)."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from crkafka_core.lake.handle import Handle
from crkafka_core.lake.staying import Interval
from crkafka_core.lake.view import visible
from crkafka_core.plane import tables as plane
from crkafka_core.spark import iceberg_catalog, location
from crkafka_core.spark.schema import CHECKPOINT, no_records


def read_table(spark: SparkSession, region: Handle, name: str) -> DataFrame:
    """The rows of the acknowledged checkpoints, whatever else lies in the table; superseded ones are never among them.

    What belongs there is known by the number of each row (SPEC C8), and in a table with one row for each key by its version.
    """
    table = region.plane.read(lambda reader, row: plane.of(reader, name))
    if table.format == "delta":
        location.refuse_tolerant(spark)
    view = visible(region, table) if table.version else None
    if view is None:
        return no_records(spark)
    there = spark.read.option("versionAsOf", view.at)
    if table.format == "delta":
        rows = there.format("delta").load(location.uri(table.path))
    else:
        name = iceberg_catalog.named(spark, table.path)
        iceberg_catalog.look_anew(spark, name)
        rows = there.table(name)
    return rows if view.staying is None else rows.where(" OR ".join(map(_between, view.staying.intervals)) or "false")


def _between(interval: Interval) -> str:
    return f"{CHECKPOINT} BETWEEN {interval[0]} AND {interval[1]}"
