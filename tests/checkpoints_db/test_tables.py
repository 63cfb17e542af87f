"""Every row type has a table of its own, whose columns hold every value of it."""

from __future__ import annotations

from checkpoints_db.tables import TABLES
from crkafka_core.model.rows import ROWS


def test_every_row_type_has_a_table_of_its_own() -> None:
    assert set(TABLES) == set(ROWS)
    assert len({table.name for table in TABLES.values()}) == len(ROWS)


def test_columns_and_keys_are_those_of_the_rows() -> None:
    for row, table in TABLES.items():
        assert tuple(table.columns.keys()) == row.__match_args__
        assert tuple(c.name for c in table.primary_key.columns) == row.KEY
        assert not any(c.nullable for c in table.columns)
