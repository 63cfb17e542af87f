"""How far a table is, and how many rows it has: counted on from what a sensor's cursor remembers, since a history is long."""

from __future__ import annotations

from crkafka_core.control import Reader
from crkafka_core.model.rows import Table
from crkafka_core.plane import checkpoints, tables

UNKNOWN = -1
Counted = tuple[int, int, int]
"""Of a table: the epoch of its last rewind, up to which checkpoint it is counted, and how many rows that is, or UNKNOWN."""


def count(reader: Reader, table: Table, known: Counted | None) -> Counted:
    """The rows of all checkpoints that a table has: of those that it had got when they were counted last, and of the new ones.

    Unknown where a commit has not counted the rows of each of its checkpoints, or where it or these are not kept any more.
    """
    rewound, upto, rows = known or (0, 0, 0)
    if rewound != table.rewind_epoch or upto > table.acknowledged:
        upto = rows = 0
    new = checkpoints.filled(reader, above=upto, upto=table.acknowledged)
    known_rows = tables.rows_in(reader, table, new)
    known_all = len(known_rows) == len(new) and (upto > 0 or not checkpoints.known_since(reader))
    rows = rows + sum(known_rows.values()) if known_all and rows != UNKNOWN else UNKNOWN
    return table.rewind_epoch, table.acknowledged, rows


def how_far(reader: Reader, table: Table, counted: Counted, *, keyed: bool) -> dict[str, int | str]:
    """What a table's page shows of all of it, beside the numbers of the partition that was materialized last. `keyed`: it has one row
    for each key, so that the rows it has got are not those that it holds."""
    about: dict[str, int | str] = {
        "checkpoints_behind": checkpoints.count_filled(reader, above=table.acknowledged),
        "version": table.version or "none",
    }
    if counted[2] != UNKNOWN and not keyed:
        about["total_rows"] = about["dagster/row_count"] = counted[2]
    return about
