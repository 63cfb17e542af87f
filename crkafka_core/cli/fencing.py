"""Makes declared tables follow a rewind: in REWINDING the region waits for a process that can write them (SPEC G7, X4)."""

from __future__ import annotations

from contextlib import suppress

from crkafka_core.cli.output import Say
from crkafka_core.cli.resources import lazy_session
from crkafka_core.model.errors import LeaseHeld
from crkafka_core.model.rows import Table
from crkafka_core.plane import epochs, tables
from crkafka_core.region import Region
from crkafka_core.region.lease import free


def follow(region: Region, say: Say, *, spark: bool = True) -> list[str]:
    """Fence each table that has to follow the rewind. Names of the tables that another process has to fence.

    A host calls it without `spark`: then nothing is fenced, because a storage that does not answer must not hold up the host; its
    feeder fences tables that need no Spark.
    """
    unfenced = region.plane.read(lambda reader, row: epochs.unfenced(reader))
    left: list[str] = []
    session = lazy_session(region.config, say)
    for table in unfenced:
        if not spark:
            left += [table.name] if tables.needs_spark(table) else []
            continue
        by_spark = not tables.on_road(table)
        if by_spark and (feeder := _feeder(region, table)):
            say(f"{feeder}, which keeps the table {table.name} fresh, makes it follow the rewind")
            left.append(table.name)
            continue
        if by_spark:
            session()  # reports that Spark starts, before the next step
        say(f"the table {table.name} follows the rewind")
        if not by_spark:
            from crkafka_core.lake import road

            with suppress(LeaseHeld):
                road.fence(region, table.name)
            continue
        from crkafka_core.spark.tables import fence

        try:
            fence(session(), region, table.name)
        except LeaseHeld:
            left.append(table.name)  # the process that writes it makes it follow
    return left


def _feeder(region: Region, table: Table) -> str:
    """The process that feeds the table with a running Spark; empty if none does."""
    free(region, tables.SPARK_FEEDER)
    return region.plane.read(lambda reader, _: tables.feeder_of(reader, table))
