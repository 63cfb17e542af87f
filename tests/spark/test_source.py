"""`format("crkafka")` in batch and as a stream (SPEC K4)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from checkpoints_db import initialise, open_store
from crkafka_core.model.errors import ConfigError, DataLoss, NoSuchCheckpoint
from crkafka_core.model.rows import Lease, Segment
from crkafka_core.plane import leases, reading, retire
from crkafka_core.spark import source
from crkafka_core.spark.frames import checkpoints
from crkafka_core.spark.schema import RECORDS
from tests.rigs.landing import Landing

pytestmark = pytest.mark.spark


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    url = f"sqlite:///{tmp_path}/crkafka.db"
    initialise(url)
    return Landing(open_store(url), tmp_path, partitions=2, control_plane=url)


def options(landing: Landing, **more: object) -> dict[str, str]:
    required = {"region": "orders", "controlPlane": landing.config.control_plane, "storage": landing.config.storage}
    return {**required, **{k: str(v) for k, v in more.items()}}


def opened(landing: Landing, **more: object) -> source.BatchReader:
    """As Spark opens it, without Spark."""
    made = source.CrkafkaSource(options(landing, **more))
    return made.reader(made.schema())


def rows(reader: source.BatchReader) -> list[tuple[object, ...]]:
    read = (reader.read(share) for share in reader.partitions())
    return [tuple(row.values()) for batches in read for batch in batches for row in batch.to_pylist()]


def test_batch_reads_a_range(spark: SparkSession, landing: Landing) -> None:
    source.register(spark)
    landing.land(10, times=4)
    loaded = spark.read.format("crkafka").options(**options(landing, after=1, upto=3)).load()
    assert loaded.drop("crkafka_checkpoint").schema == RECORDS
    rows = loaded.orderBy("partition", "offset").collect()
    assert [(r.crkafka_checkpoint, r.partition, r.offset, bytes(r.value)) for r in rows] == [
        (1 + o // 10, p, o, f"orders:{p}:{o}".encode()) for p in range(2) for o in range(10, 30)
    ]
    with pytest.raises(NoSuchCheckpoint, match="its last merge is 4"):
        opened(landing, upto=9).partitions()


def test_T1_a_batch_read_that_was_refused_holds_nothing_back(landing: Landing) -> None:
    landing.land(10, times=3)
    landing.retire(1)
    with pytest.raises(ConfigError, match=r"is archived"):
        opened(landing).partitions()
    assert landing.region.plane.read(lambda reader, _: leases.held(reader, reading.KIND)) == []


def test_it_is_found_without_being_registered(spark: SparkSession, landing: Landing) -> None:
    """Runs before anything is registered in a session of its own: what is found belongs to all sessions."""
    landing.land(10)
    assert spark.newSession().read.format("crkafka").options(**options(landing)).load().count() == 20


def test_it_has_the_options_of_checkpoints(landing: Landing) -> None:
    landing.land(10, times=3)

    def read(**given: object) -> list[tuple[object, ...]]:
        return sorted(rows(opened(landing, columns="partition,offset", **given)))

    assert read(ids="1,3", partitions="1") == [(1, o) for o in [*range(10), *range(20, 30)]]
    assert read(fromOffset=8, toOffset=12, topics="orders, others") == [(p, o) for p in (0, 1) for o in range(8, 12)]
    assert read(fromTime="2023-11-14T22:13:20.028Z", partitions="0") == [(0, 28), (0, 29)]
    assert read(topics="others") == []
    given = source.CrkafkaSource(options(landing))
    assert len(rows(given.reader(StructType([RECORDS["offset"], RECORDS["value"]])))) == 60
    with pytest.raises(ConfigError, match="gives offset as bigint, not as string"):
        given.reader(StructType([StructField("offset", StringType())]))


def test_queries_on_one_frame_are_no_affair_of_each_others(spark: SparkSession, landing: Landing) -> None:
    """PySpark plans the second with the filters of the first, if a source takes filters."""
    source.register(spark)
    landing.land(10, times=2)
    pushdown = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(pushdown, "true")
    try:
        rows = spark.read.format("crkafka").options(**options(landing)).load()
        assert rows.where("crkafka_checkpoint = 2 AND partition = 0 AND offset > 17").count() == 2
        assert rows.where("crkafka_checkpoint = 1 OR offset > 18").count() == 22
        assert rows.count() == 40
    finally:
        spark.conf.unset(pushdown)


@pytest.mark.parametrize(
    ("wrong", "refusal"),
    [
        ({"affter": 1}, "no option 'affter'"),
        ({"after": "x"}, "whole number"),
        ({"partitions": "0;1"}, "commas between"),
        ({"ids": "1", "after": 0}, "either ids"),
        ({"columns": "valeu"}, "no column 'valeu'"),
        ({"fromTime": "noon"}, "ISO 8601"),
        ({"checkpoint": "true"}, "has no option 'checkpoint'"),
        ({"partitions": "²"}, "must be whole numbers"),
    ],
)
def test_what_cannot_be_read_is_said(landing: Landing, wrong: dict[str, object], refusal: str) -> None:
    with pytest.raises(ConfigError, match=refusal):
        opened(landing, **wrong)


class Stream:
    """A query that writes files, run once for all there is."""

    def __init__(self, spark: SparkSession, landing: Landing, folder: Path, **more: object) -> None:
        self.spark, self.landing, self.folder, self.more = spark, landing, folder, more

    def run(self, *, available_now: bool = False) -> list[int]:
        """Sizes of the batches, in checkpoints."""
        rows = self.spark.readStream.format("crkafka").options(**options(self.landing, name="s", **self.more)).load()
        sizes: list[int] = []

        def batch(frame, number):  # type: ignore[no-untyped-def]
            frame.write.mode("append").parquet(str(self.folder / "out"))
            sizes.append(frame.select("crkafka_checkpoint").distinct().count())

        writer = rows.writeStream.foreachBatch(batch).option("checkpointLocation", str(self.folder / "state"))
        query = (writer.trigger(availableNow=True) if available_now else writer).start()
        try:
            query.awaitTermination() if available_now else query.processAllAvailable()
        finally:
            query.stop()
        return [s for s in sizes if s]

    def landed(self) -> list[tuple[int, int]]:
        rows = self.spark.read.parquet(str(self.folder / "out")).groupBy("crkafka_checkpoint").count()
        return sorted(tuple(r) for r in rows.collect())  # type: ignore[misc]


def test_a_stream_goes_on_where_it_was_in_bounded_steps(spark: SparkSession, landing: Landing, tmp_path: Path) -> None:
    source.register(spark)
    stream = Stream(spark, landing, tmp_path, maxCheckpointsPerTrigger=2)
    landing.land(10, times=3)
    assert stream.run() == [2, 1]
    landing.land(10, times=2)
    assert stream.run() == [2]
    assert stream.landed() == [(c, 20) for c in range(1, 6)]


@pytest.mark.soak
def test_a_run_of_available_now_catches_up_wholly(spark: SparkSession, landing: Landing, tmp_path: Path) -> None:
    source.register(spark)
    stream = Stream(spark, landing, tmp_path, after=1)
    landing.land(1, times=120)
    assert stream.run(available_now=True) == [119]
    assert stream.run(available_now=True) == []
    assert stream.landed() == [(c, 2) for c in range(2, 121)]


def streamed(landing: Landing, **more: object) -> source.StreamReader:
    """As Spark opens it, without Spark."""
    made = source.CrkafkaSource(options(landing, **more))
    return made.streamReader(made.schema())


def test_a_stream_may_begin_late_selects_and_holds_back_what_it_has_not_read(landing: Landing) -> None:
    landing.land(5, times=6)
    stream = streamed(landing, after=3, maxCheckpointsPerTrigger=2, partitions="1", fromOffset=18, columns="offset")
    before, first = stream.initialOffset(), stream.latestOffset()
    assert (before, first) == ({"checkpoint": 3}, {"checkpoint": 5})
    read = [b for share in stream.partitions(before, first) for b in stream.read(share)]
    assert sorted(o for batch in read for o in batch["offset"].to_pylist()) == list(range(18, 25))
    assert stream.latestOffset() == {"checkpoint": 6}
    stream.commit({"checkpoint": 4})
    plane = landing.region.plane
    plane.do(lambda tx: tx.set_region(limits_json='{"retain": 1}'))
    assert plane.read(retire.plan).retire == (1, 2, 3, 4)


def test_a_stream_that_was_left_behind_by_a_rewind_fails_and_names_the_fork(landing: Landing) -> None:
    landing.land(10, times=3)
    landing.rewind(2)
    landing.land(10)
    with pytest.raises(NoSuchCheckpoint, match=r"stands at checkpoint 3 .* the region went back to 2"):
        streamed(landing, after=3).latestOffset()
    assert streamed(landing, after=2).latestOffset() == {"checkpoint": 4}, "as the message says"


def test_a_stream_that_the_history_no_longer_reaches_is_told_so_and_not_of_a_rewind(landing: Landing) -> None:
    """It was stopped for longer than its hold; what it needs is no longer archived. At the first that is, nothing is amiss."""
    landing.land(4, times=12)
    plane = landing.region.plane
    plane.do(lambda tx: tx.set_region(limits_json='{"retain": 2, "history": 3}'))
    plane.do(lambda tx: retire.retire(tx, retire.plan(tx, tx.region()).retire))

    def latest(at: int) -> int:
        return streamed(landing, after=at).latestOffset()["checkpoint"]

    assert latest(7) == 12, "the history goes back to 8"
    with pytest.raises(NoSuchCheckpoint, match=r"goes back to checkpoint 8; .*Read after 7"):
        latest(5)
    with pytest.raises(NoSuchCheckpoint, match="has no checkpoint 99"):
        latest(99)


def test_what_sql_says_of_connections_is_never_obeyed(landing: Landing, tmp_path: Path) -> None:
    """Whoever may write to the control plane could else have a reader send its files to a broker of theirs (issue 16)."""
    landing.land(10, times=3)
    theirs = tmp_path / "theirs"
    evil = json.loads(landing.config.to_json())
    evil |= {"storage": str(theirs), "storage_options": {"secret_key": "${file:/etc/passwd}"}}
    evil["kafka"] |= {"bootstrap.servers": "evil:1", "client.id": "${file:/etc/passwd}"}
    plane = landing.region.plane
    plane.do(lambda tx: tx.set_region(config_json=json.dumps(evil)))
    assert len(rows(opened(landing))) == 60
    # Archived checkpoints are read from the Kafka that the reader names, and from no other.
    plane.do(lambda tx: tx.delete(Lease))  # the first read holds it
    landing.retire(1)
    with pytest.raises(Exception, match=r"is archived.*`kafka.bootstrap.servers`"):
        opened(landing, upto=1).partitions()
    with pytest.raises(Exception, match=r"Kafka does not answer") as caught:
        mine = {"kafka.bootstrap.servers": "127.0.0.1:9", "kafka.socket.timeout.ms": 500}
        opened(landing, upto=1, **mine).partitions()
    assert "evil" not in str(caught.value) and "root:" not in str(caught.value)


def test_a_reader_needs_to_say_where_it_connects(landing: Landing, tmp_path: Path) -> None:
    landing.land(10)
    (tmp_path / "region.yaml").write_text(landing.config.to_json())
    by_file = source.CrkafkaSource({"config": str(tmp_path / "region.yaml")})
    assert len(rows(by_file.reader(by_file.schema()))) == 20
    for wrong, refusal in (
        ({"region": "orders", "controlPlane": landing.config.control_plane}, "needs the option 'storage'"),
        ({"config": str(tmp_path / "region.yaml"), "storage": "x"}, "either config or storage"),
        (options(landing, **{"kafka.sasl.password": "hunter2"}), "secret written in clear"),
        (options(landing, **{"kafka.plugin.library.paths": "/tmp/x.so"}), "loads a library"),
    ):
        with pytest.raises(ConfigError, match=refusal) as caught:
            source.CrkafkaSource(wrong).schema()
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "x.parquet"])
def test_a_name_out_of_sql_that_is_no_segments_is_not_opened(landing: Landing, path: str) -> None:
    landing.land(10)
    plane = landing.region.plane
    named = plane.read(lambda reader, row: reader.select(Segment))[0]
    plane.do(lambda tx: tx.delete(Segment, ("path", "=", named.path)))
    plane.do(lambda tx: tx.put(replace(named, path=path)))
    with pytest.raises(DataLoss, match="is not the name of a segment"):
        opened(landing).partitions()
    with pytest.raises(DataLoss, match="is not the name of a segment"):
        checkpoints(None, landing.region)  # type: ignore[arg-type]
