"""How many rows a table has: counted on from what a sensor's cursor remembers, since a history is long."""

from __future__ import annotations

from crkafka_core.control import Reader
from crkafka_core.model.rows import Table
from crkafka_core.plane import checkpoints

Counted = tuple[int, int, int]
"""Of a table: the epoch of its last rewind, up to which checkpoint it is counted, and how many rows that is."""


def count(reader: Reader, table: Table, known: Counted | None) -> Counted:
    """The rows of all checkpoints that a table has: of those that it had got when they were counted last, and of the new ones."""
    rewound, upto, rows = known or (0, 0, 0)
    if rewound != table.rewind_epoch or upto > table.acknowledged:
        upto = rows = 0
    new = checkpoints.filled(reader, above=upto, upto=table.acknowledged)
    return table.rewind_epoch, table.acknowledged, rows + sum(checkpoints.rows_of(reader, new).values())
