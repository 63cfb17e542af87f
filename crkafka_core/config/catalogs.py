"""Catalogs of Iceberg tables by Spark's settings in `host.conf`, and which of them can be used without Spark."""

from __future__ import annotations

from collections.abc import Mapping

from crkafka_core.config.location import has_log, in_catalog
from crkafka_core.config.reference import has_reference

PREFIX = "spark.sql.catalog."
_IMPLEMENTATIONS = {
    "org.apache.iceberg.rest.RESTCatalog": "rest",
    "org.apache.iceberg.hive.HiveCatalog": "hive",
    "org.apache.iceberg.aws.glue.GlueCatalog": "glue",
    "org.apache.iceberg.jdbc.JdbcCatalog": "jdbc",
    "org.apache.iceberg.hadoop.HadoopCatalog": "hadoop",
}
_NEEDED = {"rest": "uri", "glue": "", "jdbc": "uri", "hadoop": "warehouse"}
"""Kind of catalog that can be used without Spark → the setting that it needs. Not Hive, whose locks only Spark takes."""
_DATABASES = ("jdbc:sqlite:", "jdbc:postgresql:", "jdbc:mysql:")


def settings(name: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Settings of one catalog, without the prefix."""
    of = f"{PREFIX}{name}."
    return {key.removeprefix(of): value for key, value in conf.items() if key.startswith(of)}


def kind(name: str, conf: Mapping[str, str]) -> str:
    """Kind of a catalog: rest, hive, glue, jdbc, hadoop or another type of Spark; empty if the settings have none."""
    given = settings(name, conf)
    return given.get("type") or _IMPLEMENTATIONS.get(given.get("catalog-impl", ""), "")


def warehouse(name: str, conf: Mapping[str, str]) -> str | None:
    """The folder of a catalog that is only a folder of tables (`type: hadoop`)."""
    return settings(name, conf).get("warehouse") if kind(name, conf) == "hadoop" else None


def without_spark(path: str, conf: Mapping[str, str]) -> bool:
    """Whether a table's name is in a catalog that can be used without Spark, with its files in a folder or in S3."""
    name = path.partition(".")[0]
    given, of = settings(name, conf), kind(name, conf)
    if not in_catalog(path) or of not in _NEEDED or (_NEEDED[of] and not given.get(_NEEDED[of])):
        return False
    folder, uri = given.get("warehouse", ""), given.get("uri", "")
    # The warehouse of a REST catalog may be a name known to its server only.
    placed = has_reference(folder) or has_log(folder) or (of == "rest" and "://" not in folder)
    return placed and (of != "jdbc" or has_reference(uri) or uri.startswith(_DATABASES))
