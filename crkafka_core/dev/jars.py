"""Jars from Maven Central, fetched by the Ivy inside PySpark's wheel (docs/clients.md C-E1), kept in the cache folder."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crkafka_core import maven
from crkafka_core.dev.cache import cache_folder, exclusively
from crkafka_core.dev.errors import ServiceFailed
from crkafka_core.dev.find_java import find_java
from crkafka_core.dev.trust import PASSWORD, write_trust_store

_IVY_FILE = """<ivy-module version="2.0">
  <info organisation="crkafka" module="{name}"/>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""


@dataclass(frozen=True)
class JarSet:
    """A named set of jars, with their dependencies if `transitive`."""

    name: str
    coordinates: tuple[str, ...]
    """`group:artifact:version`, Maven's notation."""
    transitive: bool = True
    exclude: tuple[str, ...] = field(default=())
    """Patterns `group:artifact` of excluded dependencies; `*` matches everything."""

    @property
    def folder(self) -> Path:
        return cache_folder() / "jars" / self.name

    def jars(self) -> list[Path]:
        """The jars' paths; fetches missing jars first."""
        if not self.complete:
            with exclusively(cache_folder() / "jars" / ".lock"):
                if not self.complete:
                    self._fetch()
                    self.verify()
                    self._done.write_text(repr(self))
        return sorted(self.folder.glob("*.jar"))

    def verify(self) -> None:
        """Refuse jars whose hashes differ from those in jars.sha256, which has none for a version of your choice."""
        known = hashes_of(self.name)
        if not known:
            return
        fetched = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in self.folder.glob("*.jar")}
        wrong = sorted(name for name in known.keys() | fetched.keys() if known.get(name) != fetched.get(name))
        if wrong:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise ServiceFailed(
                f"jars of {self.name}",
                f"{wrong[0]} is not the file whose SHA-256 crkafka_core/dev/jars.sha256 has; nothing of the set was kept",
                hint="Does a proxy between this machine and Maven Central change files?",
            )

    @property
    def complete(self) -> bool:
        """Whether exactly this set is in the cache."""
        return self._done.is_file() and self._done.read_text() == repr(self)

    @property
    def _done(self) -> Path:
        return self.folder / "COMPLETE"

    def _fetch(self) -> None:
        """Fetch by Ivy; with Python's trusted certificates if Java does not know the authority of a proxy."""
        try:
            self._ask_ivy()
        except ServiceFailed as failed:
            store = write_trust_store(cache_folder() / "ivy" / "trust.jks") if "PKIX" in str(failed) else None
            if store is None:
                raise
            trust = (f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStoreType=JKS")
            self._ask_ivy(*trust, f"-Djavax.net.ssl.trustStorePassword={PASSWORD}")

    def _ask_ivy(self, *java_options: str) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        ivy_file = self.folder / "ivy.xml"
        ivy_file.write_text(_IVY_FILE.format(name=self.name, dependencies="\n".join(self._dependencies())))
        ivy_home = cache_folder() / "ivy"
        command = [
            str(find_java()),
            f"-Duser.home={ivy_home}",  # the user's home is neither read nor written
            f"-Divy.default.ivy.user.dir={ivy_home}",
            *java_options,
            *("-jar", str(_ivy_jar())),
            *("-cache", str(ivy_home / "cache")),
            *("-ivy", str(ivy_file)),
            *("-confs", "default"),
            *("-types", "jar", "bundle"),
            *("-retrieve", f"{self.folder}/[artifact]-[revision](-[classifier]).[ext]"),
        ]
        log = self.folder / "ivy.log"
        with log.open("wb") as output:
            code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
        missing = re.findall(r":: (\S+#\S+;\S+): not found", log.read_text(errors="replace"))
        if code != 0 or missing or not list(self.folder.glob("*.jar")):
            what = f"could not fetch {', '.join(missing or self.coordinates)}"
            raise ServiceFailed(f"jars of {self.name}", what, log=log, hint="Is Maven Central reachable?")

    def _dependencies(self) -> Sequence[str]:
        lines = []
        for coordinate in self.coordinates:
            organisation, artifact, version = coordinate.split(":")
            lines.append(
                f'    <dependency org="{organisation}" name="{artifact}" rev="{version}" conf="default->default"'
                f' transitive="{str(self.transitive).lower()}"/>'
            )
        for pattern in self.exclude:
            organisation, artifact = pattern.split(":")
            lines.append(f'    <exclude org="{organisation}" module="{artifact}"/>')
        return lines


def hashes_of(name: str) -> dict[str, str]:
    """SHA-256 of each jar of a set, from jars.sha256."""
    lines = Path(__file__).with_name("jars.sha256").read_text().splitlines()
    entries = (line.split() for line in lines if line and not line.startswith("#"))
    return {path.partition("/")[2]: digest for digest, path in entries if path.partition("/")[0] == name}


def write_hashes() -> None:
    """`python -m crkafka_core.dev.jars`: fetch all sets and write their hashes; compare these with the publishers' first."""
    lines = ["# SHA-256 of each jar of each set, as `sha256sum` writes it; made by `python -m crkafka_core.dev.jars`."]
    for jar_set in KNOWN:
        for jar in jar_set.jars():
            lines.append(f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {jar_set.name}/{jar.name}")
    Path(__file__).with_name("jars.sha256").write_text("\n".join(lines) + "\n")


def _ivy_jar() -> Path:
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise ServiceFailed("jars", "PySpark is not installed, and with it the Ivy that fetches jars")
    jars = sorted((Path(pyspark.origin).parent / "jars").glob("ivy-*.jar"))
    if not jars:
        raise ServiceFailed("jars", f"this PySpark ({Path(pyspark.origin).parent}) has no Ivy jar")
    return jars[-1]


KAFKA_VERSION = os.environ.get("CRKAFKA_KAFKA_VERSION", "4.1.1")
SPARK_VERSION = "4.1.3"

KAFKA = JarSet(
    f"kafka-{KAFKA_VERSION}",
    (
        f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",  # without it the nodes log nothing at all
    ),
)

# Jars of Spark itself are excluded, so that its class path never has two versions of a class.
_OF_SPARK = (
    *("org.slf4j:*", "org.apache.logging.log4j:*", "com.google.code.findbugs:*", "org.scala-lang:*"),
    *("org.lz4:*", "at.yawk.lz4:*", "org.xerial.snappy:*", "com.github.luben:*"),
)

_HADOOP_AND_PARQUET = (
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.parquet:*",
)

DELTA = JarSet(f"delta-{maven.DELTA_VERSION}", maven.DELTA, exclude=(*_OF_SPARK, *_HADOOP_AND_PARQUET))

ICEBERG = JarSet("iceberg-1.12.0", maven.ICEBERG, exclude=_OF_SPARK)

S3A = JarSet("s3a-3.4.2", maven.S3A, exclude=(*_OF_SPARK, *maven.NOT_NEEDED))

# Spark's own Kafka source, for comparisons; its token provider is released as 4.0.0 only (docs/clients.md C-E4).
SPARK_KAFKA = JarSet(
    f"spark-kafka-{SPARK_VERSION}",
    (
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.commons:commons-pool2:2.12.1",
        "org.apache.kafka:kafka-clients:3.9.1",
    ),
    transitive=False,
    exclude=_OF_SPARK,
)

ALL = (KAFKA, DELTA, ICEBERG, SPARK_KAFKA)
"""Sets of the environment; long tests with tables in S3 fetch theirs."""
KNOWN = (*ALL, S3A)
"""Sets with hashes in jars.sha256."""

if __name__ == "__main__":
    write_hashes()
