"""Models and row types agree: every row has a table with the same columns, types and key."""

from __future__ import annotations

import dataclasses
import typing
from enum import StrEnum

import pytest
from sqlalchemy import BigInteger, Boolean, Double, Table, Text

from checkpoints_db.tables import MODELS
from checkpoints_db.tables.base import EnumText
from crkafka_core.model.rows import ROWS, Row


def _table(row: type[Row]) -> Table:
    table = MODELS[row].__table__
    assert isinstance(table, Table)
    return table


def test_every_row_type_has_a_table_of_its_own() -> None:
    assert set(MODELS) == set(ROWS)
    assert len({_table(row).name for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_columns_and_key_are_those_of_the_row(row: type[Row]) -> None:
    table = _table(row)
    assert [c.name for c in table.columns] == [field.name for field in dataclasses.fields(row)]
    assert tuple(c.name for c in table.primary_key.columns) == row.KEY
    assert not any(c.nullable for c in table.columns)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_column_types_hold_every_value_of_the_row(row: type[Row]) -> None:
    for name, kind in typing.get_type_hints(row).items():
        if name == "KEY":
            continue
        column = _table(row).columns[name]
        if issubclass(kind, StrEnum):
            assert isinstance(column.type, EnumText)
            assert column.type.enum is kind
        else:
            wanted = {str: Text, int: BigInteger, float: Double, bool: Boolean}[kind]
            assert isinstance(column.type, wanted), name
