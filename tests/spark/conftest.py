"""One Spark for all tests of this folder, with the real Delta, Iceberg and Kafka connector."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from crkafka_core.dev.jars import DELTA, ICEBERG, S3A, SPARK_KAFKA
from crkafka_core.dev.leash import Leash
from crkafka_core.dev.ports import free_ports, is_free
from crkafka_core.dev.processes import RecordedProcess
from crkafka_core.spark import session
from tests.rigs.spark_cluster import SparkCluster
from tests.spark.place import IN_S3, SECRETS, Place

STATIC = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
"""What only the server can be started with."""
SMALL = {
    "spark.sql.shuffle.partitions": "2",
    # Each of many small plans would be compiled, for a few rows; the clusters of `make soak` compile theirs.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Each shuffle of a few rows would be a job of its own.
    "spark.sql.adaptive.enabled": "false",
}
ROOT = Path(__file__).parents[2]


JARS = (DELTA, ICEBERG, SPARK_KAFKA, *((S3A,) if IN_S3 else ()))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A commit to Iceberg alone asks a store a hundred times what a disk answers at once."""
    for item in items if IN_S3 else ():
        item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def s3_server(services_folder: Path) -> Iterator[str]:
    """In a process of its own here: who asks Spark's Java or deltalake may hold Python's lock until the store has answered."""
    folder, (port,) = services_folder / "s3", free_ports(1)
    leash, process = Leash(folder), RecordedProcess("s3", folder / "pids" / "s3.pid", folder / "logs" / "s3.log")
    leash.hold(folder)
    try:
        process.start([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)])
        end = time.monotonic() + 60
        while is_free(port):
            assert process.alive and time.monotonic() < end, process.log.read_text()
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.stop()
        leash.release()


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    """Tables and segments of this test are there; `CRKAFKA_TABLES=s3`: in a bucket of its own."""
    if not IN_S3:
        return Place(tmp_path, str(tmp_path), {})
    options = request.getfixturevalue("s3_options")
    references = {name: f"${{env:{variable}}}" for variable, name in SECRETS.items()}
    return Place(tmp_path, f"s3://{request.getfixturevalue('bucket')}", {**options, **references})


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Local, four slots: members take some. With `CRKAFKA_SPARK=connect` a client of a Connect server."""
    opened = through_connect if os.environ.get("CRKAFKA_SPARK") == "connect" else in_this_process
    if not IN_S3:
        yield from opened(tmp_path_factory, {})
        return
    options = request.getfixturevalue("s3_options")
    with pytest.MonkeyPatch.context() as patch:
        for variable, name in SECRETS.items():
            patch.setenv(variable, options[name])  # before Java starts, whose Python tasks read segments
        yield from opened(tmp_path_factory, session.s3a(options))


def through_connect(tmp_path_factory: pytest.TempPathFactory, more: Mapping[str, str]) -> Iterator[SparkSession]:
    """As `open_session` makes it for a region whose `host.spark` is `sc://…`."""
    folder = tmp_path_factory.mktemp("connect")
    with SparkCluster(folder, workers=1, cores=4) as cluster:
        address = cluster.start_connect(
            [jar for each in JARS for jar in each.jars()],
            **{key: value for key, value in session.conf(["delta", "iceberg"]).items() if key in STATIC},
            **{"spark.executor.memory": "512m", **SMALL, **more},
        )
        builder = SparkSession.builder.remote(address)
        for key, value in session.conf(["delta", "iceberg"]).items():
            if key.startswith("spark.sql.") and key not in STATIC:
                builder = builder.config(key, value)
        made = builder.getOrCreate()
        yield made
        made.stop()


def in_this_process(tmp_path_factory: pytest.TempPathFactory, more: Mapping[str, str]) -> Iterator[SparkSession]:
    jars = [jar for each in JARS for jar in each.jars()]
    builder = SparkSession.builder.master("local[4,4]").appName("crkafka tests")
    settings = {
        **session.conf(["delta", "iceberg"]),
        **session.HERE,
        "spark.jars": ",".join(map(str, jars)),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        **SMALL,
        **more,
        "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xshare:auto",
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
