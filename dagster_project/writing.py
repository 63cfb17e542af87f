"""How runs write declared tables: they wait for who writes one already, tell what they do, and start Spark only where it is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.model.errors import LeaseHeld
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import checkpoints
from crkafka_core.plane import tables as plane
from crkafka_core.still import telling
from dagster_project.counted import count, how_far
from dagster_project.metadata import rows_told
from dagster_project.resources import RegionResource, SparkSessionResource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from crkafka_core.tables.writing import Committed

PAUSE_S = 2.0
"""Seconds between two looks at who writes a table."""
Write = Callable[["SparkSession | None"], "Committed | None"]


def about(region: RegionResource, name: str, ids: Sequence[int]) -> dict[int, dict[str, int | str]]:
    """Per checkpoint that was written, what its materialization tells: its rows, and how far the table is."""

    keyed = any(t.name == name and t.keys for t in region.settings.tables)

    def numbers(reader: Reader, row: Region) -> dict[int, dict[str, int | str]]:
        table = plane.of(reader, name)
        whole = how_far(reader, table, count(reader, table, None), keyed=keyed)
        told = plane.rows_in(reader, table, ids)
        return {i: {**rows_told(told.get(i)), **whole} for i in ids}

    return region.read(numbers) if ids else {}


def rewrite(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    region: RegionResource,
    spark: SparkSessionResource,
    name: str,
    ids: Sequence[int],
) -> None:
    """Write the rows of these live checkpoints again."""
    from crkafka_core.spark import tables

    if not ids:
        return
    rows = sum(region.read(lambda reader, row: checkpoints.rows_of(reader, ids)).values())
    context.log.info(f"writing {plural(rows, 'record')} of {plural(len(ids), 'checkpoint')} again into {name}")
    done = _written(context, region, spark, name, lambda s: tables.rewrite(s, region.handle, name, ids))
    context.log.info(
        f"{plural(done.rows if done else 0, 'row')} of {plural(len(ids), 'checkpoint')} written into {name}"
        + (done.did_not_fit if done else "")
    )


def advance(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    region: RegionResource,
    spark: SparkSessionResource,
    name: str,
    upto: int,
) -> None:
    """Bring the table forward to this checkpoint, unless whoever writes it at this moment does."""
    from crkafka_core.spark import tables

    done, before = None, _free(context, region, name)
    if before.acknowledged < upto:
        context.log.info(f"writing what follows checkpoint {before.acknowledged} up to {upto} into {name}")
        done = _written(context, region, spark, name, lambda s: tables.advance(s, region.handle, name, upto=upto))
    if done is None:
        context.log.info(f"table {name} has got all up to checkpoint {upto} meanwhile: the host writes it")
        return
    rows = plural(done.rows, "row")
    context.log.info(
        f"{rows} written into {name}: advanced from checkpoint {before.acknowledged} to {done.acknowledged}"
    )


def _written(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    region: RegionResource,
    spark: SparkSessionResource,
    name: str,
    write: Write,
) -> Committed | None:
    from crkafka_core.tables.log import NeedsSpark

    session = spark.session() if plane.needs_spark(_free(context, region, name)) else None
    while True:
        try:
            with telling(context.log.info, lambda s: f"table {name} is still being written, for {s:.0f} s now"):
                return write(session)
        except LeaseHeld:  # taken meanwhile
            region.plane.wait(region.read(lambda _, row: row.version), PAUSE_S)
            _free(context, region, name)
        except NeedsSpark as needs:  # segments that are retired, or a feature of Delta that only Spark writes
            if session is not None:
                raise
            context.log.info(str(needs))
            session = spark.session()


def _free(context: dg.OpExecutionContext | dg.AssetExecutionContext, region: RegionResource, name: str) -> Table:
    """The table, once nobody writes it or those of its shape: for as long as its writer goes on, this run waits."""

    def look(reader: Reader, row: Region) -> tuple[int, Table, str]:
        table = plane.of(reader, name)
        writers = (plane.writer(reader, t.name) for t in plane.siblings(reader, table))
        return row.version, table, next(filter(None, writers), "")

    said = ""
    while True:
        version, table, by = region.read(look)
        if not by:
            return table
        if by != said:
            context.log.info(f"table {name} is written by {by}: this run waits for it")
        said = by
        region.plane.wait(version, PAUSE_S)
