"""The format's own compaction, and the deletion of what nobody needs any more."""

from __future__ import annotations

from contextlib import nullcontext

from pyspark.sql import SparkSession

from crkafka_core.config.location import in_catalog
from crkafka_core.lake import compact, writing
from crkafka_core.lake.compact import Maintained
from crkafka_core.lake.handle import Handle
from crkafka_core.model.rows import Table
from crkafka_core.plane import tables as plane
from crkafka_core.spark.current import current
from crkafka_core.spark.formats import session_for, table_of


def needs_spark(region: Handle, name: str) -> bool:
    """Whether its compaction is Spark's; one that has no rows yet needs none."""
    table = region.plane.read(lambda reader, row: plane.of(reader, name))
    return bool(table.version) and not plane.on_road(table)


def maintain(spark: SparkSession | None, region: Handle, name: str) -> Maintained:
    """The format's own compaction, and the deletion of what no version within its retention needs; no row changes.

    A table that adopts segments needs no Spark for it (None).
    """
    table = region.plane.read(lambda reader, row: plane.of(reader, name))
    if plane.on_road(table):
        return compact.maintain(region, name)
    writing.refuse_copy(region, deletes=True)
    if not table.version:
        return Maintained(name)
    form = table_of(session_for(spark, name), region, table)
    current(region, form, table)
    with nullcontext() if _others_may_commit(table) else compact.as_writer(region, name):
        merged, into = form.compact()
        form.clean()
    return Maintained(name, merged, into)


def _others_may_commit(table: Table) -> bool:
    """Elsewhere the later of two drivers' commits may replace the other, whose rows are gone: on a local folder, too, Delta's and
    Iceberg's own writers look, write beside, and rename over what came meanwhile.
    """
    return table.format == "iceberg" if in_catalog(table.path) else table.path.startswith("hdfs:")
