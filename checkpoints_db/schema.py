"""Makes the schema, checks it, and opens a store on it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine, inspect

from checkpoints_db.address import Address, parse
from checkpoints_db.engines import SCHEMA, make_engine
from checkpoints_db.migrations import HEAD, VERSION_TABLE, VERSIONS
from checkpoints_db.reader import OnStatement
from checkpoints_db.retry import Patience, is_unreachable, retried, unavailable
from checkpoints_db.store import SqlStore
from checkpoints_db.tables import METADATA
from checkpoints_db.views import create_views, drop_views, keeping_grants, may_alter
from crkafka_core.model.errors import ConfigError, NoControlPlane, SchemaError

T = TypeVar("T")

_FOLDER = Path(__file__).parent / "migrations"
MAKE = "Run `crkafka init`, or in Dagster the job start_region."
_OPENING = Patience(bound=4.0)
"""Short, since nothing is under way yet: the caller may try again."""
_LOCK = 7_230_417_551_022
"""Number of PostgreSQL's advisory lock for making a schema; arbitrary."""


def initialise(url: str, *, patience: Patience | None = None) -> None:
    """Make the control plane, or migrate it to this program's version: atomic, and safe if two processes do it at once."""
    address = parse(url)
    if address.path is not None:
        try:
            address.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Readable by this user only; SQLite gives the files beside it the same mode.
            os.close(os.open(address.path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            hint = "Choose another path in control_plane."
            raise ConfigError(f"The file {address.path} cannot be made: {error.strerror}.", hint=hint) from error
    engine = make_engine(address, may_create=True)
    try:
        _patiently(address, patience or _OPENING, lambda: _refuse_poolers(engine, address))
        _patiently(address, patience or Patience(bound=30.0), lambda: _initialise(engine, address))
    finally:
        engine.dispose()


def open_store(
    url: str,
    *,
    patience: Patience | None = None,
    clock: Callable[[], float] | None = None,
    on_statement: OnStatement | None = None,
) -> SqlStore:
    """A store on a control plane with this program's schema. SQLite in memory is new each time, and made here."""
    address = parse(url)
    store = SqlStore(address, patience=patience, clock=clock, on_statement=on_statement)
    try:
        if address.in_memory:
            with store.engine.begin() as connection:
                METADATA.create_all(connection)
        else:
            _check(store.engine, address, patience or _OPENING)
    except BaseException:
        store.close()
        raise
    return store


def roles() -> str:
    """SQL that makes roles, with row-level security for each region (PostgreSQL)."""
    return Path(__file__).with_name("roles.sql").read_text()


def version_of(connection: Connection) -> str:
    """The schema's version; empty without a schema."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return ""
    versions = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").fetchall()
    return str(versions[0][0]) if versions else ""


def _migrate(connection: Connection, version: str) -> None:
    """Make the tables from the models, or carry those of an older version over, in the open transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    if version:
        command.upgrade(config, "head")
    else:
        METADATA.create_all(connection)
        command.stamp(config, "head")


def _initialise(engine: Engine, address: Address) -> None:
    with engine.connect() as connection:
        if address.postgres:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        elif not address.in_memory:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        version = version_of(connection)
        if version and version not in VERSIONS:
            raise _newer(address, version)
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar() if address.postgres else "UTF8"
        if not version and encoding != "UTF8":
            text = f"The database of the control plane {address} has the encoding {encoding}, and names in Kafka are UTF-8."
            raise ConfigError(text, hint="Make it with `createdb -E UTF8 -T template0 NAME`.")
        if not version and address.postgres and not address.names_a_schema:
            if connection.exec_driver_sql(f"SELECT to_regnamespace('{SCHEMA}') IS NULL").scalar():
                connection.exec_driver_sql(f"CREATE SCHEMA {SCHEMA}")
            connection.exec_driver_sql(f"SET search_path TO {SCHEMA}")
        if version != HEAD or may_alter(connection):
            with keeping_grants(connection):
                if version != HEAD:
                    drop_views(connection)
                    _migrate(connection, version)
                create_views(connection)
        connection.commit()


def _refuse_poolers(engine: Engine, address: Address) -> None:
    """Refuse a pooler that gives each transaction another session: settings, LISTEN and locks belong to one session. No transaction stays
    open meanwhile: with a single session in the pooler, the other connection would wait for it."""
    if not address.postgres:
        engine.connect().close()
        return
    sessions = list[int]()
    with engine.connect() as one, engine.connect() as other:
        for connection in (one, other, one, other):
            sessions.append(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
            connection.rollback()
    if sessions[0] == sessions[1] or sessions[:2] != sessions[2:]:
        raise ConfigError(
            f"A connection pooler before the control plane {address} gives each transaction another session of PostgreSQL.",
            hint="Name PostgreSQL itself in control_plane, or set pool_mode=session for this database in the pooler.",
        )


def _check(engine: Engine, address: Address, patience: Patience) -> None:
    if address.path is not None and not address.path.exists():
        raise NoControlPlane(f"There is no control plane at {address}.", hint=MAKE)

    def version() -> str:
        _refuse_poolers(engine, address)
        with engine.connect() as connection:
            return version_of(connection)

    current = _patiently(address, patience, version)
    if current == HEAD:
        return
    if not current:
        raise NoControlPlane(f"{address} has no tables of a control plane.", hint=MAKE)
    if current not in VERSIONS:
        raise _newer(address, current)
    text = f"The control plane {address} has schema version {current}, this program needs {HEAD}."
    raise SchemaError(text, hint="Run `crkafka init`; it keeps the data.")


def _newer(address: Address, version: str) -> SchemaError:
    return SchemaError(
        f"The control plane {address} has schema version {version}, which this program (version {HEAD}) does not know.",
        hint="Install the newer crkafka that made it; then `crkafka init` and `crkafka check` work again.",
    )


def _patiently(address: Address, patience: Patience, once: Callable[[], T]) -> T:
    return retried(patience, lambda _: once(), lambda e: unavailable(address, e) if is_unreachable(e) else e)
