"""A standalone Spark of a master and two workers, and a region whose members are tasks on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.model.rows import Checkpoint
from crkafka_core.spark import session
from crkafka_core.spark.host import SparkHost
from tests.rigs.scenario import Scenario
from tests.rigs.spark_cluster import SparkCluster

_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": _QUICK,
    "spark.executor.extraJavaOptions": _QUICK,
}
"""Of virtual machines that start quickly, and live for a minute."""

LIMIT = 120.0
"""Seconds for what takes moments, and several virtual machines that start on two cores."""


class SparkScenario(Scenario):
    """A scenario whose members are tasks of the Spark that its configuration names."""

    def new_host(self, log: str = "logs") -> SparkHost:  # type: ignore[override]
        self.spark: SparkSession = session.open_session(self.config)
        self.spark.sparkContext.setLogLevel("ERROR") if not self.config.host.connect else None
        return SparkHost(self.spark, self.region)

    def pids(self) -> dict[str, int]:
        return self.registered_pids()

    def wait_running(self, epoch: int = 0, *, timeout: float = LIMIT) -> None:
        super().wait_running(epoch, timeout=max(timeout, LIMIT))

    def settle(self, *, members: int | None = None, timeout: float = LIMIT) -> None:
        super().settle(members=members, timeout=timeout)

    def cut_soon(self, *, timeout: float = LIMIT) -> Checkpoint:
        return super().cut_soon(timeout=timeout)

    def until(self, condition: Callable[[], Any], what: str, *, timeout: float = LIMIT) -> Any:
        return super().until(condition, what, timeout=timeout)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The next region of this process may be on another Spark."""
        super().__exit__(kind, error, trace)
        self.spark.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Two workers with room for all members on either."""
    with SparkCluster(tmp_path_factory.mktemp("cluster"), workers=2, cores=5) as made:
        yield made


@pytest.fixture(autouse=True)
def virtual_machine_of_its_own() -> Iterator[None]:
    """A session's jars are on the class path of the virtual machine that it begins: the next test's may be others."""
    yield
    if (gateway := SparkContext._gateway) is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # it ends with that
        SparkContext._gateway = SparkContext._jvm = None


def on(master: str, kafka: KafkaCluster, folder: Path, **keys: Any) -> SparkScenario:
    """A region on this Spark: the one line that changes is `host`."""
    conf = {} if master.startswith("sc://") else {**CONF, **keys.pop("conf", {})}
    bronze = {"name": "bronze", "format": "delta", "path": str(folder / "bronze")}
    host = {"spark": master, **({"conf": conf} if conf else {})}
    return SparkScenario(kafka, folder, host=host, **{"session": 20.0, "tables": [bronze], **keys})


def ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
        found.append(pid)
    return found
