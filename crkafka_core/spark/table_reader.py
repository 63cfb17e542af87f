"""The rows of a declared table that count (SPEC K6)."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from crkafka_core.lake.handle import Handle
from crkafka_core.model.rows import Table
from crkafka_core.plane import tables as plane
from crkafka_core.plane.table_versions import state_at
from crkafka_core.spark import adopted, location, parquet_table
from crkafka_core.spark.formats import table_of
from crkafka_core.spark.keys import keys_of
from crkafka_core.spark.schema import CHECKPOINT, no_records
from crkafka_core.spark.table_format import TableFormat


def read_table(spark: SparkSession, region: Handle, name: str) -> DataFrame:
    """The rows of the acknowledged checkpoints, whatever else lies in the table; superseded ones are never among them."""
    table, gone = region.plane.read(lambda reader, row: (plane.of(reader, name), plane.superseded(reader)))
    if table.format == "delta":
        location.refuse_tolerant(spark)
    if table.layout == plane.FILES:
        return adopted.rows_of(spark, region, table)
    if table.format == "parquet":
        return parquet_table.read(spark, region, table)
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
