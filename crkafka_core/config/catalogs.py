"""Catalogs of Iceberg tables by Spark's settings in `host.conf`, and which of them can be used without Spark."""

from __future__ import annotations

from collections.abc import Mapping

from crkafka_core.config import location
from crkafka_core.config.location import FOLDER, S3, in_catalog, store_of
from crkafka_core.config.reference import has_reference
from crkafka_core.config.sections import TableConfig
from crkafka_core.model.errors import ConfigError

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
    placed = has_reference(folder) or store_of(folder) in (FOLDER, S3) or (of == "rest" and "://" not in folder)
    return placed and (of != "jdbc" or has_reference(uri) or uri.startswith(_DATABASES))


def has_log(table: TableConfig, conf: Mapping[str, str]) -> bool:
    return location.has_log(table.path) or (table.format == "iceberg" and without_spark(table.path, conf))


def check_place(table: TableConfig, conf: Mapping[str, str]) -> None:
    """ConfigError for a table whose log cannot be reached: only Spark knows its storage or catalog."""
    if has_log(table, conf):
        return
    catalog, _, name = table.path.partition(".")
    if not in_catalog(table.path):
        raise ConfigError(
            f"Table {table.name} is at {location.scheme_of(table.path)}:, where no table can be committed.",
            hint="A table is in a folder, in s3://…, abfss://… or gs://…, or, of Iceberg, in a REST, SQL, Glue or hadoop catalog.",
        )
    if table.format == "delta":
        raise ConfigError(
            f"Table {table.name} is a Delta table by its name in a catalog, which only Spark reaches (Hive, Unity).",
            hint=f"Give it a path, and name it there by CREATE TABLE {name} USING delta LOCATION '…'.",
        )
    raise ConfigError(
        f"Table {table.name} is in the catalog {catalog}, which cannot be used: in Hive metastores, in Unity and in other catalogs of "
        "Spark no table is written.",
        hint=f"Give it a path, or set {PREFIX}{catalog}.type in host.conf to rest, jdbc (SQLite, PostgreSQL, MySQL), glue "
        "or hadoop, with a warehouse in a folder or in s3://….",
    )
