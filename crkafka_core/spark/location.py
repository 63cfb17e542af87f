"""Paths as Spark's file systems write them, and questions about a session that classic and Connect answer differently (SPEC K5)."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

from crkafka_core.config.location import hadoop_url, store_of
from crkafka_core.model.errors import Refused

_LISTED_BY_DRIVER = 20_000


EXACTLY = {
    "mergeSchema": "false",
    # A session may tolerate files that are missing or broken; rows of a checkpoint never go missing in silence (SPEC K3).
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
"""How Spark's own reader reads what SQL names; options of a read win over settings of the session."""
_TOLERATES = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")


def uri(root: str, relative: str = "") -> str:
    """A storage root or table path, and something below it, as Hadoop's file systems name it."""
    whole = f"{root.rstrip('/')}/{relative}" if relative else root.rstrip("/") or "/"
    return f"file://{whole}" if whole.startswith("/") else hadoop_url(whole)  # spaces are not quoted


def identifier(name: str) -> str:
    """One name in SQL, whatever it is made of."""
    return "`" + name.replace("`", "``") + "`"


def quoted(name: str) -> str:
    """A table's name in a catalog as SQL takes it, also with a hyphen."""
    return ".".join(map(identifier, name.split(".")))


def refuse_tolerant(spark: SparkSession) -> None:
    """For Delta, which heeds these settings of the session and no options of a read: rows would go missing in silence (SPEC K3)."""
    if wrong := [key for key in _TOLERATES if str(spark.conf.get(key, "false")).lower() == "true"]:
        raise Refused(
            f"This session reads over files that are missing or broken ({', '.join(wrong)}): rows of a Delta table would be missing, "
            "and nothing would say so.",
            hint="Set it to false, or read in another session.",
        )


def in_object_store(root: str) -> bool:
    """Whether Spark by itself cannot open this: it would need jars, and credentials in words of its own."""
    return not store_of(root).folders


def is_pattern(root: str) -> bool:
    """Whether Hadoop takes this for a pattern of many names, and not for the one that it is."""
    return any(c in root for c in "*?[]{}\\")


def is_connect(spark: SparkSession) -> bool:
    """Whether this session is a Spark Connect client."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_local(spark: SparkSession) -> bool:
    """Whether tasks of this classic session run in the driver's own process tree."""
    master = spark.sparkContext.master or ""
    return master.startswith("local") and not master.startswith("local-cluster")


def tag_jobs(spark: SparkSession, tag: str) -> None:
    """What this thread asks of Spark from now on can be cancelled by that name."""
    if is_connect(spark):
        spark.addTag(tag)
    else:
        spark.sparkContext.addJobTag(tag)


def cancel_jobs(spark: SparkSession, tag: str) -> None:
    """Cancel jobs by their tag. A classic session knows only the tags of the thread that asks, so there the context's are used."""
    if is_connect(spark):
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)


def slots(spark: SparkSession) -> int:
    """How many tasks run at once, as far as this session can tell; at least 1."""
    if not is_connect(spark):
        return max(1, spark.sparkContext.defaultParallelism)
    for key in ("spark.default.parallelism", "spark.cores.max"):
        known = spark.conf.get(key, "")
        if known and known.isdigit():
            return max(1, int(known))
    # By a column of its own: Spark refuses what is not deterministic as an argument of count.
    return max(1, spark.range(0, 1_000_000).selectExpr("spark_partition_id() AS part").distinct().count())


def cores(spark: SparkSession) -> int:
    """How many tasks get on at once: a local session may have more slots than the machine has cores."""
    there = slots(spark)
    return there if is_connect(spark) or not is_local(spark) else min(there, os.cpu_count() or there)


def list_on_driver(spark: SparkSession) -> None:
    """Let the driver look up the files that we name: a Spark job with a task per file takes longer than reading them (SPEC K7)."""
    key = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    if int(spark.conf.get(key, "32") or 32) < _LISTED_BY_DRIVER:
        spark.conf.set(key, str(_LISTED_BY_DRIVER))
