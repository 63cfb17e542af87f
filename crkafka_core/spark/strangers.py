"""Checkpoints whose rows are in a table and do not belong there."""

from __future__ import annotations

import itertools

from crkafka_core.lake.handle import Handle
from crkafka_core.model.rows import Table
from crkafka_core.plane import contents
from crkafka_core.spark.table_format import TableFormat


def strangers(region: Handle, form: TableFormat, table: Table) -> set[int]:
    """Checkpoints whose rows are in the table and do not belong there."""
    present = form.present()
    return region.plane.read(
        lambda reader, row: set(itertools.filterfalse(contents.belonging(reader, row, table), present))
    )
