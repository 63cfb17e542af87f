"""A Spark session for a region: by its configuration alone classic or Connect, local or a cluster (SPEC K5)."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Mapping

from pyspark.sql import SparkSession

from crkafka_core.config.region_config import RegionConfig

PACKAGES = {
    "delta": "io.delta:delta-spark_4.1_2.13:4.1.0",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
"""Maven coordinates of the optional formats, for `spark.jars.packages` (FACTS E3)."""

ALWAYS = {
    # Records are wide and few per checkpoint: Arrow keeps them off the row-by-row path.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # A restarted task of a member is no copy of a slow one (SPEC K1).
    "spark.speculation": "false",
    "spark.ui.showConsoleProgress": "false",
}


def conf(formats: Collection[str] = ()) -> dict[str, str]:
    """Settings that the functions of this room rely on, and those of the table formats in use."""
    out = dict(ALWAYS)
    if "delta" in formats:
        # Delta's log is read in 50 tasks by default; ours is short, and each commit reads it several times.
        out["spark.databricks.delta.snapshotPartitions"] = "2"
        out["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
        out["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    return out


def open_session(config: RegionConfig, *, name: str = "", extra: Mapping[str, str] | None = None) -> SparkSession:
    """The session that the region's `host.spark` names; its `host.conf` wins over ours."""
    resolved = config.resolve()
    formats = {t.format for t in config.tables}
    builder = SparkSession.builder
    settings = {**conf(formats), **(extra or {}), **resolved.spark_conf}
    if config.host.connect:
        builder = builder.remote(str(resolved.spark))
        settings = {k: v for k, v in settings.items() if k.startswith("spark.sql.") and k != "spark.sql.extensions"}
    else:
        python = settings.get("spark.pyspark.python") or ("" if config.host.remote else sys.executable)
        if python:
            os.environ.setdefault("PYSPARK_PYTHON", python)  # PySpark takes it from nowhere else
        builder = builder.master(restarting(resolved.spark or "local[*]")).appName(name or f"crkafka {config.region}")
        wanted = [PACKAGES[f] for f in sorted(formats) if f in PACKAGES]
        if wanted and not {"spark.jars", "spark.jars.packages"} & set(settings):
            settings["spark.jars.packages"] = ",".join(wanted)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def restarting(master: str) -> str:
    """A local master that restarts a task that died, as clusters do; by itself it gives up at the first failure (FACTS P3)."""
    if master == "local":
        return "local[1,4]"
    return re.sub(r"^local\[(\*|\d+)\]$", r"local[\1,4]", master)
