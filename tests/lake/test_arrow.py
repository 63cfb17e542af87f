"""A shape may be a function of Arrow's batches, which needs no Spark: each output is a table, and all go by one pass (SPEC K6)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from crkafka_core.lake import audit, compact, erase, formats, road
from crkafka_core.lake.files import rows_of
from crkafka_core.lake.new_files import Output
from crkafka_core.lake.port import CHECKPOINT
from crkafka_core.lake.worker import Made
from crkafka_core.model.errors import ConfigError
from crkafka_core.plane import erasure, tables
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


def many(given: pa.RecordBatch) -> pa.RecordBatch:
    """Types of Arrow's that tables have under another name."""
    at = pc.cast(given["offset"], pa.int64()).to_pylist()
    texts = pa.array([f"k{o}" for o in at], pa.string())
    return pa.RecordBatch.from_pydict(
        {
            "large": texts.cast(pa.large_string()),
            "view": texts.cast(pa.string_view()),
            "dictionary": texts.dictionary_encode(),
            "bytes": texts.cast(pa.large_binary()),
            "fixed": pa.array([b"k%d" % o for o in at], pa.binary(2)),
            "day": pa.array([o * 86_400_000 for o in at], pa.date64()),
            "at": pa.array(at, pa.timestamp("ms")),
            "zone": pa.array(at, pa.timestamp("s", "Europe/Berlin")),
            "small": pa.array([200 + o for o in at], pa.uint8()),
            "middle": pa.array([2**15 + o for o in at], pa.uint16()),
            "whole": pa.array([2**31 + o for o in at], pa.uint32()),
            "half": pa.array(at, pa.float32()).cast(pa.float16()),
            "decimal": pa.array(at, pa.decimal256(20, 2)),
            "within": pa.array([[{"a": o}] for o in at], pa.large_list(pa.struct([("a", pa.uint8())]))),
        }
    )


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_types_that_a_table_has_under_another_name_become_those(tmp_path: Path, format: str) -> None:
    """The table was made with them, and then refused its own columns."""
    landing = landed(tmp_path, {"name": "many", "shape": "arrow:tests.lake.test_arrow:many", "format": format})
    for _ in range(2):
        landing.land(4)
        road.advance(landing.region, "many", means=MEANS)
    log = formats.open_log(landing.region, landing.region.plane.read(lambda reader, _: tables.of(reader, "many")))
    snapshot = log.look()
    assert snapshot is not None
    rows = [row for file in snapshot.files() for batch in rows_of(log.storage, file) for row in batch.to_pylist()]
    given = many(pa.record_batch([pa.array(range(8))], names=["offset"])).to_pylist()
    at = sorted(rows, key=lambda row: str(row["large"]))
    assert [{**row, CHECKPOINT: 0} for row in at] == [{**row, CHECKPOINT: 0} for row in given]


class Failing:
    """A maker of DataFrames whose second task fails."""

    alarm = ""

    def __init__(self, *given: Any) -> None: ...

    def schemas(self) -> dict[str, pa.Schema]:
        return {"good": pa.schema([("n", pa.int64())])}

    def make(self, outputs: Mapping[str, Output], check: Callable[[], object]) -> Made:
        outputs["good"].storage.put(f"{outputs['good'].folder}/task-1.parquet", b"rows")
        raise RuntimeError("task 2 failed")


def test_tasks_that_fail_leave_no_file_of_those_that_did_not(tmp_path: Path) -> None:
    """Their answer never comes, so each try left its files behind."""
    landing = landed(tmp_path, {"name": "t", "shape": "shop:frames"})
    landing.land(2)
    with pytest.raises(RuntimeError, match="task 2"):
        road.advance(landing.region, "t", means=road.Means(frames=Failing))
    assert not [*tmp_path.glob("t/**/*.parquet")]


REFUSED = {
    "whole": pa.uint64(),
    "time": pa.timestamp("ns"),
    "clock": pa.time64("ns"),
    "digits": pa.decimal256(50, 2),
    "nothing": pa.null(),
    "span": pa.duration("us"),
}


def refused(given: pa.RecordBatch) -> pa.RecordBatch:
    name = os.environ["CRKAFKA_TEST_COLUMN"]
    return pa.RecordBatch.from_pydict({name: pa.nulls(given.num_rows, REFUSED[name])})


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("column", REFUSED)
def test_a_type_that_would_lose_values_is_refused_by_name_before_the_table_is_made(
    tmp_path: Path, column: str, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRKAFKA_TEST_COLUMN", column)
    landing = landed(tmp_path, {"name": "t", "shape": "arrow:tests.lake.test_arrow:refused", "format": format})
    landing.land(2)
    with pytest.raises(ConfigError, match=f"Column {column} of table t is .*, which has no place in it: .*Nothing was"):
        road.advance(landing.region, "t", means=MEANS)
    assert not (tmp_path / "t").exists()


def numbers(given: pa.RecordBatch) -> pa.RecordBatch:
    kind = pa.int64() if os.environ.get("CRKAFKA_TEST_WIDE") else pa.int32()
    return pa.RecordBatch.from_pydict({"n": given["offset"].cast(kind)})


def test_a_wider_type_of_a_shape_is_refused_by_delta_before_files_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta widens no column: each try made all files, was refused by the commit, and left them behind."""
    landing = landed(tmp_path, {"name": "even", "shape": "arrow:tests.lake.test_arrow:numbers"})
    landing.land(2)
    road.advance(landing.region, "even", means=MEANS)
    landing.land(2)
    before = set((tmp_path / "even").rglob("*.parquet"))
    with monkeypatch.context() as patch:
        patch.setenv("CRKAFKA_TEST_WIDE", "1")
        with pytest.raises(ConfigError, match="column n is int32 and would become int64"):
            road.advance(landing.region, "even", means=MEANS)
    assert set((tmp_path / "even").rglob("*.parquet")) == before
    road.advance(landing.region, "even", means=MEANS)
    assert [n for _, n in rows(landing, "even", "n")] == [0, 1, 2, 3]
