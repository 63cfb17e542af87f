"""Rows 1 and 11: Kafka → committed Parquet, and → a table, the whole region in Spark, against Spark's own Kafka source on the same broker.

Both read the same backlog: 8 partitions of records of 140 bytes. Each side is a process of its own with a fresh session: its
first run starts from nothing, the best of those that follow is its warm run. Spark runs a streaming query with `availableNow`; the
region has two members as tasks of its session, SQLite as its control plane, and a cut every five seconds, and its time is from the
start of the host until the checkpoint that holds the last record is merged. In row 11 both write a Delta or an Iceberg table of the
records as they are, and the region's time is until a reader that knows neither Spark nor us sees every row in it. Opening the session
is counted on neither side. What a run wrote is removed before the next. Neither side compresses these values: hex digits do not shrink
by a fifth, and without it Spark was a little quicker too. `CRKAFKA_BENCH_ROWS` sets the number of records (8,000,000).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from bench.figure import Figure
from bench.plain_reader import READERS, rows_in
from checkpoints_db import initialise
from crkafka_core.config import RegionConfig
from crkafka_core.dev.jars import DELTA, ICEBERG, SPARK_KAFKA
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.leash import Leash
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.model.offsets import TP
from crkafka_core.region import Region
from crkafka_core.region.caught_up import consume
from crkafka_core.region.driver import Driver
from crkafka_core.region.feeder import feeding
from crkafka_core.spark import frames, location, session
from crkafka_core.spark.host import SparkHost
from crkafka_core.testing.generator import Generator

PARTITIONS = 8
JARS = {"delta": (DELTA,), "iceberg": (ICEBERG,)}
ROWS = int(os.environ.get("CRKAFKA_BENCH_ROWS", "8000000"))


@dataclass(frozen=True)
class Runs:
    """What one side took, run after run, in seconds."""

    took: tuple[float, ...]
    settled: tuple[float, ...]
    """Of these, before the first record could flow: start and joining of the group."""

    @property
    def first(self) -> float:
        return self.took[0]

    @property
    def warm(self) -> float:
        return min(self.took[1:])

    @property
    def once_settled(self) -> float:
        """Million records a second, at best."""
        return ROWS / min(took - before for took, before in zip(self.took, self.settled, strict=True)) / 1e6


def figures(rows: Sequence[int]) -> Iterator[Figure]:
    with backlog() as (kafka, topic, folder):
        theirs = side("spark", kafka, topic, folder) if 1 in rows else None
        ours = side("region", kafka, topic, folder)
        tables = [
            (f, side(f"region-{f}", kafka, topic, folder), side(f"spark-{f}", kafka, topic, folder))
            for f in (READERS if 11 in rows else ())
        ]
    if theirs is not None:
        yield from _row_1(theirs, ours)
    for format, into, peer in tables:
        what, note = f"Kafka → {format.capitalize()} table, warm run", f"{speed(into.warm)}; "
        yield Figure(
            11, f"{what} against row 1's", ours.warm / into.warm, "×", 0.9, at_least=True, note=note + speed(ours.warm)
        )
        yield Figure(
            11,
            f"{what} against Spark's own streaming write",
            peer.warm / into.warm,
            "×",
            2.5,
            at_least=True,
            note=f"{note}Spark {speed(peer.warm)}",
        )


def _row_1(theirs: Runs, ours: Runs) -> Iterator[Figure]:
    pairs = (("first", 2.5, theirs.first, ours.first), ("warm", 2.6, theirs.warm, ours.warm))
    for which, bound, peer_took, took in pairs:
        note = f"{speed(took)}, {ours.once_settled:.2f} once settled; Spark {speed(peer_took)}"
        what = f"Kafka → committed Parquet, {which} run against Spark's {which} run"
        yield Figure(1, what, peer_took / took, "×", bound, at_least=True, note=note)


def speed(took: float) -> str:
    return f"{ROWS / took / 1e6:.2f} M/s"


@contextmanager
def backlog() -> Iterator[tuple[KafkaCluster, str, Path]]:
    """A broker with the records that are to be read, and a folder, both gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="crk-bench-"))
    leash = Leash(folder / "kafka")
    try:
        kafka = KafkaCluster(folder / "kafka", 1, leash=leash, full_speed=True)
        kafka.start()
        topic = kafka.topics.create("bench", PARTITIONS)
        Generator(kafka.bootstrap).bulk(topic, ROWS, partitions=PARTITIONS)
        # The first group of a new broker waits for the topic of offsets to be made: seconds that no region meets elsewhere.
        KafkaAdmin({"bootstrap.servers": kafka.bootstrap}, timeout=30).committed("first", [TP(topic, 0)])
        _warm_up(kafka, topic)
        yield kafka, topic, folder
    finally:
        leash.release()
        shutil.rmtree(folder, ignore_errors=True)


def _warm_up(kafka: KafkaCluster, topic: str) -> None:
    """Read all of it once, so that no side meets a broker that is still compiled, or a disk that still takes what was produced."""
    os.sync()
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "warm-up", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    left = ROWS
    while left > 0:
        found = consumer.consume(10_000, timeout=30)
        if not found:
            raise AssertionError(f"{left} of {ROWS} records were not found in the topic")
        left -= sum(message.error() is None for message in found)
    consumer.close()


def side(name: str, kafka: KafkaCluster, topic: str, folder: Path, warm_runs: int = 2) -> Runs:
    """The runs of one side, in a new process."""
    command = [
        sys.executable,
        "-m",
        "bench.spark_source",
        name,
        kafka.bootstrap,
        topic,
        str(folder),
        str(1 + warm_runs),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=900)
    took, settled = json.loads(done.stdout.splitlines()[-1])
    return Runs(tuple(took), tuple(settled))


def open_session(folder: Path, format: str = "") -> SparkSession:
    """Local, a slot for each member and one to spare; with the jars of a table's format."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[3,4]").appName("crkafka bench")
    jars = [jar for each in (SPARK_KAFKA, *JARS.get(format, ())) for jar in each.jars()]
    settings = {
        **session.conf([format]),
        **session.HERE,
        "spark.jars": ",".join(map(str, jars)),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder / "spark"),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def spark_run(spark: SparkSession, bootstrap: str, topic: str, folder: Path, format: str) -> tuple[float, float]:
    """Seconds of one `availableNow` run of Spark's own source into Parquet, or into a table."""
    out = str(folder / "out")
    name = location.iceberg_name(spark, out) if format == "iceberg" else ""
    began = time.monotonic()
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    rows = reader.option("startingOffsets", "earliest").load()
    writer = (
        rows.writeStream.format(format)
        .option("checkpointLocation", str(folder / "state"))
        .option("compression", "none")
        .trigger(availableNow=True)
    )
    query = writer.toTable(name) if name else writer.option("path", out).start()
    query.awaitTermination()
    took = time.monotonic() - began
    landed = spark.table(name).count() if name else spark.read.format(format).load(out).count()
    if landed != ROWS:
        raise AssertionError(f"Spark's own source landed {landed} of {ROWS} rows")
    return took, 0.0


def await_rows(format: str, path: Path) -> None:
    """Until the table has every row."""
    began = time.monotonic()
    while (found := rows_in(format, path)) != ROWS:
        if time.monotonic() - began > 300:
            raise AssertionError(f"{found} of {ROWS} rows are in the table")
        time.sleep(0.02)


def region_run(spark: SparkSession, bootstrap: str, topic: str, folder: Path, format: str) -> tuple[float, float]:
    """Seconds from the start of the host to the last merge, and of these until the group was settled and flowed.

    With a table the time is until all of it is visible there.
    """
    folder.mkdir()
    url = f"sqlite:///{folder}/crkafka.db"
    initialise(url)
    config = RegionConfig.of(
        base=folder,
        region="bench",
        control_plane=url,
        storage=str(folder / "segments"),
        kafka={"bootstrap.servers": bootstrap, "group.id": folder.name},
        topics=[topic],
        members=2,
        trigger={"period": "5s"},
        tables=[{"name": "bronze", "format": format, "path": str(folder / "bronze")}] if format in READERS else [],
    )
    with Region.open(config) as opened:
        opened.init()
        opened.start()
        host, driver = SparkHost(spark, opened), Driver(opened)
        began = time.monotonic()
        with feeding(opened, warm=host.feeder):
            host.begin()
            driver.start()
            try:
                opened.await_running(timeout=120)
                settled = time.monotonic() - began
                consume(opened)
                if format in READERS:
                    await_rows(format, folder / "bronze")
                took = time.monotonic() - began
            finally:
                driver.end()
                opened.stop()
                host.end()
        with frames.held(spark, opened) as rows:
            if (landed := rows.count()) != ROWS:
                raise AssertionError(f"{landed} of {ROWS} rows are in merged checkpoints")
    return took, settled


def main(name: str, bootstrap: str, topic: str, given: str, runs: str) -> None:
    """One side's runs, as JSON."""
    folder, (side, _, format) = Path(given), name.partition("-")
    run = {"spark": spark_run, "region": region_run}[side]
    spark = open_session(folder, format)
    found = []
    for number in range(int(runs)):
        out = folder / f"{name}-{number}"
        found.append(run(spark, bootstrap, topic, out, format or "parquet"))
        shutil.rmtree(out)
    spark.stop()
    print(json.dumps(list(zip(*found, strict=True))))


if __name__ == "__main__":
    main(*sys.argv[1:])
