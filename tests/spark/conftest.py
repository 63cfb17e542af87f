"""One Spark for all tests of this folder, with the real Delta, Iceberg and Kafka connector."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from crkafka_core.dev.jars import DELTA, ICEBERG, SPARK_KAFKA
from crkafka_core.spark import session
from crkafka_core.testing.spark_cluster import SparkCluster

STATIC = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
"""What only the server can be started with."""
SMALL = {
    "spark.sql.shuffle.partitions": "2",
    # Each of many small plans would be compiled, for a few rows; the clusters of `make soak` compile theirs.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
ROOT = Path(__file__).parents[2]


JARS = (DELTA, ICEBERG, SPARK_KAFKA)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Local, four slots: members take some. With `CRKAFKA_SPARK=connect` a client of a Connect server."""
    opened = through_connect if os.environ.get("CRKAFKA_SPARK") == "connect" else in_this_process
    yield from opened(tmp_path_factory)


def through_connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """As `open_session` makes it for a region whose `host.spark` is `sc://…`."""
    folder = tmp_path_factory.mktemp("connect")
    with SparkCluster(folder, workers=1, cores=4) as cluster:
        address = cluster.start_connect(
            [jar for each in JARS for jar in each.jars()],
            **{key: value for key, value in session.conf(["delta"]).items() if key in STATIC},
            **{"spark.executor.memory": "512m", **SMALL},
        )
        builder = SparkSession.builder.remote(address)
        for key, value in session.conf(["delta"]).items():
            if key.startswith("spark.sql.") and key not in STATIC:
                builder = builder.config(key, value)
        made = builder.getOrCreate()
        yield made
        made.stop()


def in_this_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    jars = [jar for each in JARS for jar in each.jars()]
    builder = SparkSession.builder.master("local[4,4]").appName("crkafka tests")
    settings = {
        **session.conf(["delta"]),
        **session.HERE,
        "spark.jars": ",".join(map(str, jars)),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        **SMALL,
        "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    }
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # As where this package is installed: in a checkout Spark's look-up of data sources does not see it.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    for key, value in settings.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Any]]:
    """Writes a module of the user's program, by its name and text, and imports it."""
    (tmp_path / "code").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    names: list[str] = []

    def write(name: str, text: str) -> Any:
        (tmp_path / "code" / f"{name}.py").write_text(text)
        names.append(name)
        return importlib.import_module(name)

    yield write
    for name in names:
        del sys.modules[name]
