"""Rows of typed Delta tables are written by the tasks that decode the records, once a table is there as its log tells (SPEC K6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Plain
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from crkafka_core.decode.batch import BadRecord
from crkafka_core.decode.typed import Typing
from crkafka_core.lake import writing
from crkafka_core.model.errors import DataLoss, LeaseLost, NoSuchCheckpoint, Stale
from crkafka_core.model.offsets import TP
from crkafka_core.spark import shaped_write, tables, task_files, typed
from crkafka_core.spark.names import CHECKPOINT
from crkafka_core.spark.tasks import Then
from crkafka_core.tables.delta_log import Snapshot
from tests.rigs.landing import Landing, records
from tests.rigs.memory import MemoryStore
from tests.spark.test_shaped import Crash, leases_end

pytestmark = pytest.mark.spark

SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": "number"},
        "paid": {"type": "boolean"},
        "who": {"type": "string"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "lines": {
            "type": "array",
            "items": {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}}},
        },
        "to": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "tags": {"type": "array", "items": {"type": "integer"}}},
        },
    },
}
WHOLE = {
    "id": 7,
    "price": 1.5,
    "paid": True,
    "who": "Zoë",
    "at": "2026-01-31T08:00:00.123456Z",
    "day": "2026-02-01",
    "tags": ["a", None],
    "lines": [{"sku": "x", "n": 1}, {"n": 2}, None],
    "to": {"city": "Ulm", "tags": [1, 2]},
}
KINDS = [
    WHOLE,
    {"id": 1},
    "no JSON",
    {"who": "no id"},
    None,
    {"id": 2, "tags": [], "lines": [], "to": {}, "day": "1969-12-31"},
]
"""The values of six records; every checkpoint of these tests has them, again and again."""
N = len(KINDS)


def value_of(offset: int) -> bytes | None:
    kind = KINDS[offset % N]
    return None if kind is None else kind.encode() if isinstance(kind, str) else json.dumps(kind).encode()


def made(folder: Path, schema: dict[str, Any] = SCHEMA, **declared: Any) -> Landing:
    (folder / "order.json").write_text(json.dumps(schema))

    def batch_of(tp: TP, start: int, stop: int) -> Any:
        batch = records(tp, start, stop)
        values = pa.array([value_of(o) for o in range(start, stop)], pa.binary())
        return type(batch)(batch.records.set_column(1, "value", values), batch.runs)

    table = {
        "name": "orders",
        "format": "delta",
        "path": str(folder / "orders"),
        "typed": {"json": str(folder / "order.json")},
    }
    return Landing(MemoryStore(), folder, partitions=2, tables=[{**table, **declared}], batch_of=batch_of)


def advance(spark: SparkSession, landing: Landing, checkpoints: int = 1, rows: int = N) -> None:
    for _ in range(checkpoints):
        landing.land(rows)
    tables.advance(spark, landing.region, "orders")


def with_a_third_landed(spark: SparkSession, folder: Path) -> Landing:
    """Two checkpoints are in the tables: what comes next is written by tasks."""
    landing = made(folder)
    advance(spark, landing)
    advance(spark, landing)
    landing.land(N)
    return landing


def path_of(landing: Landing, name: str = "orders") -> str:
    table = landing.config.table(name)
    assert table is not None
    return table.path


def rows_in(landing: Landing, name: str = "orders", offset: str = "kafka_offset") -> list[tuple[int, int]]:
    """(checkpoint, offset) of each row, as a program reads them that knows neither Spark nor us."""
    found = Plain(path_of(landing, name)).to_pyarrow_table(columns=[CHECKPOINT, offset]).to_pylist()
    return sorted((r[CHECKPOINT], r[offset]) for r in found)


def expected(landing: Landing, *checkpoints: int, good: bool = True) -> list[tuple[int, int]]:
    """Of both partitions: of six records four are good."""
    return sorted(
        (number, offset)
        for number in checkpoints
        for offset in range((number - 1) * N, number * N)
        if (offset % N not in (2, 3)) == good
        for _ in landing.tps
    )


def writers(landing: Landing, name: str = "orders") -> list[str]:
    """Who made each commit, oldest first: Spark, deltalake for us, or we alone."""
    history = Plain(path_of(landing, name)).history()
    return [str(c["engineInfo"]).partition("/")[0].partition(":")[0] for c in reversed(history)]


def rows_as_text(spark: SparkSession, landing: Landing, name: str) -> list[str]:
    table = tables.read_table(spark, landing.region, name)
    return sorted(r[0] for r in table.select(F.to_json(F.struct(*sorted(table.columns)))).collect())


def test_tasks_write_what_spark_would_have_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = made(tmp_path)
    advance(spark, landing)

    def through_java(*_: Any) -> Any:
        raise AssertionError("the rows went through Java")

    monkeypatch.setattr(typed, "frames", through_java)
    for _ in range(11):
        advance(spark, landing)
    advance(spark, landing, checkpoints=3)
    assert writers(landing) == ["Apache-Spark", "delta-rs", *["crkafka"] * 11]
    assert rows_in(landing) == expected(landing, *range(1, 16))
    assert rows_in(landing, "orders_dead", "offset") == expected(landing, *range(1, 16), good=False)
    names = ("orders", "orders_dead")
    by_tasks = {name: rows_as_text(spark, landing, name) for name in names}
    monkeypatch.undo()
    tables.rewrite(spark, landing.region, "orders", ids=range(1, 16))
    assert writers(landing)[-1] == "Apache-Spark"
    assert {name: rows_as_text(spark, landing, name) for name in names} == by_tasks
    (whole,) = (
        tables.read_table(spark, landing.region, "orders").where("kafka_offset = 72 AND kafka_partition = 1").collect()
    )
    assert whole["lines"][1]["n"] == 2 and whole["lines"][2] is None and whole["at"].microsecond == 123456
    assert tables.look(spark, landing.region, "orders").clean
    landing.rewind(14)
    for name in ("orders", "orders_dead"):
        tables.fence(spark, landing.region, name)
    assert rows_in(landing) == expected(landing, *range(1, 15)), "also out of a file of several checkpoints"
    assert rows_in(landing, "orders_dead", "offset") == expected(landing, *range(1, 15), good=False)


def test_the_log_tells_bounds_of_what_tasks_write(spark: SparkSession, tmp_path: Path) -> None:
    landing = made(tmp_path)
    for _ in range(3):
        advance(spark, landing)
    told = pa.table(Plain(path_of(landing)).get_add_actions(flatten=True)).to_pylist()
    last = [r for r in told if r["max.crkafka_checkpoint"] == 3]
    assert sum(r["num_records"] for r in last) == 2 * 4
    assert all((r["min.id"], r["max.id"], r["min.day"].isoformat()) == (1, 7, "1969-12-31") for r in last)
    assert {(r["min.kafka_offset"], r["max.kafka_offset"]) for r in last} == {(2 * N, 3 * N - 1)}
    assert sum(r["null_count.who"] for r in last) == 6 and sum(r["null_count.crkafka_checkpoint"] for r in last) == 0


def test_a_time_of_which_python_knows_no_year_keeps_no_table_back(spark: SparkSession, tmp_path: Path) -> None:
    """Of Kafka a time may be any number; and the end of the year 9999 is what many write for "never"."""
    landing = made(tmp_path)
    advance(spark, landing)
    never = json.dumps({"id": 9, "at": "9999-12-31T23:59:59.999999Z"}).encode()

    def far(tp: TP, start: int, stop: int) -> Any:
        batch, rows = records(tp, start, stop), stop - start
        changed = batch.records.set_column(1, "value", pa.array([never] * rows, pa.binary()))
        at = changed.schema.get_field_index("timestamp")
        times = pa.array([2**61] * rows, changed.schema.field(at).type)
        return type(batch)(changed.set_column(at, changed.schema.field(at), times), batch.runs)

    landing._batch_of = far
    advance(spark, landing)
    advance(spark, landing)
    assert writers(landing)[-1] == "crkafka"
    there = Plain(path_of(landing)).to_pyarrow_table(columns=[CHECKPOINT]).column(0).to_pylist()
    assert [there.count(checkpoint) for checkpoint in (1, 2, 3)] == [8, 12, 12]


def test_a_checkpoint_that_was_replayed_before_its_turn_keeps_no_table_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Files cannot come behind rows that they replace: each write found the table changed, for ever."""
    landing = with_a_third_landed(spark, tmp_path)
    tables.rewrite(spark, landing.region, "orders", [3])
    assert rows_in(landing) == expected(landing, 1, 2, 3)
    assert tables.advance(spark, landing.region, "orders") is not None
    advance(spark, landing)
    assert rows_in(landing) == expected(landing, 1, 2, 3, 4)
    assert rows_in(landing, "orders_dead", "offset") == expected(landing, 1, 2, 3, 4, good=False)


def test_bad_records_are_left_out_and_counted_or_stop_the_write(spark: SparkSession, tmp_path: Path) -> None:
    lenient = made(tmp_path, on_bad_record="skip")
    advance(spark, lenient)
    lenient.land(N)
    done = tables.advance(spark, lenient.region, "orders")
    assert done is not None and (done.rows, done.bad) == (8, 4) and writers(lenient)[1:] == ["delta-rs"]
    assert rows_in(lenient) == expected(lenient, 1, 2)
    (tmp_path / "strict").mkdir()
    strict = made(tmp_path / "strict", on_bad_record="stop")
    advance(spark, strict, rows=2)
    strict.land(1)
    with pytest.raises(BadRecord, match=r"Table orders: Record orders\[\d\]@2 cannot be decoded: no JSON"):
        tables.advance(spark, strict.region, "orders")
    assert [c for c, _ in rows_in(strict)] == [1] * 4
    assert not list(Path(path_of(strict)).glob("*/written/**/*.parquet")), "what was begun is removed"


def test_columns_that_become_more_go_by_spark_once(spark: SparkSession, tmp_path: Path) -> None:
    landing = made(tmp_path)
    advance(spark, landing)
    advance(spark, landing)
    more = {**SCHEMA, "properties": {**SCHEMA["properties"], "extra": {"type": "string"}}}  # type: ignore[dict-item]
    (tmp_path / "order.json").write_text(json.dumps(more))
    advance(spark, landing)
    advance(spark, landing)
    assert writers(landing) == ["Apache-Spark", "delta-rs", "Apache-Spark", "delta-rs"]
    spark.sql(f"ALTER TABLE delta.`{path_of(landing)}` ADD CONSTRAINT early CHECK (kafka_offset < {5 * N})")
    advance(spark, landing)
    assert rows_in(landing) == expected(landing, 1, 2, 3, 4, 5)
    landing.land(N)
    with pytest.raises(Exception, match="early"):
        tables.advance(spark, landing.region, "orders")
    assert rows_in(landing) == expected(landing, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("step", "table"),
    [
        ("before", "orders"),
        ("after", "orders_dead"),
        pytest.param("before", "orders_dead", marks=pytest.mark.soak),
        pytest.param("after", "orders", marks=pytest.mark.soak),
    ],
)
def test_whoever_dies_beside_a_tables_commit_leaves_each_row_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, table: str
) -> None:
    landing = made(tmp_path)
    advance(spark, landing)
    advance(spark, landing)
    take = Snapshot.take

    def dying(snapshot: Snapshot, files: Any, stamp: Any, about: Any) -> int:
        if stamp.table != table:
            return take(snapshot, files, stamp, about)
        if step == "after":
            take(snapshot, files, stamp, about)
        raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(Snapshot, "take", dying)
        patch.setattr(writing, "give_up", lambda *_: None)
        advance(spark, landing)
    leases_end(landing)
    advance(spark, landing)
    advance(spark, landing)
    assert rows_in(landing) == expected(landing, 1, 2, 3, 4, 5)
    assert rows_in(landing, "orders_dead", "offset") == expected(landing, 1, 2, 3, 4, 5, good=False)
    assert tables.look(spark, landing.region, "orders").clean


@pytest.mark.parametrize("late_by", ["a commit", "a rewind"])
def test_who_wrote_files_while_another_went_on_commits_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late_by: str
) -> None:
    landing = with_a_third_landed(spark, tmp_path)
    usual = shaped_write._commits

    def slow(*given: Any) -> None:
        monkeypatch.undo()
        if late_by == "a rewind":
            landing.rewind(1)
            tables.fence(spark, landing.region, "orders")
            tables.fence(spark, landing.region, "orders_dead")
        else:
            tables.advance(spark, landing.region, "orders")
        usual(*given)

    monkeypatch.setattr(shaped_write, "_commits", slow)
    with pytest.raises((Stale, NoSuchCheckpoint)):
        tables.advance(spark, landing.region, "orders")
    there = (1,) if late_by == "a rewind" else (1, 2, 3)
    assert rows_in(landing) == expected(landing, *there)
    assert rows_in(landing, "orders_dead", "offset") == expected(landing, *there, good=False)


def test_a_late_writer_with_a_permit_commits_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = with_a_third_landed(spark, tmp_path)
    take = Snapshot.take

    def slow(snapshot: Snapshot, *given: Any) -> int:
        monkeypatch.undo()
        leases_end(landing)
        tables.advance(spark, landing.region, "orders")
        return take(snapshot, *given)

    monkeypatch.setattr(Snapshot, "take", slow)
    with pytest.raises((LeaseLost, Stale)):
        tables.advance(spark, landing.region, "orders")
    assert rows_in(landing) == expected(landing, 1, 2, 3)
    assert rows_in(landing, "orders_dead", "offset") == expected(landing, 1, 2, 3, good=False)


@pytest.mark.parametrize(
    "change", ["OPTIMIZE delta.`{}`", "ALTER TABLE delta.`{}` ADD CONSTRAINT early CHECK (kafka_offset < 1000)"]
)
def test_a_table_that_others_change_meanwhile_is_written_at_the_next_try(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    landing = with_a_third_landed(spark, tmp_path)
    usual = task_files.write

    def meanwhile(*given: Any) -> Any:
        found = usual(*given)
        spark.sql(change.format(path_of(landing)))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(task_files, "write", meanwhile)
        if "CONSTRAINT" in change:
            with pytest.raises(Stale, match="Table orders has changed while its rows were written"):
                tables.advance(spark, landing.region, "orders")
        else:
            tables.advance(spark, landing.region, "orders")
    advance(spark, landing)
    assert rows_in(landing) == expected(landing, 1, 2, 3, 4)
    assert rows_in(landing, "orders_dead", "offset") == expected(landing, 1, 2, 3, 4, good=False)


def test_rows_that_are_not_those_of_the_checkpoint_are_committed_nowhere(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = with_a_third_landed(spark, tmp_path)
    usual = typed.in_tasks

    def losing(typing: Typing) -> Then:
        first = usual(typing)
        return Then(first.columns, lambda batches: (b.slice(1) for b in first.run(batches)))

    with monkeypatch.context() as patch, pytest.raises(DataLoss, match="of checkpoint 3 the shape gives"):
        patch.setattr(typed, "in_tasks", losing)
        tables.advance(spark, landing.region, "orders")
    assert rows_in(landing) == expected(landing, 1, 2)
    tables.advance(spark, landing.region, "orders")
    assert rows_in(landing) == expected(landing, 1, 2, 3)


def test_a_file_of_a_task_that_fails_is_removed_and_large_ones_have_several_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_files, "ROW_GROUP_BYTES", 1000)
    batch = pa.RecordBatch.from_pydict({CHECKPOINT: pa.array([1, 1, 2] * 50, pa.int64())})
    columns = StructType.fromJson(
        {"type": "struct", "fields": [{"name": CHECKPOINT, "type": "long", "nullable": True, "metadata": {}}]}
    )
    output = task_files.Output("t", str(tmp_path), "f", columns, lambda b: {CHECKPOINT: b.column(0)})

    def read(then: Then) -> DataFrame:
        return type("Frame", (), {"collect": lambda _: [r for b in then.run([batch] * 3) for r in b.to_pylist()]})()

    made = task_files.write(read, Then(), [output], {})["t"]
    ((path, size),) = made.files.items()
    assert (dict(made.counts), size) == ({1: 300, 2: 150}, (tmp_path / path).stat().st_size)
    assert pa.parquet.ParquetFile(tmp_path / path).metadata.num_row_groups == 3

    def failing(then: Then) -> DataFrame:
        def batches() -> Any:
            yield batch
            raise OSError("the segment is gone")

        return type("Frame", (), {"collect": lambda _: list(then.run(batches()))})()

    with pytest.raises(OSError, match="gone"):
        task_files.write(failing, Then(), [output], {})
    assert [p.name for p in (tmp_path / "f").iterdir()] == [Path(path).name]
