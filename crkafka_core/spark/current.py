"""A table as it is now, compared with what SQL has acknowledged last (SPEC K6, G6)."""

from __future__ import annotations

from crkafka_core.lake.handle import Handle
from crkafka_core.model.rows import Table
from crkafka_core.plane import permits
from crkafka_core.spark.delta_table import DeltaTable
from crkafka_core.spark.keys import keys_of
from crkafka_core.spark.table_format import TableFormat
from crkafka_core.tables import delta_upsert
from crkafka_core.tables.stamp import History, app_of, check_newest, check_there


def current(region: Handle, form: TableFormat, table: Table) -> History:
    """What came since the acknowledged version; refused where the table is not there, or an older copy of it is."""
    history = form.history(table.version)
    check_there(table, history.version)
    app = app_of(region.plane.read(lambda _, row: row.uid), table.name)
    if isinstance(form, DeltaTable) and table.version and (shown := form.number(app)) is not None:
        delta_upsert.check_number(region, table, shown // 2 if keys_of(region, table.name) else shown)
    if history.unknown:
        check_newest(table, history, region.plane.read(lambda reader, row: permits.made(reader, table)))
    return history
