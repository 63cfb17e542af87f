"""Verbs on tables, for programs: advance, rewrite, fence, look, mend, maintain, read (SPEC K6, X4).

`lake` does the work. A session is needed only for shapes on DataFrames and to read; all other tables take None.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from pyspark.sql import DataFrame, SparkSession

from crkafka_core.config.location import in_catalog
from crkafka_core.lake import audit, compact, road
from crkafka_core.lake.audit import TableAudit
from crkafka_core.lake.compact import Maintained
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.writing import Committed
from crkafka_core.model.errors import LeaseHeld, Refused
from crkafka_core.model.rows import Table
from crkafka_core.plane import epochs
from crkafka_core.plane import tables as plane
from crkafka_core.spark import location
from crkafka_core.spark.frame_shape import means
from crkafka_core.spark.schema import CHECKPOINT, ROWS


def advance(
    spark: SparkSession | None, region: Handle, name: str, *, limit: int | None = None, upto: int | None = None
) -> Committed | None:
    """Write the checkpoints after the table's acknowledged one into all tables of its shape; at most `limit` checkpoints, and not past
    `upto`. None: nothing new.
    """
    return road.advance(region, name, limit=limit, upto=upto, means=means(spark))


def rewrite(spark: SparkSession | None, region: Handle, name: str, ids: Collection[int]) -> Committed | None:
    """Replace the rows of these live checkpoints, in all tables of the shape: a backfill."""
    return road.rewrite(region, name, ids, means=means(spark)) if ids else None


def fence(spark: SparkSession | None, region: Handle, name: str) -> Table:
    """Remove superseded rows after a rewind; nothing if the table has followed it."""
    return road.fence(region, name, means=means(spark))


def fence_all(spark: SparkSession | None, region: Handle) -> list[Table]:
    """Fence all tables after a rewind, except those that another process fences; with the last one the region leaves REWINDING."""
    done = []
    for table in region.plane.read(lambda reader, row: epochs.unfenced(reader)):
        with contextlib.suppress(LeaseHeld):
            done.append(fence(spark, region, table.name))
    return done


def look(_: SparkSession | None, region: Handle, name: str) -> TableAudit:
    """Compare a table with the rows that SQL expects in it."""
    return audit.look(region, name)


def mend(spark: SparkSession | None, region: Handle, name: str) -> Committed | None:
    """Undo other programs' commits: remove foreign rows, and rewrite checkpoints whose rows differ from the merged ones."""
    audited = audit.look(region, name)
    return None if audited.clean else road.mend(region, name, audited, means=means(spark))


def maintain(_: SparkSession | None, region: Handle, name: str) -> Maintained:
    """Join small files, and delete files that no version within the table's retention needs; no row changes."""
    return compact.maintain(region, name)


def read_table(spark: SparkSession, region: Handle, name: str) -> DataFrame:
    """The rows of the acknowledged checkpoints, by their numbers: the table may still have superseded rows (SPEC C8)."""
    table = region.plane.read(lambda reader, row: plane.of(reader, name))
    if table.format == "delta":  # it heeds no options of a read
        settings = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
        if wrong := [key for key in settings if str(spark.conf.get(key, "false")).lower() == "true"]:
            raise Refused(
                f"This session reads over files that are missing or broken ({', '.join(wrong)}): rows of a Delta table would be missing "
                "without an error.",
                hint="Set it to false, or read in another session.",
            )
    view = audit.visible(region, table) if table.version else None
    if view is None:
        return spark.createDataFrame([], ROWS)
    version = spark.read.option("versionAsOf", view.at)
    if table.format == "delta":
        rows = version.format("delta").load(location.uri(table.path))
    else:
        name = location.iceberg_name(spark, table.path)
        if in_catalog(table.path):  # by Iceberg's default it does not see commits of other sessions
            spark.sql(f"REFRESH TABLE {name}").collect()
        rows = version.table(name)
    if view.staying is None:
        return rows
    live = [f"{CHECKPOINT} BETWEEN {first} AND {last}" for first, last in view.staying.intervals]
    return rows.where(" OR ".join(live) or "false")
