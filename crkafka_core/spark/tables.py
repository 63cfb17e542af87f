"""Checkpoints into tables, for programs with a Spark session: advance, rewrite, fence, look, mend, maintain (SPEC K6, X4).

Tables are committed by `lake`. Spark makes the rows of shapes on DataFrames, and a session is given for these; None does for all others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from pyspark.sql import SparkSession

from crkafka_core.lake import audit, compact, road
from crkafka_core.lake.audit import TableAudit
from crkafka_core.lake.compact import Maintained
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.writing import Committed
from crkafka_core.model.errors import LeaseHeld
from crkafka_core.model.rows import Table
from crkafka_core.plane import epochs
from crkafka_core.spark.frame_shape import means
from crkafka_core.spark.table_reader import read_table


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


def look(spark: SparkSession | None, region: Handle, name: str) -> TableAudit:
    """Compare a table with what SQL says it holds."""
    return audit.look(region, name)


def mend(spark: SparkSession | None, region: Handle, name: str) -> Committed | None:
    """Undo what others committed: strangers leave, and what has other rows than were merged is written again.

    A table that holds nothing of ours yet has nothing to write again: its next `advance` does it.
    """
    found = audit.look(region, name)
    return None if found.clean else road.mend(region, name, found, means=means(spark))


def fence(spark: SparkSession | None, region: Handle, name: str) -> Table:
    """Make the table follow the latest rewind; what was superseded leaves it. Does nothing when no fence is owed."""
    return road.fence(region, name, means=means(spark))


def fence_all(spark: SparkSession | None, region: Handle) -> list[Table]:
    """Fence every table that owes it, but those that another program fences now; the region leaves REWINDING with the last one."""
    done = []
    for table in region.plane.read(lambda reader, row: epochs.unfenced(reader)):
        with contextlib.suppress(LeaseHeld):
            done.append(fence(spark, region, table.name))
    return done


def maintain(spark: SparkSession | None, region: Handle, name: str) -> Maintained:
    """Join small files, and delete what no version within the table's retention needs; no row changes."""
    return compact.maintain(region, name)


__all__ = [
    "TableAudit",
    "advance",
    "fence",
    "fence_all",
    "look",
    "maintain",
    "mend",
    "read_table",
    "rewrite",
]
