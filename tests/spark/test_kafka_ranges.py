"""Kafka read again, segments, and Spark's Kafka source give the same rows (SPEC K2, K3; docs/clients.md C-E4, C-R6; faults 45, 46)."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.range_reader import RangeReader
from crkafka_core.model.errors import DataLoss
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Segment
from crkafka_core.plane.reading import KafkaRange, ReadPlan
from crkafka_core.segments.writer import SegmentWriter
from crkafka_core.spark import frames
from crkafka_core.spark.schema import RECORDS, ROWS
from crkafka_core.testing.generator import Generator
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

COLUMNS = ["topic", "partition", "offset"]


def fill(kafka: KafkaCluster, topic: str) -> None:
    """Nulls, empties, headers of all kinds, a record of 1 MiB, committed and aborted transactions."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "message.max.bytes": 4 * 2**20})
    now = round(time.time() * 1000) - 60_000
    big = hashlib.shake_256(b"x").digest(2**20)
    odd = [("a", b"1"), ("a", b"2"), ("empty", b""), ("none", None), ("é", "ü".encode())]
    for i in range(40):
        key = (None, b"", b"key-%d" % i)[i % 3]
        value = (None, b"", b"\x00\xff", big if i == 8 else b"value-%d" % i)[i % 4 if i != 8 else 3]
        producer.produce(
            topic, key=key, value=value, partition=i % 2, headers=odd if i % 5 == 0 else None, timestamp=now + i
        )
    assert producer.flush(30) == 0
    sender = Generator(kafka.bootstrap)
    for abort in (False, True, False, True):
        sender.transaction(topic, 10, partitions=2, abort=abort)


def of_spark(spark: SparkSession, kafka: KafkaCluster, topics: list[str]) -> DataFrame:
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": ",".join(topics), "includeHeaders": "true"}
    return spark.read.format("kafka").options(**given, **{"kafka.isolation.level": "read_committed"}).load()


def planned(
    landing: Landing, ranges: list[KafkaRange] | None = None, segments: list[Segment] | None = None
) -> ReadPlan:
    rows = sum(r.rows for r in ranges or []) or sum(s.rows for s in segments or [])
    line = (Checkpoint("orders", 1, 0, 1, CheckpointStatus.MERGED, rows=rows),)
    return ReadPlan("orders", landing.uid, line, tuple(segments or ()), tuple(ranges or ()))


@pytest.fixture
def landing(kafka: KafkaCluster, tmp_path: Path) -> Landing:
    return Landing(MemoryStore(), tmp_path, kafka={"bootstrap.servers": kafka.bootstrap, "group.id": "g"})


def counted(kafka: KafkaCluster, topics: list[str]) -> list[KafkaRange]:
    """Whole partitions, with what a plain read finds in them."""
    admin = KafkaAdmin({"bootstrap.servers": kafka.bootstrap})
    ends = admin.watermarks([TP(topic, p) for topic in topics for p in range(2)])
    landed_ranges = []
    with RangeReader({"bootstrap.servers": kafka.bootstrap}) as reader:
        for tp, (low, high) in sorted(ends.items()):
            rows = sum(batch.rows for batch in reader.read(tp, low, high))
            landed_ranges.append(KafkaRange(1, tp.topic, tp.partition, low, high, rows))
    return landed_ranges


def test_I11_rows_equal_those_of_sparks_own_source(
    spark: SparkSession, kafka: KafkaCluster, new_topic: Callable[..., str], landing: Landing
) -> None:
    room = {"max.message.bytes": str(4 * 2**20)}
    topics = [new_topic(2, config=room), new_topic(2, config={**room, "message.timestamp.type": "LogAppendTime"})]
    for topic in topics:
        fill(kafka, topic)
    theirs = of_spark(spark, kafka, topics)
    ranges = counted(kafka, topics)
    again = frames.from_plan(spark, landing.region.config, planned(landing, ranges))

    segments = []
    with RangeReader({"bootstrap.servers": kafka.bootstrap}) as reader:
        for i, item in enumerate(ranges):
            writer = SegmentWriter(landing.storage, f"{landing.uid}/00000001/m-0-{i}.parquet")
            for batch in reader.read(item.tp, item.start, item.stop):
                writer.write(batch)
            closed = writer.close()
            segments.append(
                Segment("orders", closed.path, 1, "orders/0", "m", 1, closed.rows, closed.bytes, closed.hash, "[]")
            )
    landed = frames.from_plan(spark, landing.region.config, planned(landing, segments=segments))

    assert {(f.name, f.dataType, f.nullable) for f in theirs.schema} == {
        (f.name, f.dataType, f.nullable) for f in RECORDS
    }
    wanted = theirs.select(*RECORDS.fieldNames()).orderBy(*COLUMNS).collect()
    assert len(wanted) == 2 * (40 + 20)
    for ours in (again, landed):
        assert ours.schema == ROWS
        assert ours.select(*RECORDS.fieldNames()).orderBy(*COLUMNS).collect() == wanted
    assert {r.timestampType for r in wanted} == {0, 1}
    assert max(len(r.value or b"") for r in wanted) == 2**20


def test_a_range_of_nothing_but_control_records_ends(kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1)
    sender = Generator(kafka.bootstrap)
    sender.transaction(topic, 3, abort=True)
    sender.transaction(topic, 3)
    with RangeReader({"bootstrap.servers": kafka.bootstrap}) as reader:
        assert sum(b.rows for b in reader.read(TP(topic, 0), 0, 4)) == 0
        assert sum(b.rows for b in reader.read(TP(topic, 0), 0, 8)) == 3
        assert sum(b.rows for b in reader.read(TP(topic, 0), 3, 5)) == 1


def test_ranges_are_read_in_parallel_tasks_and_each_row_can_tell_its_checkpoint(
    spark: SparkSession, kafka: KafkaCluster, new_topic: Callable[..., str], landing: Landing
) -> None:
    topic = new_topic(2)
    Generator(kafka.bootstrap).send(topic, 400, partitions=2)
    ranges = [KafkaRange(c, topic, p, 50 * (c - 1), 50 * c, 50) for c in range(1, 5) for p in range(2)]
    read_rows = frames.from_plan(spark, landing.region.config, planned(landing, ranges))
    assert read_rows.rdd.getNumPartitions() == 8
    counts = read_rows.groupBy("crkafka_checkpoint").count().collect()
    assert {tuple(r) for r in counts} == {(c, 100) for c in range(1, 5)}
    assert read_rows.where("(offset DIV 50) + 1 != crkafka_checkpoint").count() == 0


def test_other_counts_than_were_landed_are_data_loss(
    spark: SparkSession, kafka: KafkaCluster, new_topic: Callable[..., str], landing: Landing
) -> None:
    topic = new_topic(1)
    Generator(kafka.bootstrap).send(topic, 10)
    wrong = planned(landing, [KafkaRange(7, topic, 0, 0, 10, 11)])
    with pytest.raises(Exception, match=r"DataLoss: Checkpoint 7: Kafka now gives 10 records of .*; 11 were landed"):
        frames.from_plan(spark, landing.region.config, wrong).count()


def test_a_range_that_kafka_let_go_is_refused_with_what_is_left(
    spark: SparkSession, kafka: KafkaCluster, new_topic: Callable[..., str], landing: Landing
) -> None:
    topic = new_topic(1)
    Generator(kafka.bootstrap).send(topic, 30)
    kafka.topics.delete_records({(topic, 0): 15})
    line = tuple(Checkpoint("orders", c, c - 1, 1, CheckpointStatus.RETIRED, rows=10) for c in (1, 2, 3))
    ranges = tuple(KafkaRange(c, topic, 0, 10 * (c - 1), 10 * c, 10) for c in (1, 2, 3))
    with pytest.raises(DataLoss, match=r"checkpoint 1 is archived.*begins at 15.*checkpoints 3 … 3 are still there"):
        frames.from_plan(spark, landing.region.config, ReadPlan("orders", landing.uid, line, (), ranges))
    with (
        RangeReader({"bootstrap.servers": kafka.bootstrap}) as reader,
        pytest.raises(DataLoss, match="no longer holds offset 0"),
    ):
        list(reader.read(TP(topic, 0), 0, 10))
    left = ReadPlan("orders", landing.uid, line[2:], (), ranges[2:])
    assert frames.from_plan(spark, landing.region.config, left).count() == 10


def test_a_read_leaves_no_group_behind(kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1)
    Generator(kafka.bootstrap).send(topic, 10)
    with RangeReader({"bootstrap.servers": kafka.bootstrap}) as reader:
        assert sum(b.rows for b in reader.read(TP(topic, 0), 0, 10)) == 10
        groups = {g.group_id for g in kafka.admin.list_consumer_groups().result(10).valid}
    assert not any(g.startswith("crkafka-read") for g in groups)


def test_69_a_topic_made_anew_after_the_plan_is_data_loss_although_the_counts_match(
    spark: SparkSession, kafka: KafkaCluster, new_topic: Callable[..., str], landing: Landing
) -> None:
    topic = new_topic(1)
    Generator(kafka.bootstrap).send(topic, 10)
    old = kafka.topics.id(topic)
    read_rows = frames.from_plan(
        spark, landing.region.config, planned(landing, [KafkaRange(7, topic, 0, 0, 10, 10, old)])
    )
    assert read_rows.count() == 10
    kafka.topics.delete(topic)
    kafka.topics.create(topic, 1)
    Generator(kafka.bootstrap).send(topic, 10)
    new = kafka.topics.id(topic)
    with pytest.raises(
        Exception, match=f"DataLoss: Checkpoint 7 .*id {re.escape(old)}; .* the id {re.escape(new)} now"
    ):
        read_rows.count()
