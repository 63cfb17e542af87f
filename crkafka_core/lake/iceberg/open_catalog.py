"""A catalog by its name: with the settings that Spark has of it (`host.conf`), else with pyiceberg's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote

from crkafka_core.config import catalogs
from crkafka_core.config.location import split_endpoint
from crkafka_core.lake.port import CannotCommit
from crkafka_core.model.errors import ConfigError
from crkafka_core.segments.errors import without_secrets

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

S3_OPTIONS = {
    "s3.endpoint": "endpoint",
    "s3.region": "region",
    "s3.access-key-id": "access_key",
    "s3.secret-access-key": "secret_key",
    "s3.session-token": "session_token",
}
"""What pyiceberg calls an option of the storage → what `storage_options` calls it."""
_TYPES = {"rest": "rest", "glue": "glue", "jdbc": "sql"}
_ONLY_SPARK = ("type", "catalog-impl", "io-impl", "cache-enabled", "jdbc.user", "jdbc.password")
_JDBC = re.compile(r"jdbc:(postgresql|mysql)://(?P<rest>.*)")


def open_catalog(name: str, conf: Mapping[str, str], storage: Mapping[str, str]) -> Catalog:
    """One for each name and its settings."""
    return _opened(name, tuple(sorted(properties(name, conf, storage).items())))


def properties(name: str, conf: Mapping[str, str], storage: Mapping[str, str]) -> dict[str, str]:
    """In the words of pyiceberg; only the storage's if Spark has no such catalog, and pyiceberg's own configuration names it.

    `storage`: the region's `storage_options`; settings of the catalog come first.
    """
    made = {of: storage[ours] for of, ours in S3_OPTIONS.items() if storage.get(ours)}
    if "s3.endpoint" in made:
        scheme, place = split_endpoint(storage)
        made["s3.endpoint"] = f"{scheme or 'https'}://{place}"
    given = catalogs.settings(name, conf)
    if not given:
        return made
    kind = catalogs.kind(name, conf)
    if kind not in _TYPES:
        raise CannotCommit(
            f"Catalog {name} is of type {kind or 'unknown'}: no commit reaches it without Spark.",
            hint=f"rest, glue, jdbc and hadoop are reached by {catalogs.PREFIX}{name}.type.",
        )
    made |= {key: value for key, value in given.items() if key not in _ONLY_SPARK} | {"type": _TYPES[kind]}
    if region := made.pop("client.region", ""):
        made |= {"s3.region": region, "glue.region": region}
    if kind == "jdbc":
        made["uri"] = _database(given)
    return made


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
        raise ConfigError(
            f"Catalog {name} cannot be opened: {without_secrets(str(error))}", hint="See docs/tables.md."
        ) from error
