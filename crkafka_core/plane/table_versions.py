"""Which of a table's versions held exactly the rows of a line of checkpoints: for tables that keep one row for each key (SPEC K6, X4).

Rows that a later record has replaced are in no version after it, so a rewind goes back to a version; what came between that one
and the checkpoint is written again, as anything that the table has not got.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from crkafka_core.control import Reader
from crkafka_core.model.errors import Refused
from crkafka_core.model.rows import CheckpointStatus, Region, Table, TableCommit
from crkafka_core.plane import checkpoints, contents
from crkafka_core.plane.tables import advances


@dataclass(frozen=True)
class State:
    """What a table was once."""

    checkpoint: int
    """It held what the line to this one says; 0: nothing."""
    version: str
    """The format's; empty: a table without rows."""


def state_at(reader: Reader, region: Region, table: Table) -> State:
    """The latest state that belongs to the region's line, of all that was acknowledged. Refused where SQL does not know one any more."""
    forgotten = contents.before_line(reader, region)
    shared = contents.common(reader, region, table.acknowledged) or forgotten
    if not (shared and table.version):
        return State(0, "")
    if shared == table.acknowledged:
        return State(shared, table.version)
    if known := _on_line(reader, table, shared, forgotten):
        return State(known[-1].upto, known[-1].version)
    first = reader.column(TableCommit, "number", ("table", "=", table.name), order=("number",), limit=1)
    if first == [1] and not forgotten:  # all that was ever written is known, and none of it ended here or before
        return State(0, "")
    raise Refused(
        f"Table {table.name} of region {table.region} cannot go back to checkpoint {shared}: no commit that is known ended "
        f"there or before{f', and what led to checkpoint {forgotten} cannot be written again' if forgotten else ''}.",
        hint=how_to_fill_anew(table.name)
        if not forgotten
        else f"Nothing was changed. `crkafka tables undeclare {table.name}` lets the "
        "region go on without it; a region of its own fills it from the beginning of the topic.",
    )


def versions_in_reach(reader: Reader, region: Region, table: Table) -> set[int]:
    """Versions to which a reset takes the table back, each to the state of its checkpoint: they have to stay (SPEC K6)."""
    known = _on_line(reader, table, region.head, contents.before_line(reader, region))
    ends = [commit.upto for commit in known]
    before = {bisect_right(ends, target) for target in checkpoints.ids_with(reader, CheckpointStatus.MERGED)}
    return {int(known[at - 1].version) for at in before if at}


def _on_line(reader: Reader, table: Table, upto: int, forgotten: int) -> list[TableCommit]:
    """Acknowledged commits that brought the table to checkpoints of the line to this one, in that order."""
    line = {*reader.line(upto), forgotten}
    commits = advances(reader, ("table", "=", table.name), ("version", "!=", ""), ("upto", "<=", upto))
    return sorted((c for c in commits if c.upto in line), key=lambda c: (c.upto, c.number))


def how_to_fill_anew(table: str) -> str:
    """How a table is made anew."""
    return f"`crkafka tables undeclare {table}`, and declare it at a new path: it is filled from what is kept, and from Kafka."
