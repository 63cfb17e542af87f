"""Row 15: archived checkpoints read again from Kafka, against Spark's own batch source on the same ranges.

Ten checkpoints over the whole of 8 partitions, 80 ranges. Both give the same eight columns, which are made and go nowhere. They
are read in turns in one session, and the best of three is taken after one to warm up. `CRKAFKA_BENCH_ROWS` sets the number of
records (8,000,000).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.figure import Figure
from bench.spark_source import PARTITIONS, ROWS, backlog, open_session, speed
from checkpoints_db import initialise, open_store
from crkafka_core.model.rows import Checkpoint, CheckpointStatus
from crkafka_core.plane.reading import KafkaRange, ReadPlan
from crkafka_core.spark import frames
from tests.rigs.landing import Landing

CHECKPOINTS = 10
TURNS = 4
WARM = 1


def figures(rows: Sequence[int]) -> list[Figure]:
    with backlog() as (kafka, topic, folder):
        spark = open_session(folder)
        try:
            turns = [
                (
                    read(ours(spark, kafka.bootstrap, topic, folder / str(n))),
                    read(theirs(spark, kafka.bootstrap, topic)),
                )
                for n in range(TURNS)
            ]
        finally:
            spark.stop()
    our_best, their_best = (min(took) for took in zip(*turns[WARM:], strict=True))
    note = f"{speed(our_best)}; Spark {speed(their_best)}"
    what = "replay from Kafka, against Spark's batch source on the same ranges"
    return [Figure(15, what, their_best / our_best, "×", 1.2, at_least=True, note=note)]


def ours(spark: SparkSession, bootstrap: str, topic: str, folder: Path) -> DataFrame:
    """The ranges of checkpoints whose segments are gone."""
    folder.mkdir()
    url = f"sqlite:///{folder}/crkafka.db"
    initialise(url)
    given: dict[str, object] = {"bootstrap.servers": bootstrap, "group.id": folder.name}
    landing = Landing(open_store(url), folder, control_plane=url, kafka=given)
    each = ROWS // PARTITIONS // CHECKPOINTS
    line = tuple(
        Checkpoint("orders", c + 1, c, 1, CheckpointStatus.MERGED, rows=each * PARTITIONS) for c in range(CHECKPOINTS)
    )
    ranges = tuple(
        KafkaRange(c + 1, topic, p, c * each, (c + 1) * each, each)
        for c in range(CHECKPOINTS)
        for p in range(PARTITIONS)
    )
    return frames.from_plan(spark, landing.region.config, ReadPlan("orders", landing.uid, line, (), ranges))


def theirs(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    each = ROWS // PARTITIONS // CHECKPOINTS
    ends = ", ".join(f'"{p}": {each * CHECKPOINTS}' for p in range(PARTITIONS))
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    reader = reader.option("startingOffsets", "earliest").option("endingOffsets", f'{{"{topic}": {{{ends}}}}}')
    return reader.option("includeHeaders", "true").option("kafka.isolation.level", "read_committed").load()


def read(frame: DataFrame) -> float:
    """Seconds in which each row and column is made."""
    began = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return time.monotonic() - began
