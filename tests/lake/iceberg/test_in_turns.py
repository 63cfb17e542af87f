"""Spark reads an Iceberg table that we write at a path, and writes to it in turns with us (docs/clients.md C-P19)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from crkafka_core.lake.port import Moved, Snapshot
from tests.lake.iceberg.orders import Orders, by_spark, everywhere, in_spark, seen, stamp

pytestmark = pytest.mark.spark


def look(orders: Orders) -> Snapshot:
    found = orders.log.look()
    assert found is not None
    orders.now = found
    return found


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
            old.commit([orders.file([99])], [], stamp(4))
    found = look(orders)
    assert [(e.stamp, e.changes_rows, e.touched) for e in found.since(before.version) or ()] == [(None, True, (0, 2))]
    assert found.stamp("uid-1", "orders") == stamp(3, version=before.version)
    orders.commit([orders.file([8])], permit=4)
    spark.sql(
        f"CALL {name.split('.')[0]}.system.rewrite_data_files(table => 't', options => map('rewrite-all', 'true'))"
    )
    found = look(orders)
    (compacted,) = found.files()
    assert [entry.changes_rows for entry in found.since(before.version) or ()] == [True, True, False]
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
    found = look(orders)
    assert (found.at, found.version) == (early.at, late.version + 1)
    assert found.stamp("uid-1", "orders") == stamp(2, version=early.version)
    assert [entry.operation for entry in found.since(late.version) or ()] == ["rollback"]
    assert orders.commit([orders.file([3])], permit=4).version == late.version + 1
    assert by_spark(spark, orders) == [1, 3]
