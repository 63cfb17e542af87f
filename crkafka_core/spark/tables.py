"""Checkpoints into tables, for programs with a Spark session: advance, rewrite, fence, look, mend, maintain, read (SPEC K6, X4).

Tables are committed by `lake`; Spark makes the rows of shapes on DataFrames, and only these take a session. None does for all others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from pyspark.sql import DataFrame, SparkSession

from crkafka_core.lake import audit, compact, road
from crkafka_core.lake.audit import TableAudit
from crkafka_core.lake.compact import Maintained
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.staying import Interval
from crkafka_core.lake.writing import Committed
from crkafka_core.model.errors import LeaseHeld
from crkafka_core.model.rows import Table
from crkafka_core.plane import epochs
from crkafka_core.plane import tables as plane
from crkafka_core.spark import iceberg_catalog, location
from crkafka_core.spark.frame_shape import means
from crkafka_core.spark.schema import CHECKPOINT, no_records


def advance(
    spark: SparkSession | None, region: Handle, name: str, *, limit: int | None = None, upto: int | None = None
) -> Committed | None:
    """Write what follows the table's acknowledged checkpoint, in all tables of its shape; at most `limit` checkpoints, and not past
    `upto`. None: nothing new.
    """
    return road.advance(region, name, limit=limit, upto=upto, means=means(spark))


def rewrite(spark: SparkSession | None, region: Handle, name: str, ids: Collection[int]) -> Committed | None:
    """Replace the rows of these live checkpoints, in all tables of the shape: a backfill."""
    return road.rewrite(region, name, ids, means=means(spark)) if ids else None


def fence(spark: SparkSession | None, region: Handle, name: str) -> Table:
    """Make the table follow the latest rewind; what was superseded leaves it. Does nothing when no fence is owed."""
    return road.fence(region, name, means=means(spark))


def fence_all(spark: SparkSession | None, region: Handle) -> list[Table]:
    """Fence every table that owes it, but those that another process fences at this moment; the region leaves REWINDING with the last."""
    done = []
    for table in region.plane.read(lambda reader, row: epochs.unfenced(reader)):
        with contextlib.suppress(LeaseHeld):
            done.append(fence(spark, region, table.name))
    return done


def look(_: SparkSession | None, region: Handle, name: str) -> TableAudit:
    """Compare a table with what SQL says it holds."""
    return audit.look(region, name)


def mend(spark: SparkSession | None, region: Handle, name: str) -> Committed | None:
    """Undo what others committed: rows that do not belong there leave, and what has other rows than were merged is written again."""
    audited = audit.look(region, name)
    return None if audited.clean else road.mend(region, name, audited, means=means(spark))


def maintain(_: SparkSession | None, region: Handle, name: str) -> Maintained:
    """Join small files, and delete what no version within the table's retention needs; no row changes."""
    return compact.maintain(region, name)


def read_table(spark: SparkSession, region: Handle, name: str) -> DataFrame:
    """The rows of the acknowledged checkpoints: by the number of each row, since what has to leave may be there still (SPEC C8)."""
    table = region.plane.read(lambda reader, row: plane.of(reader, name))
    if table.format == "delta":
        location.refuse_tolerant(spark)
    view = audit.visible(region, table) if table.version else None
    if view is None:
        return no_records(spark)
    there = spark.read.option("versionAsOf", view.at)
    if table.format == "delta":
        rows = there.format("delta").load(location.uri(table.path))
    else:
        named = iceberg_catalog.named(spark, table.path)
        iceberg_catalog.look_anew(spark, named)
        rows = there.table(named)
    return rows if view.staying is None else rows.where(" OR ".join(map(_between, view.staying.intervals)) or "false")


def _between(interval: Interval) -> str:
    return f"{CHECKPOINT} BETWEEN {interval[0]} AND {interval[1]}"
