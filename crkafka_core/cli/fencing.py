"""Makes declared tables follow a rewind: the region waits in REWINDING for somebody who can write them (SPEC G7, X4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crkafka_core.cli.progress import Say
from crkafka_core.model.errors import LeaseHeld
from crkafka_core.plane import resets
from crkafka_core.region import Region

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def follow(region: Region, say: Say, *, spark: bool = True) -> list[str]:
    """Fence each table that owes it; without `spark` only those that need none (Parquet). Names of those that are left."""
    owed = region.plane.read(lambda reader, row: resets.unfenced(reader, row.name))
    left: list[str] = []
    session: SparkSession | None = None
    for table in owed:
        if table.format != "parquet" and not spark:
            left.append(table.name)
            continue
        from crkafka_core.spark.session import open_session
        from crkafka_core.spark.tables import fence

        say(f"the table {table.name} follows the rewind")
        if table.format != "parquet" and session is None:
            session = open_session(region.config)
        try:
            fence(session, region, table.name)
        except LeaseHeld:
            left.append(table.name)  # whoever writes it finds that it has to follow
    return left
