"""The rows of a declared table that count (SPEC K6)."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from crkafka_core.lake.handle import Handle
from crkafka_core.lake.staying import Interval
from crkafka_core.lake.view import visible
from crkafka_core.model.rows import Table
from crkafka_core.plane import tables as plane
from crkafka_core.plane.table_versions import state_at
from crkafka_core.spark import iceberg_catalog, location
from crkafka_core.spark.formats import table_of
from crkafka_core.spark.keys import keys_of
from crkafka_core.spark.schema import CHECKPOINT, no_records
from crkafka_core.spark.table_format import TableFormat


def read_table(spark: SparkSession, region: Handle, name: str) -> DataFrame:
    """The rows of the acknowledged checkpoints, whatever else lies in the table; superseded ones are never among them."""
    table, gone = region.plane.read(lambda reader, row: (plane.of(reader, name), plane.superseded(reader)))
    if table.format == "delta":
        location.refuse_tolerant(spark)
    if plane.on_road(table):
        return _by_numbers(spark, region, table)
    form = table_of(spark, region, table)
    if keys_of(region, name):
        return _kept_by_keys(spark, region, form, table)
    version = form.history(table.version).version
    if not version:
        return no_records(spark)
    known = version == table.version and not table.owes_fence
    rows = form.read().where(f"{CHECKPOINT} <= {table.acknowledged}")
    return rows if known or not gone else rows.where(f"{CHECKPOINT} NOT IN ({', '.join(map(str, gone))})")


def _kept_by_keys(spark: SparkSession, region: Handle, form: TableFormat, table: Table) -> DataFrame:
    """In the version that counts: what came over a row since is not undone by leaving rows out."""
    state = region.plane.read(lambda reader, row: state_at(reader, row, table))
    if not state.version:
        return form.read().where(F.lit(False)) if table.version else no_records(spark)
    return form.read() if form.untouched_since(state.version) else form.read_at(state.version)


def _by_numbers(spark: SparkSession, region: Handle, table: Table) -> DataFrame:
    """What belongs there, by the number of each row: what has to leave may be there still (SPEC C8)."""
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
