"""The tables of the control plane, made from the row types of `crkafka_core.model.rows`, with the same columns in the same order. There are
no foreign keys: the rules of `crkafka_core.plane`, under the lock of the region's row (SPEC G7), keep rows consistent, and foreign keys
would slow down bulk writes of 10,000 offsets."""

from __future__ import annotations

import dataclasses
import typing
from typing import NamedTuple

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, MetaData, PrimaryKeyConstraint, Table, Text

from crkafka_core.model import rows
from crkafka_core.model.rows import Row

METADATA = MetaData(naming_convention={"ix": "ix_%(table_name)s_%(column_0_N_name)s", "pk": "pk_%(table_name)s"})

PLAIN_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that sorts by code point, as in Python and SQLite, whatever the locale of a PostgreSQL database."""


class _Stored(NamedTuple):
    """Properties of a table that its row type does not have."""

    name: str
    indexes: tuple[str, ...] = ()
    """Columns of each, separated by spaces."""
    by_key: bool = False
    """SQLite stores the rows by their key, without row ids: for short rows that are read by ranges."""


_STORED: dict[type[Row], _Stored] = {
    rows.Region: _Stored("region"),
    rows.Group: _Stored("consumer_group", ("region",), by_key=True),
    rows.Member: _Stored("member"),
    rows.Launch: _Stored("launch", by_key=True),
    rows.Checkpoint: _Stored(
        "checkpoint", ("region status id", "region merged_at", "region token id", "region id status rows")
    ),
    rows.Filler: _Stored("filler", by_key=True),
    rows.Contribution: _Stored("contribution"),
    rows.ContributedOffset: _Stored("contributed_offset", by_key=True),
    rows.MergedOffset: _Stored("merged_offset", by_key=True),
    rows.Segment: _Stored("segment", ("region checkpoint path",)),
    rows.DeadNumbers: _Stored("dead_numbers", by_key=True),
    rows.Initial: _Stored("initial_offset", ("region topic partition",), by_key=True),
    rows.ErasedRecords: _Stored("erased_records", by_key=True),
    rows.Start: _Stored("partition_start", by_key=True),
    rows.PauseMark: _Stored("pause_mark", by_key=True),
    rows.Lease: _Stored("lease", by_key=True),
    rows.Table: _Stored("declared_table"),
    rows.TableCommit: _Stored("table_commit", ("region table status number",)),
    rows.Goal: _Stored("goal"),
    rows.Reset: _Stored("reset", ("region member epoch", "region token epoch")),
    rows.Alarm: _Stored("alarm"),
    rows.Event: _Stored("event", ("region kind seq", "region at")),
}


_TYPES: dict[type, typing.Any] = {int: BigInteger(), float: Double(), bool: Boolean()}
"""SQL types of fields; any other one is text, also an enumeration, which a person can read."""


def _table(row: type[Row], stored: _Stored) -> Table:
    hints = typing.get_type_hints(row)
    table = Table(
        stored.name,
        METADATA,
        *(
            Column(field.name, _TYPES.get(hints[field.name], PLAIN_TEXT), nullable=False)
            for field in dataclasses.fields(row)
        ),
        PrimaryKeyConstraint(*row.KEY),
        sqlite_with_rowid=not stored.by_key,
    )
    for columns in stored.indexes:
        Index(None, *(table.c[name] for name in columns.split()))
    return table


TABLES: dict[type[Row], Table] = {row: _table(row, stored) for row, stored in _STORED.items()}
