"""What the log of a Delta table tells of its rows by its files' statistics alone, and where it does not tell (SPEC K6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from crkafka_core.model.rows import Table
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
