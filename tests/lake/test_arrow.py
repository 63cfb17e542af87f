"""A shape may be a function of Arrow's batches, which needs no Spark: each output is a table, and all go by one pass (SPEC K6)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from crkafka_core.lake import audit, compact, erase, road
from crkafka_core.lake.port import CHECKPOINT
from crkafka_core.model.errors import ConfigError
from crkafka_core.plane import erasure
from crkafka_core.verify import in_tables
from crkafka_core.verify.verdict import Findings
from tests.lake.rig import pool
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore

MEANS = road.Means(pool=pool())


def halves(records: pa.RecordBatch) -> dict[str, pa.RecordBatch]:
    odd = pc.equal(pc.bit_wise_and(records.column("offset"), 1), 1)
    tens = pa.record_batch([pc.multiply(records.column("offset"), 10)], names=["tens"])
    return {"good": tens.filter(pc.invert(odd)), "odd": records.select(["offset", "value"]).filter(odd)}


def evens(records: pa.RecordBatch) -> pa.RecordBatch:
    """Others are left out."""
    return halves(records)["good"]


def landed(folder: Path, *tables: dict[str, Any]) -> Landing:
    declared = [{"format": "delta", "path": str(folder / each["name"]), **each} for each in tables]
    return Landing(MemoryStore(), folder, partitions=1, members=1, tables=declared)


def rows(landing: Landing, name: str, column: str) -> list[tuple[int, int]]:
    table = landing.config.table(name)
    assert table is not None
    there = DeltaTable(table.path).to_pyarrow_table(columns=[CHECKPOINT, column])
    return sorted(zip(*(c.to_pylist() for c in there.columns), strict=True))


def test_outputs_are_tables_that_follow_rewinds_repairs_and_erasing(tmp_path: Path) -> None:
    shape = "arrow:tests.lake.test_arrow:halves"
    landing = landed(tmp_path, {"name": "even", "shape": shape}, {"name": "odd", "shape": shape, "output": "odd"})
    for _ in range(4):
        landing.land(4)
        done = road.advance(landing.region, "even", means=MEANS)
    assert done is not None and (done.rows, done.acknowledged) == (2, 4)
    assert rows(landing, "even", "tens") == [(n, 40 * (n - 1) + ten) for n in (1, 2, 3, 4) for ten in (0, 20)]
    DeltaTable(str(tmp_path / "odd")).delete("offset = 3")
    assert audit.look(landing.region, "odd", MEANS.logs).miscounted == (1,)
    road.mend(landing.region, "odd", audit.look(landing.region, "odd"), means=MEANS)
    erase.note(landing.region, erasure.by_partition([("orders", 0, 6), ("orders", 0, 7)]))
    road.erase(landing.region, "even", [2], means=MEANS)
    landing.retire(1, 2, history=10)
    compact.maintain(landing.region, "even")
    landing.rewind(3)
    for name in ("even", "odd"):
        road.fence(landing.region, name, means=MEANS)
        assert audit.look(landing.region, name).clean
    assert rows(landing, "even", "tens") == [(1, 0), (1, 20), (2, 40), (3, 80), (3, 100)]
    assert rows(landing, "odd", "offset") == [(1, 1), (1, 3), (2, 5), (3, 9), (3, 11)]
    found = Findings()
    assert in_tables.look(landing.region, found) == ("even", "odd") and not found.kept


def test_a_shape_with_one_output_may_leave_rows_out_and_others_fit_their_tables(tmp_path: Path) -> None:
    landing = landed(tmp_path, {"name": "even", "shape": "arrow:tests.lake.test_arrow:evens"})
    landing.land(4)
    road.advance(landing.region, "even", means=MEANS)
    assert rows(landing, "even", "tens") == [(1, 0), (1, 20)]
    (tmp_path / "other").mkdir()
    alone = landed(tmp_path / "other", {"name": "even", "shape": "arrow:tests.lake.test_arrow:halves"})
    alone.land(1)
    with pytest.raises(ConfigError, match="gives rows as odd, which no table takes"):
        road.advance(alone.region, "even", means=MEANS)


def test_a_partition_column_that_is_not_there_is_named_before_anything_is_written(tmp_path: Path) -> None:
    shape = "arrow:tests.lake.test_arrow:evens"
    landing = landed(tmp_path, {"name": "even", "shape": shape, "partition_by": ["day"]})
    landing.land(2)
    with pytest.raises(ConfigError, match="no such column; they have crkafka_checkpoint, tens"):
        road.advance(landing.region, "even", means=MEANS)
    assert not (tmp_path / "even").exists()


def numbers(given: pa.RecordBatch) -> pa.RecordBatch:
    kind = pa.int64() if os.environ.get("CRKAFKA_TEST_WIDE") else pa.int32()
    return pa.RecordBatch.from_pydict({"n": given["offset"].cast(kind)})


def test_a_wider_type_of_a_shape_is_refused_by_delta_before_files_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta widens no column: each try made all files, was refused by the commit, and left them behind."""
    landing = landed(tmp_path, {"name": "even", "shape": "arrow:tests.lake.test_arrow:numbers"})
    landing.land(2)
    road.advance(landing.region, "even")
    landing.land(2)
    before = set((tmp_path / "even").rglob("*.parquet"))
    with monkeypatch.context() as patch:
        patch.setenv("CRKAFKA_TEST_WIDE", "1")
        with pytest.raises(ConfigError, match="column n is int32 and would become int64"):
            road.advance(landing.region, "even")
    assert set((tmp_path / "even").rglob("*.parquet")) == before
    road.advance(landing.region, "even")
    assert [n for _, n in rows(landing, "even", "n")] == [0, 1, 2, 3]
