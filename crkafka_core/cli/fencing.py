"""Makes declared tables follow a rewind: the region waits in REWINDING for somebody who can write them (SPEC G7, X4)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from crkafka_core.cli.progress import Say
from crkafka_core.cli.spark_session import open_session
from crkafka_core.model.errors import LeaseHeld
from crkafka_core.model.rows import Table
from crkafka_core.plane import epochs, tables
from crkafka_core.region import Region
from crkafka_core.region.lease import free

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def follow(region: Region, say: Say, *, spark: bool = True) -> list[str]:
    """Fence each table that owes it. Names of those that are left, but for what others do.

    Without `spark`, which is a host's way, only those that need none, and leave those that adopt segments to the host's feeder: a
    storage that does not answer must not hold up the host.
    """
    unfenced = region.plane.read(lambda reader, row: epochs.unfenced(reader))
    left: list[str] = []
    session: SparkSession | None = None
    for table in unfenced:
        needs_spark = tables.fence_needs_spark(table)
        if not (spark or tables.needs_spark(table)):
            continue
        if needs_spark and not spark:
            left.append(table.name)
            continue
        if needs_spark and (feeder := _feeder(region, table)):
            say(f"{feeder}, which keeps the table {table.name} fresh, makes it follow the rewind")
            left.append(table.name)
            continue
        if not tables.needs_spark(table):
            say(f"the table {table.name} follows the rewind")
            from crkafka_core.lake import road

            with suppress(LeaseHeld):
                road.fence(region, table.name)
            continue
        from crkafka_core.spark.tables import fence

        if needs_spark and session is None:
            session = open_session(region.config, say)
        say(f"the table {table.name} follows the rewind")
        try:
            fence(session, region, table.name)
        except LeaseHeld:
            if needs_spark:
                left.append(table.name)  # whoever writes it finds that it has to follow
    return left


def _feeder(region: Region, table: Table) -> str:
    """Who has a Spark that is warm for the table; empty when nobody does."""
    free(region, tables.SPARK_FEEDER)
    return region.plane.read(lambda reader, _: tables.feeder_of(reader, table))
