"""Members on a standalone cluster of real processes: whatever is killed, the others go on (SPEC K1, K5; fault 1)."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.model.rows import Launch
from crkafka_core.spark import tables
from tests.cluster.conftest import SparkScenario, ancestors, on
from tests.rigs.spark_cluster import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(400)]

MEMBERS = 4


def incarnations(s: SparkScenario) -> dict[str, str]:
    return {m.name: m.incarnation for m in s.region.status().members}


def often(s: SparkScenario) -> set[str]:
    """Members that were killed as often as Spark restarts a task: their job fails, and is submitted again."""
    launches = s.region.plane.read(lambda reader, row: reader.select(Launch))
    return {launch.name for launch in launches if launch.number > 4}


def members_of(executor: int, s: SparkScenario) -> set[str]:
    """Names of the members whose Python process descends from this executor."""
    return {name for name, pid in s.pids().items() if executor in ancestors(pid)}


def test_kill_of_a_python_worker_an_executor_and_a_worker_process(
    cluster: SparkCluster, kafka: KafkaCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with on(cluster.master, kafka, tmp_path, members=MEMBERS, partitions=8, rate=500) as s:
        s.settle()
        s.cut_soon()
        assert ".zip" in origin(s.spark)  # the code was shipped, not found

        before = incarnations(s)
        s.kill(0)
        s.until(lambda: incarnations(s)[s.member(0)] != before[s.member(0)], "the killed member is registered anew")
        s.settle()
        s.cut_soon()
        assert {n: i for n, i in incarnations(s).items() if n != s.member(0)} == {
            n: i for n, i in before.items() if n != s.member(0)
        }

        for kill in (kill_executor, kill_worker):
            spread(cluster, s)
            before = incarnations(s)
            hit = kill(cluster, s)
            assert hit and hit != set(before)
            s.until(lambda h=hit, b=before: _anew(s, h, b), f"{sorted(hit)} are registered anew")
            s.settle()
            s.cut_soon()
            assert {n: i for n, i in incarnations(s).items() if n not in hit} == {
                n: i for n, i in before.items() if n not in hit
            }
        failed = set(re.findall(r"the member (\S+) failed as a job of Spark", caplog.text))
        assert failed <= often(s), "Spark gave up a job before its limit"
        tables.advance(s.spark, s.region, "bronze")
        verdict = s.finish_and_verify()
        tables.advance(s.spark, s.region, "bronze")
        assert tables.read_table(s.spark, s.region, "bronze").count() == verdict.rows == s.ledger.rows()
        s.region.stop()
        assert s.host.join(30)


def origin(spark: SparkSession) -> str:
    """From where an executor has this project's code."""

    def where(batches):  # type: ignore[no-untyped-def]  # inside a function: executors do not have this file
        import pyarrow as pa

        import crkafka_core

        for batch in batches:
            if batch.num_rows:
                yield pa.RecordBatch.from_pydict({"file": [str(crkafka_core.__file__)]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(where, "file string").collect()
    return str(row["file"])


def spread(cluster: SparkCluster, s: SparkScenario) -> None:
    """Spark places tasks by chance: members are killed until there are some on either executor."""
    s.until(lambda: len(cluster.executors()) == 2, "there are two executors")
    for number in reversed(range(3 * MEMBERS)):
        if all(members_of(executor, s) for executor in cluster.executors()):
            return
        before = s.incarnation(number % MEMBERS)
        s.kill(number % MEMBERS)
        s.until(lambda n=number, b=before: s.incarnation(n % MEMBERS) != b, "the killed member is registered anew")
        s.settle()
    raise AssertionError("all members are on one executor again and again")


def _anew(s: SparkScenario, hit: set[str], before: dict[str, str]) -> bool:
    now = incarnations(s)
    return all(now[name] != before[name] for name in hit)


def kill_executor(cluster: SparkCluster, s: SparkScenario) -> set[str]:
    executor = next(pid for pid in cluster.executors() if members_of(pid, s))
    hit = members_of(executor, s)
    os.kill(executor, signal.SIGKILL)
    return hit


def kill_worker(cluster: SparkCluster, s: SparkScenario) -> set[str]:
    """The worker process and, as a machine that is gone would, its executor with it."""
    executor, number = next((pid, n) for pid, n in cluster.executors().items() if members_of(pid, s))
    hit = members_of(executor, s)
    cluster.kill_worker(number)
    os.kill(executor, signal.SIGKILL)
    return hit
