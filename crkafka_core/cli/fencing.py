"""Makes declared tables follow a rewind: in REWINDING the region waits for a process that can write them (SPEC G7, X4)."""

from __future__ import annotations

from contextlib import suppress

from crkafka_core.cli.output import Say
from crkafka_core.model.errors import LeaseHeld
from crkafka_core.plane import epochs, tables
from crkafka_core.region import Region


def follow(region: Region, say: Say, *, spark: bool = True) -> list[str]:
    """Fence each table that has to follow the rewind. Names of the tables that another process has to fence.

    A host calls it without `spark`: then nothing is fenced, because a storage that does not answer must not hold up the host; its
    feeder fences tables that need no Spark.
    """
    unfenced = region.plane.read(lambda reader, row: epochs.unfenced(reader))
    left: list[str] = []
    for table in unfenced:
        if not spark:
            left += [table.name] if tables.needs_spark(table) else []
            continue
        from crkafka_core.lake import road

        say(f"the table {table.name} follows the rewind")
        with suppress(LeaseHeld):
            road.fence(region, table.name)
    return left
