"""`format("crkafka")` in batch and as a stream (SPEC K4)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from checkpoints_db import initialise, open_store
from crkafka_core.plane import retire
from crkafka_core.spark import source
from crkafka_core.spark.schema import RECORDS
from crkafka_core.testing.landing import Landing

pytestmark = pytest.mark.spark


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    url = f"sqlite:///{tmp_path}/crkafka.db"
    initialise(url)
    return Landing(open_store(url), tmp_path, partitions=2, control_plane=url)


def options(landing: Landing, **more: object) -> dict[str, str]:
    return {"region": "orders", "controlPlane": landing.config.control_plane, **{k: str(v) for k, v in more.items()}}


def test_batch_reads_a_range(spark: SparkSession, landing: Landing) -> None:
    source.register(spark)
    for _ in range(4):
        landing.land(10)
    found = spark.read.format("crkafka").options(**options(landing, after=1, upto=3, checkpoint="true")).load()
    assert found.groupBy("crkafka_checkpoint").count().orderBy("crkafka_checkpoint").collect() == [(2, 20), (3, 20)]
    assert found.drop("crkafka_checkpoint").schema == RECORDS
    everything = spark.read.format("crkafka").options(**options(landing)).load()
    rows = everything.orderBy("partition", "offset").collect()
    assert [(r.partition, r.offset, bytes(r.value)) for r in rows] == [
        (p, o, f"orders:{p}:{o}".encode()) for p in range(2) for o in range(40)
    ]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"upto": 9}, "its last merge is 1"), ({"affter": 1}, "no option 'affter'"), ({"after": "x"}, "whole number")],
)
def test_what_cannot_be_read_is_said(
    spark: SparkSession, landing: Landing, wrong: dict[str, object], said: str
) -> None:
    source.register(spark)
    landing.land(10)
    with pytest.raises(Exception, match=said):
        spark.read.format("crkafka").options(**options(landing, **wrong)).load().count()


class Stream:
    """A query that writes files, run once for all there is."""

    def __init__(self, spark: SparkSession, landing: Landing, folder: Path, **more: object) -> None:
        self.spark, self.landing, self.folder, self.more = spark, landing, folder, more

    def run(self) -> list[int]:
        """Sizes of the batches, in checkpoints."""
        rows = (
            self.spark.readStream.format("crkafka")
            .options(**options(self.landing, checkpoint="true", name="s", **self.more))
            .load()
        )
        sizes: list[int] = []

        def batch(frame, number):  # type: ignore[no-untyped-def]
            frame.write.mode("append").parquet(str(self.folder / "out"))
            sizes.append(frame.select("crkafka_checkpoint").distinct().count())

        query = rows.writeStream.foreachBatch(batch).option("checkpointLocation", str(self.folder / "state")).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return [s for s in sizes if s]

    def landed(self) -> list[tuple[int, int]]:
        rows = self.spark.read.parquet(str(self.folder / "out")).groupBy("crkafka_checkpoint").count()
        return sorted(tuple(r) for r in rows.collect())  # type: ignore[misc]


def test_a_stream_goes_on_where_it_was_in_bounded_steps(spark: SparkSession, landing: Landing, tmp_path: Path) -> None:
    source.register(spark)
    stream = Stream(spark, landing, tmp_path, maxCheckpointsPerTrigger=2)
    for _ in range(3):
        landing.land(10)
    assert stream.run() == [2, 1]
    for _ in range(5):
        landing.land(10)
    assert stream.run() == [2, 2, 1]
    assert stream.landed() == [(c, 20) for c in range(1, 9)]


def test_a_stream_holds_back_what_it_has_not_read(spark: SparkSession, landing: Landing, tmp_path: Path) -> None:
    source.register(spark)
    for _ in range(3):
        landing.land(10)
    Stream(spark, landing, tmp_path, after=1).run()
    plane = landing.region.plane
    for _ in range(3):
        landing.land(10)
    plane.do(lambda tx: tx.set_region(limits_json='{"retain": 1}'))
    assert plane.read(retire.plan).retire == (1, 2, 3)


def test_a_stream_that_was_left_behind_by_a_rewind_fails_and_names_the_fork(
    spark: SparkSession, landing: Landing, tmp_path: Path
) -> None:
    source.register(spark)
    stream = Stream(spark, landing, tmp_path)
    for _ in range(3):
        landing.land(10)
    stream.run()
    landing.rewind(2)
    landing.land(10)
    with pytest.raises(Exception, match=r"stands at checkpoint 3 .* the region went back to 2"):
        stream.run()
