"""What `verify` reads of the log of a Delta table (SPEC K6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from crkafka_core.model.rows import Table
from crkafka_core.tables.delta_log import DeltaLog


def written(folder: Path, *files: list[int | None], **how: Any) -> DeltaLog:
    """A table whose column `at` has these values, file by file."""
    for values in files:
        rows = pa.table({"at": pa.array(values, pa.int64()), "x": pa.array(range(len(values)), pa.int64())})
        write_deltalake(folder, rows, mode="append", **how)
    return DeltaLog(Table("r", "t", "delta", str(folder)), {})


def test_what_a_user_changes_of_columns_and_constraints_changes_no_rows(tmp_path: Path) -> None:
    log = written(tmp_path, [1])
    table = DeltaTable(tmp_path)
    table.alter.add_columns([Field("more", PrimitiveType("string"), nullable=True)])
    table.alter.add_constraint({"numbered": "at >= 0"})
    table.alter.drop_constraint("numbered")
    table.alter.set_column_metadata("at", {"comment": "a number"})
    table.alter.set_table_description("numbers")
    snapshot = log.snapshot()
    assert snapshot is not None
    assert [(entry.version, entry.changes_rows) for entry in snapshot.since("0")] == [
        (f"{v}", False) for v in range(1, 6)
    ]


def test_rows_of_a_file_are_known_where_the_log_does_not_tell_them(tmp_path: Path) -> None:
    log = written(tmp_path, [1, 2, 3])
    table = DeltaTable(tmp_path)
    table.alter.set_table_properties({"delta.checkpoint.writeStatsAsJson": "false"})
    table.create_checkpoint()
    snapshot = log.snapshot()
    assert snapshot is not None
    assert [(file.rows, dict(file.lowest)) for file in snapshot.files()] == [(3, {})]
