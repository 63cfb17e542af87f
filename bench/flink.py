"""Flink beside us: its jars from the Python package index, its connectors by Maven coordinates, all in a folder of the cache.

One JVM takes SQL statements (`Statements.java`), so what follows its first run is warm. Its settings are the best of those that were tried
(docs/speed.md). Checkpoints are exactly-once, every five seconds, as the region's cuts (every one or two was no quicker); the sink
commits Parquet files with them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pyspark

from crkafka_core.dev.cache import cache_folder, exclusively
from crkafka_core.dev.find_java import find_java
from crkafka_core.dev.jars import JarSet

VERSION = "2.3.0"
CONNECTORS = JarSet(
    f"flink-{VERSION}",
    (
        "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2",
        f"org.apache.flink:flink-sql-parquet:{VERSION}",
    ),
    transitive=False,
)
SETTINGS = {
    "execution.checkpointing.interval": "5s",
    "restart-strategy.type": "none",  # what fails is told at once
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSlots": "2",
    "pipeline.object-reuse": "true",
}
CONSUMER = {"max.poll.records": "5000", "max.partition.fetch.bytes": "4194304", "check.crcs": "true"}
PARQUET = {"compression": "LZ4_RAW", "enable.dictionary": "false"}
_OPENED = (
    *("java.lang", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.text", "java.time", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks"),
)
"""What Flink's own start scripts open of Java."""
_SOURCE = """CREATE TABLE source (`key` BYTES, `value` BYTES, `topic` STRING METADATA VIRTUAL, `partition` INT METADATA VIRTUAL,
`offset` BIGINT METADATA VIRTUAL, `timestamp` TIMESTAMP_LTZ(3) METADATA VIRTUAL, `timestamp-type` STRING METADATA VIRTUAL)
WITH ('connector'='kafka', 'topic'='{topic}', 'properties.bootstrap.servers'='{bootstrap}', 'properties.group.id'='flink', {consumer},
'scan.startup.mode'='earliest-offset', 'scan.bounded.mode'='latest-offset', 'key.format'='raw', 'key.fields'='key',
'value.format'='raw', 'value.fields-include'='EXCEPT_KEY')"""
_SINK = """CREATE TABLE {name} (`key` BYTES, `value` BYTES, `topic` STRING, `partition` INT, `offset` BIGINT, `timestamp` TIMESTAMP(3),
`timestampType` STRING) WITH ('connector'='filesystem', 'path'='{folder}', 'format'='parquet', {parquet})"""
_RUN = """INSERT INTO {name} SELECT `key`, `value`, `topic`, `partition`, `offset`, CAST(`timestamp` AS TIMESTAMP(3)), `timestamp-type`
FROM source"""


def class_path() -> str:
    """Flink, its connectors, and what its Parquet needs: Hadoop and LZ4, which PySpark brings."""
    home = cache_folder() / f"flink-{VERSION}"
    with exclusively(cache_folder() / f"flink-{VERSION}.lock"):
        if not home.is_dir():
            part = home.with_name(home.name + ".part")
            shutil.rmtree(part, ignore_errors=True)
            install = ["install", "--quiet", "--no-deps", "--target", str(part), f"apache-flink-libraries=={VERSION}"]
            subprocess.run([sys.executable, "-m", "pip", *install], check=True)
            part.rename(home)
    of_spark = Path(pyspark.__path__[0]) / "jars"
    hadoop = [
        str(jar)
        for name in ("hadoop-client-*", "jcl-over-slf4j-*", "aircompressor-*")
        for jar in sorted(of_spark.glob(f"{name}.jar"))
    ]
    return os.pathsep.join([str(home / "pyflink" / "lib" / "*"), *map(str, CONNECTORS.jars()), *hadoop])


class Flink:
    """Takes statements; each call returns when its statement has ended."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def run(self, statement: str) -> float:
        """Seconds."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(" ".join(statement.split()) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"Flink ended: {self._log.read_text()[-2000:]}")
        return float(answer)

    def land(self, name: str, folder: Path, rows: int) -> float:
        """Seconds of a run from the topic's beginning to its end; what it wrote is counted and removed."""
        self.run(_SINK.format(name=name, folder=folder.as_uri(), parquet=_options(PARQUET, "parquet.")))
        took = self.run(_RUN.format(name=name))
        files = [path for path in folder.rglob("part-*") if path.is_file()]
        landed = sum(pq.ParquetFile(path).metadata.num_rows for path in files)
        if landed != rows:
            raise AssertionError(f"Flink landed {landed} of {rows} rows")
        shutil.rmtree(folder)
        return took


@contextmanager
def started(bootstrap: str, topic: str, folder: Path) -> Iterator[Flink]:
    settings = {**SETTINGS, "execution.checkpointing.dir": (folder / "checkpoints").as_uri()}
    folder.mkdir(exist_ok=True)
    command = [
        str(find_java()),
        "-Xmx2g",
        "-XX:+UseParallelGC",
        *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED),
        "-cp",
        class_path(),
        str(Path(__file__).parent / "Statements.java"),
        *(f"{k}={v}" for k, v in settings.items()),
    ]
    log = folder / "flink.log"
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
    with process:
        try:
            flink = Flink(process, log)
            flink.run(_SOURCE.format(topic=topic, bootstrap=bootstrap, consumer=_options(CONSUMER, "properties.")))
            yield flink
        finally:
            process.kill()


def _options(given: dict[str, str], prefix: str) -> str:
    return ", ".join(f"'{prefix}{name}'='{value}'" for name, value in given.items())
