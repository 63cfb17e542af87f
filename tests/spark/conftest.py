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

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Local, four slots: members take some."""
    jars = [jar for each in (DELTA, ICEBERG, SPARK_KAFKA) for jar in each.jars()]
    builder = SparkSession.builder.master("local[4,4]").appName("crkafka tests")
    settings = {
        **session.conf(["delta"]),
        **session.HERE,
        "spark.jars": ",".join(map(str, jars)),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        # Each of many small plans would be compiled, for a few rows; the clusters of `make soak` compile theirs.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
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
