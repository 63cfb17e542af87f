"""A catalog by its name: with the settings that Spark has of it (`host.conf`), else with pyiceberg's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote

from crkafka_core.lake.port import CannotCommit
from crkafka_core.model.errors import ConfigError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_TYPES = {"rest": "rest", "hive": "hive", "glue": "glue", "jdbc": "sql"}
_IMPLEMENTATIONS = {
    "org.apache.iceberg.rest.RESTCatalog": "rest",
    "org.apache.iceberg.hive.HiveCatalog": "hive",
    "org.apache.iceberg.aws.glue.GlueCatalog": "glue",
    "org.apache.iceberg.jdbc.JdbcCatalog": "jdbc",
}
_ONLY_SPARK = ("type", "catalog-impl", "io-impl", "cache-enabled", "jdbc.user", "jdbc.password")
_JDBC = re.compile(r"jdbc:(postgresql|mysql)://(?P<rest>.*)")


def open_catalog(name: str, conf: Mapping[str, str]) -> Catalog:
    """One for each name and its settings."""
    return _opened(name, tuple(sorted(properties(name, conf).items())))


def warehouse(name: str, conf: Mapping[str, str]) -> str | None:
    """The folder of a catalog that is none but a folder of tables (`type: hadoop`)."""
    return conf.get(f"spark.sql.catalog.{name}.warehouse") if _kind(name, conf) == "hadoop" else None


def properties(name: str, conf: Mapping[str, str]) -> dict[str, str]:
    """In the words of pyiceberg; empty if Spark has no such catalog, and pyiceberg's own configuration names it."""
    prefix = f"spark.sql.catalog.{name}"
    if prefix not in conf:
        return {}
    kind = _kind(name, conf)
    if kind not in _TYPES:
        raise CannotCommit(
            f"Catalog {name} is of type {kind or 'unknown'}: no commit reaches it without Spark.",
            hint=f"rest, hive, glue, jdbc and hadoop are reached by {prefix}.type.",
        )
    given = {key[len(prefix) + 1 :]: value for key, value in conf.items() if key.startswith(f"{prefix}.")}
    made = {key: value for key, value in given.items() if key not in _ONLY_SPARK} | {"type": _TYPES[kind]}
    if region := made.pop("client.region", ""):
        made |= {"s3.region": region, "glue.region": region}
    if kind == "jdbc":
        made["uri"] = _database(given)
    return made


def _kind(name: str, conf: Mapping[str, str]) -> str:
    prefix = f"spark.sql.catalog.{name}"
    return conf.get(f"{prefix}.type") or _IMPLEMENTATIONS.get(conf.get(f"{prefix}.catalog-impl", ""), "")


def _database(given: Mapping[str, str]) -> str:
    """The URL of a JDBC catalog as SQLAlchemy has it. Both keep the same tables there."""
    url = given.get("uri", "")
    if url.startswith("jdbc:sqlite:"):
        return f"sqlite:///{url.removeprefix('jdbc:sqlite:').removeprefix('file:')}"
    if not (found := _JDBC.fullmatch(url)):
        raise CannotCommit("A JDBC catalog is reached in PostgreSQL, MySQL and SQLite.", hint="Let Spark commit.")
    driver = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}[found[1]]
    user, password = given.get("jdbc.user", ""), given.get("jdbc.password", "")
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user else ""
    return f"{driver}://{login}{found['rest']}"


@lru_cache(maxsize=32)
def _opened(name: str, given: tuple[tuple[str, str], ...]) -> Catalog:
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise ConfigError(
            f"Catalog {name} is reached with pyiceberg, which is not installed.",
            hint="pip install 'crkafka[iceberg-catalogs]'",
        ) from error
    try:
        return load_catalog(name, **dict(given))
    except (ValueError, ImportError) as error:
        raise ConfigError(f"Catalog {name} cannot be opened: {error}", hint="See docs/tables.md.") from error
