"""A table as it is now, compared with what SQL has acknowledged last (SPEC K6, G6)."""

from __future__ import annotations

from crkafka_core.lake.handle import Handle
from crkafka_core.model.rows import Table
from crkafka_core.plane import permits
from crkafka_core.spark.table_format import TableFormat
from crkafka_core.tables.stamp import History, check_newest, check_there


def current(region: Handle, form: TableFormat, table: Table) -> History:
    """What came since the acknowledged version; refused where the table is not there, or an older copy of it is."""
    history = form.history(table.version)
    check_there(table, history.version)
    if history.unknown:
        check_newest(table, history, region.plane.read(lambda reader, row: permits.made(reader, table)))
    return history
