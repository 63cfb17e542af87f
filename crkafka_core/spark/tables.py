"""Checkpoints into tables: advance, rewrite, fence, look, maintain; each row once, whatever crashes or comes late (SPEC K6, X4).

A write is: a permit from SQL (a number, a lease) → a look at what was committed since the last acknowledged version → one
commit of the format that carries the number → a look at what is there now → the acknowledgement in SQL. Here are the ways to write;
what else programs call stands in files beside this one, and is named here for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyspark.sql import DataFrame, SparkSession

from crkafka_core.lake import road, writing
from crkafka_core.lake.audit import TableAudit
from crkafka_core.lake.formats import on_the_road
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold
from crkafka_core.lake.writing import Committed, Written
from crkafka_core.model.errors import Refused
from crkafka_core.plane import permits
from crkafka_core.plane import tables as plane
from crkafka_core.plane.permits import Permit
from crkafka_core.plane.table_versions import how_to_fill_anew
from crkafka_core.spark import frames
from crkafka_core.spark.audit import expected_of, look
from crkafka_core.spark.commit import write
from crkafka_core.spark.fencing import fence, fence_all
from crkafka_core.spark.formats import log_if_reached, session_for
from crkafka_core.spark.keys import keys_of
from crkafka_core.spark.maintain import maintain
from crkafka_core.spark.names import CHECKPOINT
from crkafka_core.spark.table_reader import read_table
from crkafka_core.tables.delta_upsert import undo

Shape = Callable[[DataFrame], DataFrame]
"""Makes a table's rows of a checkpoint's; it has to keep the column `crkafka_checkpoint`, row by row."""


def advance(
    spark: SparkSession | None,
    region: Handle,
    name: str,
    *,
    limit: int | None = None,
    upto: int | None = None,
    shape: Shape | None = None,
) -> Committed | None:
    """Write what follows the table's acknowledged checkpoint; at most `limit` checkpoints, and not past `upto`. None: nothing new.

    A Delta table that adopts segments needs no Spark for it (None), unless their rows have to be read from Kafka again. One of a
    declared shape is written by it, together with the others of that shape.
    """
    declared = _declared(region, name, shape)
    if shape is None and on_the_road(region, name):
        return road.advance(region, name, limit=limit, upto=upto)
    if declared:
        from crkafka_core.spark import shaped_write  # it brings the decoders, which few programs need

        return shaped_write.advance(session_for(spark, name), region, name, limit=limit, upto=upto)
    if shape is not None:
        region.plane.do(lambda tx: plane.shape(tx, name))
    ask = writing.asking(name, limit=limit, upto=upto)
    return writing.commit(region, name, ask, _writer(spark, region, shape))


def rewrite(
    spark: SparkSession | None, region: Handle, name: str, ids: Collection[int], *, shape: Shape | None = None
) -> Committed | None:
    """Replace the rows of these live checkpoints: a backfill. Whether it needs Spark is as with `advance`."""
    declared = _declared(region, name, shape)
    if shape is None and on_the_road(region, name):
        return road.rewrite(region, name, ids) if ids else None
    if declared:
        from crkafka_core.spark import shaped_write  # it brings the decoders, which few programs need

        return shaped_write.rewrite(session_for(spark, name), region, name, ids)
    if shape is not None:
        region.plane.do(lambda tx: plane.shape(tx, name))
    return writing.commit(region, name, writing.asking(name, ids=ids), _writer(spark, region, shape))


def _declared(region: Handle, name: str, given: Shape | None) -> bool:
    """Whether the table's shape is declared; then nobody writes it with another."""
    table = region.plane.read(lambda reader, row: plane.of(reader, name))
    if table.shape and given is not None:
        raise Refused(
            f"Table {name} of region {table.region} is declared with the shape {table.shape}; rows of another do not belong in it.",
            hint="Leave `shape` out, or declare a table of another name.",
        )
    return bool(table.shape)


def _writer(spark: SparkSession | None, region: Handle, shape: Shape | None) -> Callable[[Permit, Hold], Written]:
    """Writes records as they are, or in the shape that the calling program gives."""

    def write_rows(permit: Permit, hold: Hold) -> Written:
        session = session_for(spark, permit.table.name)
        frame = frames.from_plan(session, region.config, permit.plan)
        if shape is not None:
            return write(session, region, permit, hold, shape(frame), None)
        return write(session, region, permit, hold, frame, permit.plan.rows_for_tables)

    return write_rows


def mend(spark: SparkSession | None, region: Handle, name: str, *, shape: Shape | None = None) -> Committed | None:
    """Undo what others committed: strangers leave, and what has other rows than were merged is written again.

    A table that holds nothing of ours yet has nothing to write again: its next `advance` does it. A Delta table that adopts
    segments needs no Spark (None), as long as those are kept.
    """
    found = look(spark, region, name, exact=shape is None)
    if found.clean:
        return None
    if shape is None and on_the_road(region, name):
        return road.mend(region, name, found)
    expected = expected_of(region, name)
    if expected.shaped and not expected.table.shape and shape is None:
        raise Refused(
            f"The rows of table {name} are shaped by the program that writes it; others would put raw ones in their place.",
            hint="Mend it there, with the same shape.",
        )
    log = log_if_reached(region, expected.table)
    keyed = [t.name for t in expected.family if keys_of(region, t.name)]
    undone = bool(found.foreign) and name not in keyed and log is not None and undo(region, log, name, CHECKPOINT)
    if keyed:  # what others did leaves as after a rewind
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
    if undone:
        found = look(spark, region, name, exact=shape is None)
    if found.clean or not expected.rows:
        return advance(spark, region, name, shape=shape)
    ids = sorted(found.wrong) or sorted(expected.rows)[-1:]
    return rewrite(session_for(spark, name), region, name, ids, shape=shape)


__all__ = [
    "Shape",
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
