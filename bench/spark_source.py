"""Row 1: Kafka → committed Parquet, the whole region in Spark, against Spark's own Kafka source on the same broker and session.

Both read the same backlog: 8 partitions of records of 140 bytes. Spark runs a streaming query with `availableNow`, twice: its
first run on a fresh session and a warm one. So does the region, with two members as tasks of the same session, SQLite as its
control plane, and a cut every five seconds; its time is from the start of the host until the checkpoint that holds the last
record is merged. Its first run starts Spark's Python processes; each pair of runs is compared. What a run wrote is removed
before the next. `CRKAFKA_BENCH_ROWS` sets the number of records (8,000,000).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from bench.figure import Figure
from checkpoints_db import initialise
from crkafka_core.config import RegionConfig
from crkafka_core.dev.jars import SPARK_KAFKA
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.leash import Leash
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.model.offsets import TP
from crkafka_core.region import Region
from crkafka_core.region.caught_up import consume
from crkafka_core.region.driver import Driver
from crkafka_core.spark import frames, session
from crkafka_core.spark.host import SparkHost
from crkafka_core.testing.generator import Generator

PARTITIONS = 8
ROWS = int(os.environ.get("CRKAFKA_BENCH_ROWS", "8000000"))


def figures(rows: Sequence[int]) -> list[Figure]:
    folder = Path(tempfile.mkdtemp(prefix="crk-bench-"))
    leash = Leash(folder / "kafka")
    kafka = KafkaCluster(folder / "kafka", 1, leash=leash)
    spark: SparkSession | None = None
    try:
        kafka.start()
        topic = kafka.topics.create("bench", PARTITIONS)
        Generator(kafka.bootstrap).bulk(topic, ROWS, partitions=PARTITIONS)
        spark = open_session(folder)
        theirs = [peer(spark, kafka, topic, folder / f"peer-{i}") for i in range(2)]
        a_group(kafka, topic)
        ours = [region(spark, kafka, topic, folder / f"region-{i}") for i in range(2)]
    finally:
        if spark is not None:
            spark.stop()
        leash.release()
        shutil.rmtree(folder, ignore_errors=True)
    return [
        Figure(
            1,
            f"Kafka → committed Parquet, {which} run against Spark's {which} run",
            peer_took / took,
            "×",
            bound,
            at_least=True,
            note=f"{ROWS / took / 1e6:.2f} M/s, {ROWS / (took - settled) / 1e6:.2f} once settled; Spark {ROWS / peer_took / 1e6:.2f}",
        )
        for which, bound, peer_took, (took, settled) in zip(("first", "warm"), (3.0, 1.8), theirs, ours, strict=True)
    ]


def a_group(kafka: KafkaCluster, topic: str) -> None:
    """The first group of a new broker waits for the topic of offsets to be made: seconds that no region meets elsewhere."""
    KafkaAdmin({"bootstrap.servers": kafka.bootstrap}, timeout=30).committed("first", [TP(topic, 0)])


def open_session(folder: Path) -> SparkSession:
    """Local, a slot for each member and one to spare."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[3,4]").appName("crkafka bench")
    settings = {
        **session.conf(), **session.HERE,
        "spark.jars": ",".join(map(str, SPARK_KAFKA.jars())), "spark.ui.enabled": "false", "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1", "spark.local.dir": str(folder / "spark"),
    }  # fmt: skip
    for key, value in settings.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def peer(spark: SparkSession, kafka: KafkaCluster, topic: str, folder: Path) -> float:
    """Seconds of one `availableNow` run of Spark's own source into Parquet."""
    began = time.monotonic()
    reader = (
        spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap).option("subscribe", topic)
    )
    rows = reader.option("startingOffsets", "earliest").load()
    writer = (
        rows.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "state"))
    )
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    took = time.monotonic() - began
    landed = spark.read.parquet(str(folder / "out")).count()
    if landed != ROWS:
        raise AssertionError(f"Spark's own source landed {landed} of {ROWS} rows")
    shutil.rmtree(folder)
    return took


def region(spark: SparkSession, kafka: KafkaCluster, topic: str, folder: Path) -> tuple[float, float]:
    """Seconds from the start of the host to the last merge, and of these until the group was settled and flowed."""
    folder.mkdir()
    url = f"sqlite:///{folder}/crkafka.db"
    initialise(url)
    config = RegionConfig.of(
        base=folder,
        region="bench",
        control_plane=url,
        storage=str(folder / "segments"),
        kafka={"bootstrap.servers": kafka.bootstrap, "group.id": folder.name},
        topics=[topic],
        members=2,
        trigger={"period": "5s"},
    )
    with Region.open(config) as opened:
        opened.init()
        opened.start()
        host, driver = SparkHost(spark, opened), Driver(opened)
        began = time.monotonic()
        host.begin()
        driver.start()
        try:
            opened.await_running(timeout=120)
            settled = time.monotonic() - began
            consume(opened)
            took = time.monotonic() - began
        finally:
            driver.end()
            opened.stop()
            host.end()
        with frames.held(spark, opened) as rows:
            landed = rows.count()
        if landed != ROWS:
            raise AssertionError(f"{landed} of {ROWS} rows are in merged checkpoints")
    shutil.rmtree(folder)
    return took, settled
