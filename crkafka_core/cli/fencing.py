"""Makes declared tables follow a rewind: in REWINDING the region waits for a process that can write them (SPEC G7, X4)."""

from __future__ import annotations

from crkafka_core.cli.output import Say
from crkafka_core.cli.resources import means
from crkafka_core.model.errors import LeaseHeld
from crkafka_core.plane import epochs, tables
from crkafka_core.region import Region


def follow(region: Region, say: Say, *, spark: bool = True) -> list[str]:
    """Fence each table that has to follow the rewind. Names of the tables that another process has to fence.

    A host calls it without `spark`: then nothing is fenced, because a storage that does not answer must not hold up the host; its
    feeder fences tables that need no Spark.
    """
    unfenced = region.plane.read(lambda reader, row: epochs.unfenced(reader))
    if not spark:
        return [table.name for table in unfenced if tables.needs_spark(table)]
    from crkafka_core.lake import road

    left: list[str] = []
    for table in unfenced:
        say(f"the table {table.name} follows the rewind")
        try:
            road.fence(region, table.name, means=means(region.config, say))
        except LeaseHeld:
            left.append(table.name)  # the process that writes it makes it follow
    return left
