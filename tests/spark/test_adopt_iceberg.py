"""Segments become data files of an Iceberg table: each row once, whatever crashes or comes late, and streams read on (SPEC K6, X4)."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from crkafka_core.lake import writing
from crkafka_core.model.errors import ConfigError, LeaseLost, WentBack
from crkafka_core.plane import tables as plane
from crkafka_core.region.retire import delete_all
from crkafka_core.spark import adopted, frames, location, tables
from crkafka_core.spark.iceberg_log import IcebergLog, IcebergSnapshot
from crkafka_core.spark.schema import with_checkpoint
from crkafka_core.tables.log import Moved, NeedsSpark
from crkafka_core.tables.stamp import OtherRegion, Stamp
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore
from tests.spark.iceberg_lake import IcebergLake
from tests.spark.place import IN_S3, Place
from tests.tables.conftest import STEPS, Crash, dies_at, upto
from tests.tables.test_adopt import Late
from tests.tables.test_any_order import STEPS_EACH, told_of

pytestmark = pytest.mark.spark
HERE = pytest.mark.skipif(IN_S3, reason="it is about files of this machine")

BEFORE_IT_COUNTS = "after the manifests"
"""The snapshot is written, and the table's metadata does not name it."""


@pytest.fixture
def lake(spark: SparkSession, place: Place) -> IcebergLake:
    return IcebergLake(place.folder, spark, place)


def right(lake: IcebergLake) -> None:
    """The table holds what the line to the head says, and the audit agrees."""
    lake.advance()
    assert lake.values() == lake.truth()
    assert lake.look().clean


@HERE
def test_rows_are_those_of_the_checkpoints_in_files_that_are_links_and_a_stream_reads_on(
    lake: IcebergLake, spark: SparkSession, tmp_path: Path
) -> None:
    def streamed() -> int:
        """Rows that a plain stream has by now, and each once."""
        source = spark.readStream.format("iceberg").load(lake.name)
        sink = source.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "state"))
        query = sink.option("path", str(tmp_path / "out")).trigger(availableNow=True).start()
        query.awaitTermination()
        found = spark.read.parquet(str(tmp_path / "out"))
        assert found.count() == found.select("value").distinct().count()
        return found.count()

    lake.land(), lake.land()
    first = lake.advance()
    assert first is not None and (first.checkpoints, first.rows, first.acknowledged) == ((1, 2), 20, 2)
    assert (lake.advance(), streamed()) == (None, 20)
    lake.land(), lake.land(0)
    lake.advance()
    assert streamed() == 30
    there, merged = lake.frame(), frames.checkpoints(spark, lake.region, after=0, upto=4)
    assert [(f.name, f.dataType) for f in there.schema] == [(f.name, f.dataType) for f in with_checkpoint()]
    assert sorted(map(str, there.collect())) == sorted(map(str, merged.collect()))
    assert [(s.operation, json.loads(s.summary["crkafka"])["upto"]) for s in lake.snapshots()] == [
        ("append", 2),
        ("append", 4),
    ]
    files = [p for p in lake.path.rglob("*.parquet") if "metadata" not in p.parts]
    assert len(files) == 6 and all(p.stat().st_nlink == 2 for p in files)
    assert there.where("partition = 1 AND offset = 7").count() == 1
    numbered = tables.read_table(spark, lake.region, "bronze").groupBy("crkafka_checkpoint").count().collect()
    assert {row[0]: row[1] for row in numbered} == {1: 10, 2: 10, 3: 10}
    lake.landing.retire(1, 2)
    delete_all(lake.landing.storage, lake.landing.uid)
    assert lake.rows() == upto(15)


@pytest.mark.parametrize(
    ("step", "there"),
    [*((step, False) for step in STEPS), (BEFORE_IT_COUNTS, True), ("after the commit", True)],
    ids=lambda value: {True: "a table", False: "a new table"}.get(value, value),
)
def test_a_crash_and_a_retry_leave_each_row_once(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch, step: str, there: bool
) -> None:
    if there:
        lake.land()
        lake.advance()
    lake.land(), lake.land()
    with monkeypatch.context() as patch, pytest.raises(Crash):
        if step == BEFORE_IT_COUNTS:
            patch.setattr(writing, "give_up", lambda *_: None)
            patch.setattr(Stamp, "facts", _dead)
        else:
            dies_at(step, IcebergLake)(patch)
        lake.advance()
    lake.writer_dies()
    lake.land()
    lake.advance(limit=1)
    right(lake)


def _dead(*_: Any, **__: Any) -> None:
    raise Crash


@pytest.mark.parametrize("step", ["snapshot", "create", "commit"])
def test_a_late_first_write_is_refused_by_the_table_that_the_fence_made(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A table that is not there yet; the writer sleeps before its first look, before making it, before its commit."""
    lake.land(), lake.land()
    late = Late(monkeypatch, IcebergSnapshot if step == "commit" else IcebergLog, step, lake.advance)
    lake.writer_dies()
    lake.landing.rewind(1)
    lake.fence()
    assert isinstance(late.let_go(), LeaseLost)
    assert lake.rows() == []
    right(lake)


@pytest.mark.parametrize("step", ["commit", "facts"])
def test_a_late_commit_is_refused_by_the_table_alone(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Without the lease and without SQL; also when its manifests were written before the other's."""
    lake.land()
    lake.advance()
    lake.land()
    monkeypatch.setattr(writing.Hold, "check", lambda _: None)
    late = Late(monkeypatch, Stamp if step == "facts" else IcebergSnapshot, step, lake.advance)
    lake.writer_dies()
    lake.advance()
    error = late.let_go()
    assert isinstance(error, LeaseLost) and "did not take commit 2" in str(error)
    right(lake)


def test_of_two_that_make_one_table_at_once_one_is_refused(lake: IcebergLake) -> None:
    start, ends = threading.Barrier(2), list[str]()
    logs = [lake.logs(lake.region, lake.table()) for _ in range(2)]

    def make(number: int) -> None:
        start.wait()
        try:
            logs[number].create(Stamp("u", "bronze", number, "t"))
            ends.append("made")
        except Moved:
            ends.append("refused")

    threads = [threading.Thread(target=make, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ends) == ["made", "refused"]


@pytest.mark.parametrize("compacted", [False, True], ids=["", "compacted"])
def test_superseded_rows_leave_exactly_and_a_commit_that_nobody_heard_of_with_them(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch, compacted: bool
) -> None:
    for _ in range(3):
        lake.land()
    lake.advance()
    if compacted:
        lake.compact()
    lake.land()
    with monkeypatch.context() as patch, pytest.raises(Crash):
        dies_at("after the commit", IcebergLake)(patch)
        lake.advance()
    lake.writer_dies()
    lake.landing.rewind(1)
    lake.fence()
    assert lake.rows() == upto(5)
    lake.land(7)
    right(lake)


def test_what_a_user_does_to_the_table_is_harmless_or_seen_and_mended(lake: IcebergLake, spark: SparkSession) -> None:
    for _ in range(3):
        lake.land()
        lake.advance()
    lake.compact(), lake.vacuum()
    spark.sql(f"ALTER TABLE {lake.name} ADD COLUMN note STRING")
    lake.land()
    right(lake)
    spark.sql(f"ALTER TABLE {lake.name} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    spark.sql(f"DELETE FROM {lake.name} WHERE partition = 0 AND offset = 17")
    assert (lake.look().miscounted, lake.look().foreign) == ((4,), 1)
    lake.mend()
    right(lake)
    lake.restore(0)
    assert not lake.look().clean
    lake.mend()
    right(lake)


def test_another_table_and_a_control_plane_that_went_back_are_seen_from_the_table_alone(
    lake: IcebergLake, spark: SparkSession, place: Place
) -> None:
    lake.land()
    lake.advance()
    other = IcebergLake(place.folder, spark, place)
    other.land()
    with pytest.raises(OtherRegion, match=lake.landing.uid):
        other.advance()
    backup = lake.backup()
    lake.land()
    lake.advance()
    lake.compact(), lake.vacuum()
    lake.restore_backup(backup)
    lake.land()
    with pytest.raises(WentBack, match="has commit 2"):
        lake.advance()
    lake.start_restored()
    lake.fence()
    right(lake)


@HERE
def test_a_table_of_a_catalog_has_its_files_where_the_catalog_says(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.catalog.shop.type", "hadoop")
    spark.conf.set("spark.sql.catalog.shop.warehouse", str(tmp_path / "shop"))
    spark.conf.set("spark.sql.catalog.shop", "org.apache.iceberg.spark.SparkCatalog")
    declared = {"name": "bronze", "format": "iceberg", "path": "shop.raw.bronze"}
    landing = Landing(MemoryStore(), tmp_path, partitions=2, tables=[declared])
    landing.land(5), landing.land(5)
    with pytest.raises(NeedsSpark, match="Java process"):
        tables.advance(None, landing.region, "bronze")
    tables.advance(spark, landing.region, "bronze", limit=1)
    tables.advance(spark, landing.region, "bronze")
    assert spark.table("shop.raw.bronze").count() == 20
    assert len(list((tmp_path / "shop" / "raw" / "bronze" / landing.uid).rglob("*.parquet"))) == 4
    landing.rewind(1)
    tables.fence(spark, landing.region, "bronze")
    assert spark.table("shop.raw.bronze").count() == 10


def test_K5_a_connect_session_that_writes_first_writes_row_by_row(
    lake: IcebergLake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.land()
    with monkeypatch.context() as patch:
        patch.setattr(location, "is_connect", lambda _: True)
        assert not adopted.adopts(lake.region, "bronze", spark)
    assert lake.table().layout == ""
    tables.advance(spark, lake.region, "bronze")
    assert (lake.frame().columns[-1], lake.rows()) == ("crkafka_checkpoint", upto(5))


def test_K5_a_connect_session_does_not_write_into_adopted_files(
    lake: IcebergLake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.land()
    lake.advance()
    lake.land()
    monkeypatch.setattr(location, "is_connect", lambda _: True)
    with pytest.raises(ConfigError, match="not reached through Spark Connect"):
        tables.advance(spark, lake.region, "bronze")
    assert lake.table().layout == plane.FILES


LONG = [pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("seed", "steps"), [(4, 12), *(pytest.param(seed, STEPS_EACH, marks=LONG) for seed in range(4))]
)
def test_in_any_order_the_table_ends_with_what_the_line_says(
    spark: SparkSession, place: Place, seed: int, steps: int
) -> None:
    failed = told_of(IcebergLake(place.folder, spark, place, members=1 + seed % 2), seed, steps)
    assert not failed, failed
