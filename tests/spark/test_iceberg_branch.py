"""Rows that Spark writes into Iceberg come by one step of `main`, from a branch, or not at all (SPEC K6)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from crkafka_core.control import Tx
from crkafka_core.lake import writing
from crkafka_core.model.errors import ConfigError, LeaseLost
from crkafka_core.model.rows import Lease
from crkafka_core.spark import iceberg_branch, iceberg_catalog, tables
from crkafka_core.spark.iceberg_branch import Branch
from crkafka_core.spark.iceberg_table import IcebergTable
from crkafka_core.spark.table_format import Where
from crkafka_core.tables.stamp import Stamp
from tests.spark.place import Place

pytestmark = pytest.mark.spark
SHAPE = """
def some(rows):
    return rows.selectExpr("crkafka_checkpoint", "partition", "offset")
"""


class Crash(BaseException):
    """The process dies here."""


class Shop:
    """A region with one such table; a checkpoint has four offsets of each of two partitions."""

    def __init__(self, spark: SparkSession, place: Place) -> None:
        self.spark, self.path = spark, place.path("some")
        self.landing = place.landing(
            [{"name": "some", "format": "iceberg", "path": self.path, "shape": "branched:some"}]
        )
        self.name = iceberg_catalog.named(spark, self.path)

    def advance(self) -> None:
        tables.advance(self.spark, self.landing.region, "some")

    def landed(self, times: int = 1) -> None:
        for _ in range(times):
            self.landing.land(4)
            self.advance()

    def rows(self) -> list[tuple[int, int, int]]:
        return sorted(map(tuple, self.spark.table(self.name).collect()))

    def right(self, *checkpoints: int) -> bool:
        """Whether the table has exactly these, without a branch left."""
        wanted = sorted((c, p, o) for c in checkpoints for p in (0, 1) for o in range(4 * c - 4, 4 * c))
        return (self.rows(), self.branches()) == (wanted, ["main"]) and self.look().clean

    def look(self) -> Any:
        return tables.look(self.spark, self.landing.region, "some")

    def branches(self) -> list[str]:
        return sorted(row[0] for row in self.spark.table(f"{self.name}.refs").select("name").collect())

    def operations(self) -> list[str]:
        found = self.spark.table(f"{self.name}.snapshots").orderBy("committed_at")
        return [row[0] for row in found.select("operation").collect()]

    def writer_dies(self) -> None:
        def end(tx: Tx) -> None:
            for lease in tx.select(Lease):
                tx.delete(Lease, ("kind", "=", lease.kind), ("slot", "=", lease.slot))

        self.landing.region.plane.do(end)


@pytest.fixture
def shop(spark: SparkSession, place: Place, program: Callable[[str, str], Any]) -> Shop:
    program("branched", SHAPE)
    return Shop(spark, place)


def before_publish(monkeypatch: pytest.MonkeyPatch, first: Callable[[Branch], None]) -> None:
    """Once, before `main` is moved."""
    publish = Branch.publish

    def later(branch: Branch) -> None:
        monkeypatch.setattr(Branch, "publish", publish)
        first(branch)
        publish(branch)

    monkeypatch.setattr(Branch, "publish", later)


def before_write(monkeypatch: pytest.MonkeyPatch, first: Callable[[Branch], None]) -> None:
    """Once, before its rows are written."""
    write = IcebergTable._write

    def later(table: IcebergTable, frame: DataFrame, where: Where, stamp: Stamp, branch: Branch) -> None:
        monkeypatch.setattr(IcebergTable, "_write", write)
        first(branch)
        write(table, frame, where, stamp, branch)

    monkeypatch.setattr(IcebergTable, "_write", later)


def test_what_a_crash_has_staged_counts_for_nothing_and_the_next_writer_drops_its_branch(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.landed()
    shop.landing.land(4)

    def dead(*_: Any) -> None:
        raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(writing, "give_up", lambda *_: None)
        patch.setattr(Branch, "publish", dead)
        patch.setattr(Branch, "drop", lambda _: None)
        shop.advance()
    assert len(shop.branches()) == 2 and {c for c, _, _ in shop.rows()} == {1}
    assert shop.look().clean
    shop.writer_dies()
    shop.advance()
    assert shop.right(1, 2)


@pytest.mark.parametrize("step", ["before its rows are written", "before main is moved", "the write makes it anew"])
def test_a_late_writer_whose_branch_was_dropped_changes_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A write that is under way when its branch is dropped makes it anew, at `main` as it is by then."""
    shop.landed()
    shop.landing.land(4)

    def meanwhile(branch: Branch) -> None:
        there = shop.spark.table(branch.name)
        rows = shop.spark.createDataFrame(there.collect(), there.schema)
        shop.writer_dies()
        shop.landed()
        assert shop.branches() == ["main"]
        if step == "the write makes it anew":
            head = shop.spark.table(f"{shop.name}.refs").collect()[0]["snapshot_id"]
            branch._alter(f"CREATE BRANCH `{branch._name}` AS OF VERSION {head}")
            rows.writeTo(branch.name).option("snapshot-property.crkafka", branch._stamp.to_json()).append()

    if step == "before its rows are written":
        before_write(monkeypatch, meanwhile)
    else:
        before_publish(monkeypatch, meanwhile)
    with pytest.raises(LeaseLost):
        shop.advance()
    assert shop.right(1, 2, 3)


def test_a_commit_that_finds_other_metadata_is_tried_again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.landed(4)
    call, tries = iceberg_catalog.call, []

    def first_fails(*given: Any, **named: Any) -> Any:
        if not tries:
            tries.append(1)
            raise RuntimeError(
                "org.apache.iceberg.exceptions.CommitFailedException: Table metadata refresh is required"
            )
        return call(*given, **named)

    monkeypatch.setattr(iceberg_branch.iceberg_catalog, "call", first_fails)
    shop.landed()
    assert shop.right(1, 2, 3, 4, 5) and tries


def test_where_nothing_leaves_it_is_an_append_and_a_stream_reads_on(shop: Shop, tmp_path: Path) -> None:
    def streamed() -> int:
        """Rows that a plain stream has by now."""
        source = shop.spark.readStream.format("iceberg").load(shop.name)
        sink = source.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "state"))
        sink.option("path", str(tmp_path / "out")).trigger(availableNow=True).start().awaitTermination()
        return shop.spark.read.parquet(str(tmp_path / "out")).count()

    shop.landed()
    assert streamed() == 8
    shop.landed(2)
    shop.landing.land(4)
    shop.landing.rewind(3)  # a checkpoint that the table has not got: nothing leaves
    tables.fence_all(shop.spark, shop.landing.region)
    assert streamed() == 24
    assert set(shop.operations()) == {"append"}
    tables.rewrite(shop.spark, shop.landing.region, "some", [2])
    assert shop.operations()[-1] == "overwrite"
    assert shop.right(1, 2, 3)


def test_a_session_without_icebergs_extensions_is_told_so(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.landed()
    monkeypatch.setattr(Branch, "_alter", lambda branch, _: _alter(branch, "FORK"))
    shop.landing.land(4)
    with pytest.raises(ConfigError, match="has none"):
        shop.advance()


_alter = Branch._alter
