"""What of a raw table counts, for who reads it while something in it has to leave."""

from __future__ import annotations

from dataclasses import dataclass

from crkafka_core.control import Reader
from crkafka_core.lake import formats, standing
from crkafka_core.lake.formats import Logs
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.staying import Staying
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import contents, tables


@dataclass(frozen=True)
class View:
    """One version of a table."""

    at: str
    """As a reader names it."""
    staying: Staying | None
    """Which rows count; None: all."""


def visible(region: Handle, table: Table, logs: Logs = formats.open_log) -> View | None:
    """What of the table counts at this moment; None: there are no rows."""
    snapshot = logs(region, table).look()
    if snapshot is None or not snapshot.at:
        return None
    if table.version == str(snapshot.version) and not table.owes_fence:
        return View(snapshot.at, None)

    def ask(reader: Reader, row: Region) -> int:
        return contents.common(reader, row, tables.of(reader, table.name).acknowledged)

    return View(snapshot.at, standing.staying_at(region, region.plane.read(ask)))
