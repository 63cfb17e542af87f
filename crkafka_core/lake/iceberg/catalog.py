"""An Iceberg table in a catalog that pyiceberg reaches: SQL, REST, Glue (SPEC K6).

A catalog is opened with the settings that Spark has of it (`host.conf`), else with pyiceberg's own. Manifests are our own.
The catalog gets the new snapshot by its public `commit_table`, which tries once, and compares the table's uuid, main, schema and spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

import pyarrow as pa
from pydantic import TypeAdapter
from pyiceberg import exceptions
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate

from crkafka_core.config import catalogs
from crkafka_core.config.location import split_endpoint
from crkafka_core.lake.formats import folder_of
from crkafka_core.lake.iceberg import columns, partitions, stamps
from crkafka_core.lake.iceberg.metadata import MAIN, Metadata, Update
from crkafka_core.lake.iceberg.table import IcebergLog, IcebergSnapshot
from crkafka_core.lake.port import CannotCommit, Moved, Part, Stamp, TableUnavailable, Unknown
from crkafka_core.model.errors import ConfigError, CrkafkaError
from crkafka_core.segments.errors import first_line, without_secrets
from crkafka_core.segments.storage import Storage

_S3_OPTIONS = {
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
_REQUIREMENTS: TypeAdapter[tuple[TableRequirement, ...]] = TypeAdapter(tuple[TableRequirement, ...])
_UPDATES: TypeAdapter[tuple[TableUpdate, ...]] = TypeAdapter(tuple[TableUpdate, ...])


@dataclass(frozen=True)
class _Loaded:
    table: Table
    file: str


class CatalogLog(IcebergLog):
    """`identifier`: `schema.table` in the catalog. `options`: of the storage, as the region has them; a catalog's own come first."""

    placed_late = True

    def __init__(
        self, catalog: Catalog, identifier: str, options: Mapping[str, str] | None = None, name: str = ""
    ) -> None:
        self._catalog, self._identifier, self._options = catalog, identifier, dict(options or {})
        self.name = name or f"{catalog.name}.{identifier}"
        self._opened: tuple[str, Mapping[str, str], Storage] | None = None

    @property
    def storage(self) -> Storage:  # type: ignore[override]
        """Where the catalog has put the table; refused before it is made."""
        if self._opened is None and self.newest() is None:
            raise TableUnavailable(f"Table {self.name} is not in its catalog.", hint="Was it dropped?")
        assert self._opened is not None
        return self._opened[2]

    def newest(self) -> tuple[Metadata, _Loaded] | None:
        with self._errors("read"):
            try:
                table = self._catalog.load_table(self._identifier)
            except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError):
                return None
        self._open(table)
        return _content(table.metadata), _Loaded(table, table.metadata_location)

    def create(
        self, schema: pa.Schema, parts: Sequence[Part], stamp: Stamp, properties: Mapping[str, str]
    ) -> IcebergSnapshot:
        """A table whose first snapshot is missing yet has the stamp already, as a property."""
        first = columns.new_schema(schema)
        spec = PartitionSpec.model_validate(partitions.new_spec(parts, first))
        about = {TableProperties.FORMAT_VERSION: "2", **properties, **stamps.state(stamp)}
        with self._errors("made"):
            try:
                self._catalog.create_namespace_if_not_exists(self._identifier.rpartition(".")[0])
                self._catalog.create_table(
                    self._identifier, Schema.model_validate(first), partition_spec=spec, properties=about
                )
            except exceptions.TableAlreadyExistsError as error:
                raise Moved(f"There is a table {self.name} already.") from error
        made = self.look()
        if made is None or made.metadata.head is not None:
            raise Moved(f"Table {self.name} has changed since it was made.")
        return made.commit(stamp)

    def put(self, base: Metadata, at: _Loaded, updates: Sequence[Update]) -> tuple[Metadata, _Loaded]:
        head = base.head and base.head["snapshot-id"]
        requirements = [
            {"type": "assert-table-uuid", "uuid": base.uuid},
            {"type": "assert-ref-snapshot-id", "ref": MAIN, "snapshot-id": head},
            {"type": "assert-current-schema-id", "current-schema-id": base.content["current-schema-id"]},
            {"type": "assert-default-spec-id", "default-spec-id": base.content["default-spec-id"]},
        ]
        try:
            made = self._catalog.commit_table(
                at.table, _REQUIREMENTS.validate_python(requirements), _UPDATES.validate_python(updates)
            )
        except (exceptions.CommitFailedException, exceptions.NoSuchTableError) as error:
            # A client tries again by itself after an answer that got lost, and is refused for its own first try. A snapshot that is in
            # the table needs its manifests, which are deleted after `Moved`.
            added = {each["snapshot"]["snapshot-id"] for each in updates if each["action"] == "add-snapshot"}
            newest = self.newest() if added else None
            kind = Moved if newest is None or added.isdisjoint(newest[0].snapshots) else Unknown
            raise kind(f"Table {self.name} has changed since it was looked at: {first_line(error)}") from error
        except NotImplementedError as error:
            raise CannotCommit(f"Table {self.name} is not written by pyiceberg: {first_line(error)}") from error
        except Exception as error:  # of whatever the catalog is reached by
            raise Unknown(f"Whether the commit is in table {self.name} is not known: {first_line(error)}") from error
        return _content(made.metadata), _Loaded(at.table, made.metadata_location)

    def _open(self, table: Table) -> None:
        given = {ours: table.io.properties[key] for key, ours in _S3_OPTIONS.items() if table.io.properties.get(key)}
        options = {**self._options, **given}
        location = table.location()
        if self._opened is None or self._opened[:2] != (location, options):
            self._opened = location, options, folder_of(location, options)

    @contextmanager
    def _errors(self, done: str) -> Iterator[None]:
        """What the catalog's client raises, as an error with the table's name."""
        try:
            yield
        except CrkafkaError:
            raise
        except Exception as error:  # of whatever the catalog is reached by
            raise TableUnavailable(
                f"Table {self.name} could not be {done}: {first_line(error)}.", hint="It is tried again."
            ) from error


def _content(metadata: TableMetadata) -> Metadata:
    return Metadata(metadata.model_dump(mode="json"))


def open_catalog(name: str, conf: Mapping[str, str], storage: Mapping[str, str]) -> Catalog:
    return _opened(name, tuple(sorted(properties(name, conf, storage).items())))


def properties(name: str, conf: Mapping[str, str], storage: Mapping[str, str]) -> dict[str, str]:
    """In the words of pyiceberg; only the storage's if Spark has no such catalog, and pyiceberg's own configuration names it.

    `storage`: the region's `storage_options`; settings of the catalog come first.
    """
    made = {theirs: storage[ours] for theirs, ours in _S3_OPTIONS.items() if storage.get(ours)}
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
    if not (match := _JDBC.fullmatch(url)):
        raise CannotCommit("A JDBC catalog is reached in PostgreSQL, MySQL and SQLite.", hint="Let Spark commit.")
    driver = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}[match[1]]
    user, password = given.get("jdbc.user", ""), given.get("jdbc.password", "")
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user else ""
    return f"{driver}://{login}{match['rest']}"


@lru_cache(maxsize=32)
def _opened(name: str, given: tuple[tuple[str, str], ...]) -> Catalog:
    try:
        return load_catalog(name, **dict(given))
    except (ValueError, ImportError) as error:
        raise ConfigError(
            f"Catalog {name} cannot be opened: {without_secrets(str(error))}", hint="See docs/tables.md."
        ) from error
