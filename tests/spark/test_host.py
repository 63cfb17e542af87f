"""Members as Spark tasks on a real Kafka (SPEC K1, G5, X4; faults 1, 53)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.model.errors import ConfigError
from crkafka_core.spark import frames, host, location, tables
from crkafka_core.spark.host import SparkHost
from tests.rigs.scenario import Scenario

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


class SparkScenario(Scenario):
    """A scenario whose members are tasks of a Spark session."""

    def __init__(self, kafka: KafkaCluster, folder: Path, spark: SparkSession, **keys: Any) -> None:
        self.spark = spark
        super().__init__(kafka, folder, **keys)

    def new_host(self, log: str = "logs") -> SparkHost:  # type: ignore[override]
        return SparkHost(self.spark, self.region)

    def pids(self) -> dict[str, int]:
        return self.registered_pids()


@pytest.fixture
def scenario(spark: SparkSession, kafka: KafkaCluster, tmp_path: Path) -> Iterator[SparkScenario]:
    table = {"name": "bronze", "format": "delta", "path": str(tmp_path / "bronze")}
    with SparkScenario(kafka, tmp_path, spark, members=2, rate=500, session=20.0, tables=[table]) as made:
        yield made


def test_kill_of_one_members_python_worker_restarts_that_one_only(
    scenario: SparkScenario, caplog: pytest.LogCaptureFixture
) -> None:
    s = scenario
    s.cut()
    other, restarted = s.incarnation(1), s.incarnation(0)
    before = s.mark()
    s.kill(0)
    s.until(lambda: s.incarnation(0) != restarted, "the killed member is registered anew")
    s.cut_soon()
    assert s.incarnation(1) == other
    assert len(s.resets(before)) == 1
    assert "failed as a job of Spark" not in caplog.text, "Spark restarted the task"
    assert tables.advance(s.spark, s.region, "bronze") is not None
    verdict = s.finish_and_verify()
    tables.advance(s.spark, s.region, "bronze")
    landed = tables.read_table(s.spark, s.region, "bronze")
    assert (
        landed.count()
        == landed.select("topic", "partition", "offset").distinct().count()
        == verdict.rows
        == s.ledger.rows()
    )


def test_scaling_starts_and_ends_tasks_and_a_rewind_is_fenced_by_the_host(scenario: SparkScenario) -> None:
    s = scenario
    first = s.cut()
    s.region.scale(3)
    s.settle()
    assert len(s.host.running()) == 3
    s.cut()
    tables.advance(s.spark, s.region, "bronze")
    s.region.reset(first.id, wait=True)  # waits for the fence, which the host makes
    s.region.scale(1)
    s.settle()
    s.until(lambda: len(s.host.running()) == 1, "the tasks of scaled-in members have ended")
    again = s.cut_soon()
    line = s.region.plane.read(lambda reader, row: reader.line(row.head))
    assert again.id in line and line[0] == first.id  # a handover of the scaling may lie between
    tables.advance(s.spark, s.region, "bronze")
    verdict = s.finish_and_verify()
    assert frames.checkpoints(s.spark, s.region).count() == verdict.rows
    s.region.stop()
    assert s.host.join(30)


def test_slots_of_a_connect_server_that_does_not_tell_them_are_counted(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one without `spark.cores.max` and `spark.default.parallelism`."""
    monkeypatch.setattr(location, "is_connect", lambda _: True)
    assert not spark.conf.get("spark.default.parallelism", "")
    assert location.slots(spark) == 4


def test_too_few_slots_are_said_at_once_with_the_number(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="9 members need 9 task slots; this Spark has 4"):
        host.check_slots(spark, 9)
    host.check_slots(spark, 4)
