"""A Spark session for a region: by its configuration alone classic or Connect, local or a cluster (SPEC K5)."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from crkafka_core import maven
from crkafka_core.config.location import split_endpoint
from crkafka_core.config.reference import has_reference
from crkafka_core.config.region_config import RegionConfig
from crkafka_core.dev.cache import cache_folder
from crkafka_core.spark import launch, location

S3 = "s3"
PACKAGES = {"delta": maven.DELTA, "iceberg": maven.ICEBERG, S3: maven.S3A}
"""Format, or `s3` → its coordinates in `spark.jars.packages`."""
EXTENSIONS = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}
"""Format → its class in `spark.sql.extensions`."""

OWN_JARS = {"spark.jars", "spark.jars.packages"}
"""Settings of `host.conf` that replace our jars."""
IVY = "spark.jars.ivy"

ALWAYS = {
    # Records are wide and few per checkpoint: Arrow keeps them off the row-by-row path.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # Any reader knows it, and footers have its bounds; neither is so of Spark's INT96.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A restarted task of a member is not a copy of a slow one (SPEC K1).
    "spark.speculation": "false",
    "spark.ui.showConsoleProgress": "false",
}


HERE = {"spark.python.daemon.module": "crkafka_core.spark.daemon"}
"""Settings of a local session of this Python installation, whose tasks start sooner with them."""


def conf(formats: Collection[str] = ()) -> dict[str, str]:
    """Settings for this package, and for table formats."""
    out = dict(ALWAYS)
    if "delta" in formats:
        # Delta's log is read in 50 tasks by default; ours is short, and each commit reads it several times.
        out["spark.databricks.delta.snapshotPartitions"] = "2"
        out["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    if extensions := [EXTENSIONS[each] for each in ("delta", "iceberg") if each in formats]:
        out["spark.sql.extensions"] = ",".join(extensions)
    return out


def open_session(
    config: RegionConfig, *, extra: Mapping[str, str] | None = None, log: Path | None = None
) -> SparkSession:
    """The session of the region's `host.spark`, whose `host.conf` wins over our settings. Java writes to `log`; None: to our output."""
    resolved = config.resolve()
    formats = {t.format for t in config.tables}
    settings = {**conf(formats), **(extra or {}), **resolved.spark_conf}
    if config.host.connect:
        builder = SparkSession.builder.remote(str(resolved.spark))
        for key, value in settings.items():
            if key.startswith("spark.sql.") and key != "spark.sql.extensions":
                builder = builder.config(key, value)
        return builder.getOrCreate()
    python = settings.get("spark.pyspark.python") or ("" if config.host.remote else sys.executable)
    if python:
        os.environ.setdefault("PYSPARK_PYTHON", python)  # PySpark reads it only there
    # A local master is made to restart failed tasks, as clusters do by themselves (docs/clients.md C-P3).
    master = re.sub(r"^local\[(\*|\d+)\]$", r"local[\1,4]", resolved.spark or "local[*]")
    master = "local[1,4]" if master == "local" else master
    if master.startswith("local[") and os.environ["PYSPARK_PYTHON"] == sys.executable:
        settings = {**HERE, **settings}
    if S3 in _needs(config):
        settings = {**s3a(resolved.storage_options), **settings}
    packages = [name for each in _needs(config) for name in PACKAGES[each]]
    if packages and not OWN_JARS & set(settings):
        settings["spark.jars.packages"] = ",".join(packages)
        settings.setdefault("spark.jars.excludes", ",".join(maven.NOT_NEEDED))
        settings.setdefault(IVY, str(cache_folder() / "ivy"))
    settings |= {"spark.master": master, "spark.app.name": f"crkafka {config.region}"}
    hidden = {k for k, v in config.host.conf.items() if has_reference(v)}
    return launch.start(settings, hidden=hidden, log=log)


def _needs(config: RegionConfig) -> list[str]:
    """The `PACKAGES` for the region's tables."""
    in_s3 = any(location.uri(t.path).startswith("s3a://") for t in config.tables)
    return sorted(({t.format for t in config.tables} | ({S3} if in_s3 else set())) & PACKAGES.keys())


def fetches(config: RegionConfig) -> list[str]:
    """The packages whose jars are not in the cache, so that the session's start fetches them."""
    given = config.host.conf
    if config.host.connect or OWN_JARS & given.keys():
        return []
    cache = Path(given.get(IVY) or cache_folder() / "ivy") / "jars"

    def cached(coordinate: str) -> bool:
        return (cache / f"{coordinate.replace(':', '_', 1).replace(':', '-')}.jar").is_file()

    return [each for each in _needs(config) if not all(map(cached, PACKAGES[each]))]


def s3a(options: Mapping[str, str]) -> dict[str, str]:
    """The region's `storage_options` as settings of Hadoop's S3A, by which Spark reads tables; the environment has the others."""
    endpoint, (scheme, _) = options.get("endpoint", ""), split_endpoint(options)
    settings = {
        "endpoint": endpoint,
        "endpoint.region": options.get("region", ""),
        "path.style.access": "true" if endpoint else "",
        "connection.ssl.enabled": "false" if endpoint and scheme == "http" else "",
        "access.key": options.get("access_key", ""),
        "secret.key": options.get("secret_key", ""),
        "session.token": options.get("session_token", ""),
    }
    return {f"spark.hadoop.fs.s3a.{key}": value for key, value in settings.items() if value}
