"""What of a table counts, for who reads it while something in it has to leave."""

from __future__ import annotations

from dataclasses import dataclass

from crkafka_core.control import Reader
from crkafka_core.lake import formats, keyed, standing
from crkafka_core.lake.columns import keys_of
from crkafka_core.lake.formats import Logs
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.port import Snapshot, TableLog
from crkafka_core.lake.staying import Staying
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import contents, tables
from crkafka_core.plane.table_versions import state_at


@dataclass(frozen=True)
class View:
    """One version of a table."""

    at: str
    """As a reader names it."""
    staying: Staying | None
    """Which rows count; None: all."""


def visible(region: Handle, table: Table, logs: Logs = formats.open_log) -> View | None:
    """What of the table counts at this moment; None: there are no rows."""
    log = logs(region, table)
    snapshot = log.look()
    if snapshot is None or not snapshot.at:
        return None
    if table.version == str(snapshot.version) and not table.owes_fence:
        return View(snapshot.at, None)
    if keys_of(region.config, table):
        return _acknowledged(region, table, log, snapshot)

    def ask(reader: Reader, row: Region) -> int:
        return contents.common(reader, row, tables.of(reader, table.name).acknowledged)

    return View(snapshot.at, standing.staying_at(region, region.plane.read(ask)))


def _acknowledged(region: Handle, table: Table, log: TableLog, snapshot: Snapshot) -> View | None:
    """The version that counts: rows that came over others since cannot be left out."""
    state = region.plane.read(lambda reader, row: state_at(reader, row, tables.of(reader, table.name)))
    if not state.version:
        return None
    if keyed.untouched_since(snapshot, int(state.version)):
        return View(snapshot.at, None)
    older = log.look(state.version)
    if older is None:
        raise keyed.gone_for_good(table, state, "the table's log does not have it any more")
    return View(older.at, None)
