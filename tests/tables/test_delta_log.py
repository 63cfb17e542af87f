"""What the log of a Delta table tells of its rows by its files' statistics alone, and where it does not tell (SPEC K6)."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from crkafka_core.model.rows import Table
from crkafka_core.segments.storage import Storage
from crkafka_core.tables import file_statistics
from crkafka_core.tables.delta_log import DeltaLog

ALL = (-(2**63), 2**63 - 1)


def written(folder: Path, *files: list[int | None], **how: Any) -> DeltaLog:
    """A table whose column `at` has these values, file by file."""
    for values in files:
        rows = pa.table({"at": pa.array(values, pa.int64()), "x": pa.array(range(len(values)), pa.int64())})
        write_deltalake(folder, rows, mode="append", **how)
    return DeltaLog(Table("r", "t", "delta", str(folder)), {})


def counts(log: DeltaLog, least: int = ALL[0], greatest: int = ALL[1]) -> dict[int, int] | None:
    snapshot = log.snapshot()
    assert snapshot is not None
    return snapshot.counts("at", least, greatest)


def test_files_of_one_value_each_are_counted(tmp_path: Path) -> None:
    log = written(tmp_path, [1, 1], [2], [1], [3])
    assert counts(log) == {1: 3, 2: 1, 3: 1}
    assert counts(log, 2, 3) == {2: 1, 3: 1}


def test_partitions_are_counted(tmp_path: Path) -> None:
    assert counts(written(tmp_path, [1, 1, 2], [2], partition_by=["at"])) == {1: 2, 2: 2}


def test_a_table_without_rows_has_none(tmp_path: Path) -> None:
    assert counts(written(tmp_path, [])) == {}


@pytest.mark.parametrize("other", [[2, 3], [2, None], [None]], ids=["two values", "a null", "nulls only"])
def test_a_file_that_may_hold_others_is_not_told_apart_by_the_log(tmp_path: Path, other: list[int | None]) -> None:
    log = written(tmp_path, [1], other)
    assert counts(log) is None
    assert counts(log, 1, 1) == ({1: 1} if other[0] else None)


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


def test_times_of_which_python_knows_no_year_have_no_bounds(tmp_path: Path) -> None:
    """A Kafka timestamp may be any number; and the end of the year 9999 is what many write for "never"."""
    never = datetime(9999, 12, 31, 23, 59, 59, 999999)
    rows = {
        "far": pa.array([2**62], pa.timestamp("us", tz="UTC")),
        "never": pa.array([never], pa.timestamp("us")),
        "n": [7],
    }
    pq.write_table(pa.table(rows), tmp_path / "x.parquet")
    storage = Storage.open(tmp_path)
    (told,) = file_statistics.from_footers(storage, storage.list(""))
    said = json.loads(told.statistics)
    assert (told.rows, said["maxValues"], said["nullCount"]) == (1, {"n": 7}, {"far": 0, "never": 0, "n": 0})
