"""Engines: how connections to each database are made, and their settings."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import QueuePool, StaticPool

from checkpoints_db.address import Address
from checkpoints_db.retry import READ_ONLY, is_no_database, is_schema, sqlstate
from crkafka_core.config.resolving import read_again

_CONNECT_TIMEOUT = 5
SCHEMA = "crkafka"
"""Schema of our tables in PostgreSQL: the database may have other users, such as Dagster."""
FIND_SCHEMA = (
    f"SELECT set_config('search_path', '{SCHEMA}', false) WHERE to_regclass('{SCHEMA}.crkafka_version') IS NOT NULL"
)
"""First query of each connection. The control plane of an older version stays in its schema."""
NOTICE_DEATH = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 25_000}
"""Detects within 25 s a server that vanished silently, as in a failover to another machine. The last setting is for a connection with a
request under way: Linux would retransmit it for a quarter of an hour, and send no keepalives meanwhile."""
_POSTGRES_SETTINGS = (
    # A process that is frozen or disconnected with a lock on the region's row must not block the region (SPEC G7).
    "SET idle_in_transaction_session_timeout = '20s'",
    "SET lock_timeout = '5s'",
    "SET statement_timeout = '120s'",
    "SET timezone = 'UTC'",
)
_SQLITE_BUSY_SLICE = 1.0
"""Seconds that SQLite itself waits for the lock; longer waits are in `retry`, with jitter."""


def make_engine(address: Address, *, may_create: bool = False) -> Engine:
    """An engine; creates a missing SQLite file only if it `may_create`."""
    if address.postgres:
        engine = _postgres(address)
    elif address.path is not None:
        engine = _sqlite_file(address.path, may_create)
    else:
        arguments = {"check_same_thread": False, "isolation_level": None, "cached_statements": 256}
        return create_engine("sqlite://", poolclass=StaticPool, connect_args=arguments, hide_parameters=True)
    event.listen(engine, "handle_error", _drop_unusable)
    return engine


def connect_sqlite(path: Path, *, may_create: bool = False) -> sqlite3.Connection:
    """A plain connection to a file, with our settings."""
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode={'rwc' if may_create else 'rw'}",
        uri=True,
        timeout=_SQLITE_BUSY_SLICE,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal" and (may_create or path.stat().st_size):
            # Not in an empty file, into which a backup may be copied now.
            connection.execute("PRAGMA journal_mode = WAL")
        # FULL: an acknowledged merge must survive a power cut, else SQL would go back in time (SPEC G10).
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA cache_size = -8000")
        connection.execute("PRAGMA journal_size_limit = 67108864")
    except BaseException:
        connection.close()
        raise
    return connection


def _sqlite_file(path: Path, may_create: bool) -> Engine:
    connect = partial(connect_sqlite, path, may_create=may_create)
    engine = create_engine(
        "sqlite://", creator=connect, poolclass=QueuePool, pool_size=5, max_overflow=-1, hide_parameters=True
    )

    def remember(_connection: Any, record: Any) -> None:
        record.info["file"] = file_at(path)

    def check(_connection: Any, record: Any, _proxy: Any) -> None:
        if record.info["file"] != file_at(path):
            raise DisconnectionError("the file was replaced")  # the pool connects again

    event.listen(engine, "connect", remember)
    event.listen(engine, "checkout", check)
    return engine


def file_at(path: Path) -> tuple[int, int] | None:
    """Identity of the file at a path. A restored backup is another file, and open connections still read the old one."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _postgres(address: Address) -> Engine:
    usual = {"connect_timeout": _CONNECT_TIMEOUT, "client_encoding": "utf8", "application_name": "crkafka"}
    engine = create_engine(
        address.url,
        connect_args={k: v for k, v in {**usual, **NOTICE_DEATH}.items() if k not in address.url.query},
        # A mutation that waited for the region's row must see commits meanwhile, whatever the database's or the role's default. Set
        # on the engine: the pool resets a connection that read a snapshot to this level (SPEC G7).
        isolation_level="READ COMMITTED",
        pool_size=5,
        max_overflow=20,
        pool_timeout=_CONNECT_TIMEOUT,
        hide_parameters=True,
    )
    settings = "; ".join(_POSTGRES_SETTINGS if address.names_a_schema else (*_POSTGRES_SETTINGS, FIND_SCHEMA))

    def renew(_dialect: Any, _record: Any, _arguments: Any, parameters: dict[str, Any]) -> None:
        parameters |= renewed(parameters)

    def set_up(connection: Any, _record: Any) -> None:
        before, connection.autocommit = connection.autocommit, True
        connection.execute(settings)
        connection.autocommit = before

    event.listen(engine, "do_connect", renew)
    event.listen(engine, "connect", set_up)
    return engine


def _drop_unusable(context: Any) -> None:
    """Drop a connection whose state stays as it was at its start: on a server that is a replica since a failover, without the tables of
    a dump that was restored since, or with half a file."""
    error = context.original_exception
    if sqlstate(error) == READ_ONLY or is_schema(error) or is_no_database(error):
        context.is_disconnect = True


def renewed(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The passwords, read again from their files: they may have changed since this process began (SPEC U2)."""
    given = {name: parameters[name] for name in ("password", "sslpassword") if parameters.get(name)}
    return {name: read_again(value, kafka=False) for name, value in given.items()}
