"""Spark reads what we write without it, and writes in turns with us: Iceberg at a path, marks, vectors (docs/clients.md C-P19 to C-P21)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from crkafka_core.lake import vectors
from crkafka_core.lake.partitions import field_name, parted
from crkafka_core.lake.port import CannotCommit, Change, Moved, NewFile, Part, Snapshot
from tests.lake.iceberg.orders import Orders, by_spark, everywhere, in_spark, seen, stamp, table_of
from tests.lake.iceberg.test_marks import mark, marked
from tests.lake.test_vectors import KEPT, made


def look(orders: Orders) -> Snapshot:
    snapshot = orders.log.look()
    assert snapshot is not None
    orders.now = snapshot
    return snapshot


def test_spark_sees_append_overwrite_replace_and_expiry(tmp_path: Path, spark: SparkSession) -> None:
    orders = Orders(tmp_path / "t")
    assert by_spark(spark, orders) == []
    first, second = orders.file(range(3)), orders.file(range(3, 6))
    orders.commit([first, second])
    orders.commit([orders.file([30])], orders.named(first))
    both = orders.named(*orders.now.files())
    orders.commit([orders.file([3, 4, 5, 30])], both, changes_rows=False)
    assert by_spark(spark, orders) == [3, 4, 5, 30]
    name = in_spark(spark, orders)
    operations = [
        row[0] for row in spark.sql(f"SELECT operation FROM {name}.snapshots ORDER BY committed_at").collect()
    ]
    assert operations == ["append", "append", "overwrite", "replace"]
    assert spark.sql(f"SELECT count(*), min(offset), max(offset) FROM {name}").collect()[0][:] == (4, 3, 30)


def test_commits_go_on_behind_those_of_spark(tmp_path: Path, spark: SparkSession) -> None:
    orders = Orders(tmp_path / "t")
    name, stale = in_spark(spark, orders), orders.now
    orders.commit([orders.file(range(n, n + 2), n) for n in range(0, 8, 2)], permit=3)
    before = orders.now
    spark.sql(f"DELETE FROM {name} WHERE offset IN (0, 3)")
    for old in (before, stale):
        with pytest.raises(Moved):
            old.commit(stamp(4), Change([orders.file([99])]))
    snapshot = look(orders)
    assert [(e.stamp, e.changes_rows, e.touched) for e in snapshot.since(before.version) or ()] == [
        (None, True, (0, 2))
    ]
    assert snapshot.stamp("uid-1", "orders") == stamp(3, version=before.version)
    orders.commit([orders.file([8])], permit=4)
    spark.sql(
        f"CALL {name.split('.')[0]}.system.rewrite_data_files(table => 't', options => map('rewrite-all', 'true'))"
    )
    snapshot = look(orders)
    (compacted,) = snapshot.files()
    assert [entry.changes_rows for entry in snapshot.since(before.version) or ()] == [True, True, False]
    assert compacted.numbers == (0, 6)
    orders.commit([orders.file([7])], [compacted])
    assert by_spark(spark, orders) == [7]
    assert seen(orders) == everywhere(7)
    spark.sql(f"INSERT INTO {name} VALUES ('t', 100, current_timestamp(), 1)")
    assert seen(orders) == everywhere(7, 100)


def test_a_table_that_a_user_takes_back_is_seen(tmp_path: Path, spark: SparkSession) -> None:
    orders = Orders(tmp_path / "t")
    early = orders.commit([orders.file([1])], permit=2)
    late = orders.commit([orders.file([2])], permit=3)
    spark.sql(f"CALL {in_spark(spark, orders).split('.')[0]}.system.rollback_to_snapshot('t', {early.at})")
    snapshot = look(orders)
    assert (snapshot.at, snapshot.version) == (early.at, late.version + 1)
    assert snapshot.stamp("uid-1", "orders") == stamp(2, version=early.version)
    assert [(entry.stamp, entry.changes_rows) for entry in snapshot.since(late.version) or ()] == [(None, True)]
    assert orders.commit([orders.file([3])], permit=4).version == late.version + 1
    assert by_spark(spark, orders) == [1, 3]


def test_partitions_are_read_and_pruned_and_a_changed_spec_goes_on(tmp_path: Path, spark: SparkSession) -> None:
    parts = [Part("timestamp", "day"), Part("topic"), Part("offset", "bucket", 4), Part("topic", "truncate", 1)]
    orders = Orders(tmp_path / "t", *parts)
    assert list(orders.now.parts) == parts
    orders.commit([each for day in range(3) for each in pieces(orders, parts, range(day * 86_400, day * 86_400 + 20))])
    name = in_spark(spark, orders)
    one = spark.sql(f"SELECT offset FROM {name} WHERE offset = 86405 AND timestamp < timestamp'1970-01-03'")
    assert [row[0] for row in one.collect()] == [86405]
    planned = StaticTable.from_metadata(str(orders.metadata)).scan(EqualTo("offset", 86405)).plan_files()
    assert [task.file.file_path for task in planned] == [str(file) for file in holding(orders, 86405)], "by its bucket"
    assert len(seen(orders)["duckdb"]) == len(seen(orders)["pyiceberg"]) == 60
    spark.sql(f"ALTER TABLE {name} DROP PARTITION FIELD bucket(4, offset)")
    spark.sql(f"ALTER TABLE {name} ADD COLUMN note STRING")
    snapshot = look(orders)
    assert list(snapshot.parts) == [part for part in parts if part.transform != "bucket"]
    old = [
        file for file in snapshot.files() if file.may_have(1, 1) and file.values["timestamp_day"] == date(1970, 1, 1)
    ]
    new = table_of([7]).append_column("note", pa.array(["x"]))
    orders.commit([orders.file(new, timestamp_day=date(1970, 1, 1), topic="t", topic_trunc="t")], old)
    assert by_spark(spark, orders, "note") == ["x", *[None] * 40]
    assert seen(orders)["pyiceberg"] == [7, *range(86_400, 86_420), *range(172_800, 172_820)]
    with pytest.raises(CannotCommit, match="no value for the partition field topic"):
        orders.commit([orders.file([9], timestamp_day=1)])


def pieces(orders: Orders, parts: Sequence[Part], rows: Iterable[int]) -> list[NewFile]:
    (batch,) = table_of(rows).to_batches()
    names = [field_name(part) for part in parts]
    split = parted(batch, parts)
    return [orders.file(pa.Table.from_batches([piece]), **dict(zip(names, key, strict=True))) for key, piece in split]


def holding(orders: Orders, offset: int) -> list[Path]:
    return [
        orders.folder / file.path
        for file in orders.now.files()
        if offset in pq.read_table(orders.folder / file.path).column("offset").to_pylist()
    ]


def test_a_table_of_format_version_3_takes_commits_and_keeps_vectors_of_spark(
    tmp_path: Path, spark: SparkSession
) -> None:
    orders = Orders(tmp_path / "t")
    name = in_spark(spark, orders)
    first = orders.file(range(5))
    orders.commit([first])
    properties = "'format-version' = '3', 'write.delete.mode' = 'merge-on-read'"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({properties})")
    look(orders)
    second = orders.file(range(5, 10))
    orders.commit([second])
    spark.sql(f"DELETE FROM {name} WHERE offset IN (1, 7)")
    look(orders)
    assert {file.path: [*(file.marks or ())] for file in orders.now.files()} == {
        first.path: [1],
        second.path: [2],
    }
    orders.commit([orders.file([20])], orders.named(first))
    assert by_spark(spark, orders) == [5, 6, 8, 9, 20]
    assert seen(orders, native=False) == everywhere(5, 6, 8, 9, 20)
    ids = [row[0] for row in spark.sql(f"SELECT _row_id FROM {name}").collect()]
    assert len({*ids}) == 5 and None not in ids
    with pytest.raises(CannotCommit, match="version 3"):
        orders.now.commit(stamp(9), Change(marks={file: [0] for file in orders.now.files()}))


def test_spark_sees_marks_and_goes_on_behind_them(tmp_path: Path, spark: SparkSession) -> None:
    orders = Orders(tmp_path / "t", Part("topic"))
    first = orders.file(range(6), topic="t")
    orders.commit([first])
    mark(orders, {first.path: [0, 5]}, [orders.file([10], topic="t")])
    name = in_spark(spark, orders)
    assert spark.sql(f"SELECT count(*), min(offset) FROM {name} WHERE offset < 4").collect()[0][:] == (3, 1)
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    spark.sql(f"DELETE FROM {name} WHERE offset = 2")
    orders.now = orders.log.look() or orders.now
    assert sorted(marked(orders)[first.path]) == [0, 2, 5], "those of Spark too"
    mark(orders, {first.path: [0, 2, 3, 5]})
    assert by_spark(spark, orders) == [1, 4, 10]
    assert seen(orders) == everywhere(1, 4, 10)
    spark.sql(
        f"CALL {name.split('.')[0]}.system.rewrite_data_files(table => 't', options => map('rewrite-all', 'true'))"
    )
    orders.now = orders.log.look() or orders.now
    assert [*marked(orders).values()] == [[]]
    assert by_spark(spark, orders) == [1, 4, 10]


def test_marks_that_spark_wrote_for_several_files_are_kept(tmp_path: Path, spark: SparkSession) -> None:
    granularity = {"write.delete.mode": "merge-on-read", "write.delete.granularity": "partition"}
    orders = Orders(tmp_path / "t", properties=granularity)
    first, second = orders.file(range(5)), orders.file(range(5, 10))
    orders.commit([first, second])
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")  # one task writes the marks of both
    spark.sql(f"DELETE FROM {in_spark(spark, orders)} WHERE offset IN (1, 7)")
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    orders.now = orders.log.look() or orders.now
    assert marked(orders) == {first.path: [1], second.path: [2]}
    mark(orders, {first.path: [1, 4]})
    assert by_spark(spark, orders) == [0, 2, 3, 5, 6, 8, 9]
    rows_seen = seen(orders, native=False)  # Polars by itself refuses a file of deletes for several data files
    assert rows_seen == everywhere(0, 2, 3, 5, 6, 8, 9)
    with pytest.raises(CannotCommit, match="others"):
        mark(orders, {second.path: [0]})
    orders.commit(remove=orders.named(first))
    assert seen(orders, native=False) == everywhere(5, 6, 8, 9)


def test_spark_reads_them_and_goes_on_behind_them(tmp_path: Path, spark: SparkSession) -> None:
    table = made(tmp_path / "t")
    assert [row[0] for row in spark.read.format("delta").load(str(table)).orderBy("n").collect()] == KEPT
    spark.sql(f"DELETE FROM delta.`{table}` WHERE n IN (1, 20)")
    last = max((table / "_delta_log").glob("*.json"))
    added = [json.loads(line)["add"] for line in last.read_text().splitlines() if "add" in json.loads(line)]
    read = [vectors.delta_vector(add["deletionVector"], lambda name: (table / name).read_bytes()) for add in added]
    assert sorted(vector.tolist() for vector in read) == [[0, 1], [0, 1, 3, 4, 9]]
