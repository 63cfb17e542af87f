"""Where an Iceberg table is: at a path (`…/warehouse/name`), or, when that is not a path but an identifier, in a catalog of the session."""

from __future__ import annotations

import hashlib
import re

from pyspark.sql import SparkSession

from crkafka_core.spark import location

_OURS = re.compile("crkafka_[0-9a-f]{12}")
"""Catalogs that `named` makes, which keep nothing."""


def named(spark: SparkSession, path: str) -> str:
    """The table's name in SQL. A folder of tables becomes a catalog of this session."""
    if not is_path(path):
        return location.quoted(path)
    parent, name = path.rstrip("/").rsplit("/", 1)
    catalog = f"crkafka_{hashlib.blake2b(parent.encode(), digest_size=6).hexdigest()}"
    key = f"spark.sql.catalog.{catalog}"
    if not spark.conf.get(key, ""):
        spark.conf.set(f"{key}.type", "hadoop")
        spark.conf.set(f"{key}.warehouse", plain(location.uri(parent)))
        spark.conf.set(f"{key}.cache-enabled", "false")
        spark.conf.set(key, "org.apache.iceberg.spark.SparkCatalog")
    return f"{catalog}.`{name}`"


def look_anew(spark: SparkSession, name: str) -> None:
    """Let a catalog forget how it has loaded this table: by Iceberg's default it sees nothing of what other sessions commit."""
    if not _OURS.fullmatch(name.partition(".")[0]):
        spark.sql(f"REFRESH TABLE {name}").collect()


def is_path(path: str) -> bool:
    return "/" in path


def plain(uri: str) -> str:
    """Hadoop's own spelling of a local folder."""
    return uri.removeprefix("file://")
