"""The same region through Spark Connect, by one changed line (SPEC K5). A process of its own: Connect and classic do not share one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crkafka_core.dev.kafka import KafkaCluster
from tests.rigs.spark_cluster import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(400)]

SCRIPT = """
import sys
from pathlib import Path
from types import SimpleNamespace
from crkafka_core.spark import frames, source, tables
from tests.cluster.conftest import on

master, bootstrap, folder = sys.argv[1:]
from crkafka_core.dev.kafka_topics import KafkaTopics
from confluent_kafka.admin import AdminClient
kafka = SimpleNamespace(bootstrap=bootstrap, topics=KafkaTopics(AdminClient({"bootstrap.servers": bootstrap})))
with on(master, kafka, Path(folder), members=2, rate=500) as s:
    first = s.cut_soon()
    assert frames.checkpoints(s.spark, s.region).groupBy("crkafka_checkpoint").count().count() <= first.id
    tables.advance(s.spark, s.region, "bronze")
    verdict = s.finish_and_verify()
    tables.advance(s.spark, s.region, "bronze")
    assert tables.read_table(s.spark, s.region, "bronze").count() == verdict.rows == s.ledger.rows()
    source.register(s.spark)
    options = {"region": s.config.region, "controlPlane": s.config.control_plane, "storage": s.config.storage}
    rows = s.spark.read.format("crkafka").options(**options).load()
    assert rows.count() == verdict.rows
    s.region.stop()
    assert s.host.join(30)
    s.spark.stop()
print("REGION DONE", verdict.rows)
"""


@pytest.mark.parametrize("kind", ["connect", "standalone", "local"])
def test_one_region_on_every_kind_of_spark(
    cluster: SparkCluster, kafka: KafkaCluster, tmp_path: Path, kind: str
) -> None:
    master = {"connect": cluster.connect, "standalone": cluster.master, "local": "local[3]"}[kind]
    if kind == "connect":
        cluster.start_connect(**{"spark.executor.memory": "512m", "spark.cores.max": "6"})
    try:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, master, kafka.bootstrap, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=Path(__file__).parents[2],
        )
    finally:
        cluster.stop_connect()
    assert done.returncode == 0 and "REGION DONE" in done.stdout, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
