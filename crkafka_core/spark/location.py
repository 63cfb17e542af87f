"""Paths in the form of Spark's file systems, and properties of a session, classic or Connect (SPEC K5)."""

from __future__ import annotations

import hashlib
import os

from pyspark.sql import SparkSession

from crkafka_core.config.location import hadoop_url, in_catalog


def uri(root: str, relative: str = "") -> str:
    """A storage root or table path, and a path below it, as Hadoop's file systems name it."""
    whole = f"{root.rstrip('/')}/{relative}" if relative else root.rstrip("/") or "/"
    return f"file://{whole}" if whole.startswith("/") else hadoop_url(whole)  # spaces are not quoted


def iceberg_name(spark: SparkSession, path: str) -> str:
    """The name in SQL of an Iceberg table, at a path (`…/warehouse/name`) or in a catalog. A path gets a catalog of this session."""
    if in_catalog(path):
        return ".".join("`" + part.replace("`", "``") + "`" for part in path.split("."))
    parent, name = path.rstrip("/").rsplit("/", 1)
    catalog = f"crkafka_{hashlib.blake2b(parent.encode(), digest_size=6).hexdigest()}"
    key = f"spark.sql.catalog.{catalog}"
    if not spark.conf.get(key, ""):
        spark.conf.set(f"{key}.type", "hadoop")
        spark.conf.set(f"{key}.warehouse", uri(parent).removeprefix("file://"))
        spark.conf.set(f"{key}.cache-enabled", "false")
        spark.conf.set(key, "org.apache.iceberg.spark.SparkCatalog")
    return f"{catalog}.`{name}`"


def is_connect(spark: SparkSession) -> bool:
    """Whether this session is a Spark Connect client."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_local(spark: SparkSession) -> bool:
    """Whether tasks of this classic session run in the driver's own process tree."""
    master = spark.sparkContext.master or ""
    return master.startswith("local") and not master.startswith("local-cluster")


def tag_jobs(spark: SparkSession, tag: str) -> None:
    """Tag the jobs that this thread starts from now on."""
    if is_connect(spark):
        spark.addTag(tag)
    else:
        spark.sparkContext.addJobTag(tag)


def cancel_jobs(spark: SparkSession, tag: str) -> None:
    """Cancel jobs by their tag, in a classic session by the context: the session itself knows only tags of this thread."""
    if is_connect(spark):
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)


def slots(spark: SparkSession) -> int:
    """Number of tasks that run at once, as far as the session knows; at least 1."""
    if not is_connect(spark):
        return max(1, spark.sparkContext.defaultParallelism)
    for key in ("spark.default.parallelism", "spark.cores.max"):
        known = spark.conf.get(key, "")
        if known and known.isdigit():
            return max(1, int(known))
    # In a column: Spark refuses an expression that is not deterministic as an argument of count.
    return max(1, spark.range(0, 1_000_000).selectExpr("spark_partition_id() AS part").distinct().count())


def cores(spark: SparkSession) -> int:
    """Number of tasks that make progress at once: a local session may have more slots than the machine has cores."""
    known = slots(spark)
    return known if is_connect(spark) or not is_local(spark) else min(known, os.cpu_count() or known)
