"""An executor, or the driver, is killed while it writes tables: each record is in exactly one of them, once (SPEC K6, fault 1)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from checkpoints_db import initialise, open_store
from crkafka_core.model.errors import LeaseHeld
from crkafka_core.plane import tables as plane
from crkafka_core.spark import session, tables
from tests.cluster.conftest import CONF, ancestors
from tests.rigs.landing import Landing
from tests.rigs.spark_cluster import SparkCluster
from tests.rigs.until import until

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(400)]

PROGRAM = '''
def slowly(rows):
    """Each task says where it runs, and waits until it may go on, if it has to wait at all."""

    def wait(batches):
        import os, time
        from pathlib import Path

        for batch in batches:
            if batch.num_rows and Path({folder!r}, "wait").exists():
                Path({folder!r}, "tasks", str(os.getpid())).touch()
                while not Path({folder!r}, "go on").exists():
                    time.sleep(0.05)
            yield batch

    return rows.mapInArrow(wait, rows.schema)


def split(rows):
    rows = slowly(rows)
    return {{"good": rows.where("partition = 0"), "dead": rows.where("partition > 0")}}


def latest(rows):
    return slowly(rows).selectExpr("crkafka_checkpoint", "partition", "offset", "concat(partition, '-', offset % 7) AS id")
'''

DRIVER = """
import sys
from pathlib import Path
from checkpoints_db import open_store
from crkafka_core.config import RegionConfig
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.model.errors import LeaseHeld
from crkafka_core.spark import session, tables
from crkafka_core.lake.handle import Opened

config = RegionConfig.from_json(sys.argv[1])
tables.advance(session.open_session(config), Opened(config, ControlPlane(open_store(config.control_plane), config.region)), "orders")
"""


class Shop:
    """A region whose tables this shape writes, and a Spark on the cluster that has not begun yet."""

    def __init__(self, cluster: SparkCluster, folder: Path, declared: list[dict[str, Any]]) -> None:
        self.cluster, self.folder = cluster, folder
        (folder / "tasks").mkdir()
        (folder / "wait").touch()
        (folder / "code").mkdir()
        (folder / "code" / "slow_shapes.py").write_text(PROGRAM.format(folder=str(folder)))
        url = f"sqlite:///{folder}/crkafka.db"
        initialise(url)
        self.store = open_store(url)
        conf = {**CONF, "spark.sql.shuffle.partitions": "2"}
        self.landing = Landing(
            self.store,
            folder,
            partitions=2,
            control_plane=url,
            host={"spark": cluster.master, "conf": conf},
            tables=[{"path": str(folder / one["name"]), **one} for one in declared],
        )

    def at_work(self) -> list[int]:
        """Python processes of the tasks that wait."""
        return [int(file.name) for file in (self.folder / "tasks").iterdir()]

    def acknowledged(self) -> list[int]:
        """Of each table the last checkpoint that it has."""
        return self.landing.region.plane.read(
            lambda reader, _: [plane.of(reader, t.name).acknowledged for t in self.landing.config.tables]
        )

    def go_on(self) -> None:
        (self.folder / "go on").touch()

    def advanced(self, spark: SparkSession) -> None:
        """The right to write of one that was killed ends by itself."""

        def once() -> bool:
            try:
                tables.advance(spark, self.landing.region, "orders")
            except LeaseHeld:
                return False
            return True

        until(once, "the table takes what is there", seconds=120)

    def rows(self, spark: SparkSession, name: str) -> list[tuple[int, ...]]:
        found = tables.read_table(spark, self.landing.region, name).select("partition", "offset").collect()
        return sorted(map(tuple, found))


TWO = [
    {"name": "orders", "format": "delta", "shape": "slow_shapes:split", "output": "good"},
    {"name": "failed", "format": "iceberg", "shape": "slow_shapes:split", "output": "dead"},
]


def by_key(format: str) -> list[dict[str, Any]]:
    return [{"name": "orders", "format": format, "shape": "slow_shapes:latest", "mode": "upsert", "keys": ["id"]}]


@pytest.fixture
def shop_of(
    cluster: SparkCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[list[dict[str, Any]]], Shop]]:
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    made: list[Shop] = []

    def make(declared: list[dict[str, Any]]) -> Shop:
        made.append(Shop(cluster, tmp_path, declared))
        return made[0]

    yield make
    made[0].go_on()
    made[0].store.close()
    if active := SparkSession.getActiveSession():
        active.stop()
    sys.modules.pop("slow_shapes", None)


@pytest.mark.parametrize("killed", ["executor", "driver"])
@pytest.mark.parametrize(
    "declared", [TWO, by_key("delta"), by_key("iceberg")], ids=["two", "keys in Delta", "keys in Iceberg"]
)
def test_whoever_is_killed_while_tables_are_written_each_record_is_there_once(
    shop_of: Callable[[list[dict[str, Any]]], Shop], declared: list[dict[str, Any]], killed: str
) -> None:
    shop, so_far = shop_of(declared), [0 for _ in declared]
    shop.landing.land(10, times=3)
    if killed == "driver":
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, shop.landing.config.to_json()],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONPATH": str(shop.folder / "code")},
        )
        until(lambda: shop.at_work() or driver.poll() is not None, "a task writes", seconds=120)
        assert driver.poll() is None
        driver.kill()
        driver.wait()
        assert shop.acknowledged() == so_far
        shop.go_on()
        spark = session.open_session(shop.landing.config)
        shop.advanced(spark)
    else:
        spark = session.open_session(shop.landing.config)
        writes = threading.Thread(target=shop.advanced, args=(spark,))
        writes.start()
        until(shop.at_work, "a task writes", seconds=120)
        victim = next(pid for pid in shop.cluster.executors() if pid in ancestors(shop.at_work()[0]))
        os.kill(victim, signal.SIGKILL)
        until(lambda: victim not in shop.cluster.executors(), "the executor is gone", seconds=120)
        assert shop.acknowledged() == so_far
        shop.go_on()
        writes.join(150)
        assert not writes.is_alive()
    shop.landing.land(10)
    shop.advanced(spark)
    everything = [(partition, offset) for partition in range(2) for offset in range(40)]
    if declared is not TWO:
        assert shop.rows(spark, "orders") == [(p, o) for p, o in everything if o >= 33]
    else:
        good, dead = shop.rows(spark, "orders"), shop.rows(spark, "failed")
        assert Counter(good) + Counter(dead) == Counter(everything) and {p for p, _ in good} == {0}
    for table in declared:
        assert tables.look(spark, shop.landing.region, table["name"]).clean
