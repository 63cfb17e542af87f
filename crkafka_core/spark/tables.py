"""Checkpoints into tables, for programs with a Spark session: advance, rewrite, fence, look, mend, maintain (SPEC K6, X4).

Tables are committed by `lake`. Spark makes the rows of shapes on DataFrames; a session is given for these tables, and for those with one
row for each key. None does for all others.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import SparkSession

from crkafka_core.lake import road
from crkafka_core.lake.audit import TableAudit
from crkafka_core.lake.formats import on_the_road
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.writing import Committed
from crkafka_core.model.errors import Refused
from crkafka_core.plane import permits
from crkafka_core.plane.table_versions import how_to_fill_anew
from crkafka_core.spark.audit import expected_of, look
from crkafka_core.spark.fencing import fence, fence_all
from crkafka_core.spark.formats import log_if_reached, session_for
from crkafka_core.spark.frame_shape import means
from crkafka_core.spark.keys import keys_of
from crkafka_core.spark.maintain import maintain
from crkafka_core.spark.names import CHECKPOINT
from crkafka_core.spark.table_reader import read_table
from crkafka_core.tables.delta_upsert import undo


def advance(
    spark: SparkSession | None, region: Handle, name: str, *, limit: int | None = None, upto: int | None = None
) -> Committed | None:
    """Write what follows the table's acknowledged checkpoint, in all tables of its shape; at most `limit` checkpoints, and not past
    `upto`. None: nothing new.
    """
    if on_the_road(region, name):
        return road.advance(region, name, limit=limit, upto=upto, means=means(spark))
    from crkafka_core.spark import shaped_write  # it brings the decoders, which few programs need

    return shaped_write.advance(session_for(spark, name), region, name, limit=limit, upto=upto)


def rewrite(spark: SparkSession | None, region: Handle, name: str, ids: Collection[int]) -> Committed | None:
    """Replace the rows of these live checkpoints, in all tables of the shape: a backfill."""
    if on_the_road(region, name):
        return road.rewrite(region, name, ids, means=means(spark)) if ids else None
    from crkafka_core.spark import shaped_write  # it brings the decoders, which few programs need

    return shaped_write.rewrite(session_for(spark, name), region, name, ids)


def mend(spark: SparkSession | None, region: Handle, name: str) -> Committed | None:
    """Undo what others committed: strangers leave, and what has other rows than were merged is written again.

    A table that holds nothing of ours yet has nothing to write again: its next `advance` does it.
    """
    found = look(spark, region, name)
    if found.clean:
        return None
    if on_the_road(region, name):
        return road.mend(region, name, found, means=means(spark))
    expected = expected_of(region, name)
    log = log_if_reached(region, expected.table)
    keyed = [t.name for t in expected.family if keys_of(region, t.name)]
    undone = bool(found.foreign) and name not in keyed and log is not None and undo(region, log, name, CHECKPOINT)
    if found.lost or (found.foreign and not (undone or found.strangers or name in keyed)):
        raise Refused(
            f"What others did to table {name} cannot be undone: the version or the files before it are not kept any more, or "
            "commits of this region came behind it.",
            hint="Rows of single checkpoints cannot be written again beside a table that keeps one row for each key. "
            + how_to_fill_anew(name if name in keyed else keyed[0]),
        )
    if not undone:
        region.plane.do(lambda tx: permits.owe_fence(tx, name))
        fence(spark, region, name)
    return advance(spark, region, name)


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
