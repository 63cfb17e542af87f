"""The store of a control plane's rows in SQLite or PostgreSQL."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from sqlalchemy import Connection, Engine

from checkpoints_db.address import Address, identity
from checkpoints_db.engines import make_engine
from checkpoints_db.reader import OnStatement, SqlReader
from checkpoints_db.retry import Patience, cause, is_schema, is_transient, is_unreachable, retried, unavailable
from checkpoints_db.statements import Statements
from checkpoints_db.tx import SqlTx
from checkpoints_db.watch_postgres import PostgresWatch
from checkpoints_db.watch_sqlite import SqliteWatch, Turn, turn_of
from crkafka_core.control import Place, Tx
from crkafka_core.model.errors import SchemaError, ServiceUnavailable
from crkafka_core.model.rows import Region

T = TypeVar("T")


class SqlStore:
    """Implements `crkafka_core.control.Store`. Safe across threads, processes and forks. Mutations need no isolation above the default:
    each first locks the region's row (SPEC G7), by `BEGIN IMMEDIATE` or `SELECT … FOR UPDATE`, and in PostgreSQL's READ COMMITTED every
    later statement sees all commits before the lock was granted. Reads take one snapshot and no lock."""

    def __init__(
        self,
        address: Address,
        *,
        patience: Patience | None = None,
        clock: Callable[[], float] | None = None,
        on_statement: OnStatement | None = None,
    ) -> None:
        self.address = address
        self._patience = patience or Patience()
        self._clock = clock
        self.on_statement = on_statement
        self._turn: Turn = turn_of(address.path) if address.path else Turn()
        self._making = threading.Lock()
        self._busy = threading.local()
        self._pid = 0
        self._engine: Engine | None = None
        self._statements: Statements | None = None
        self._watch: SqliteWatch | PostgresWatch | None = None
        """None for SQLite in memory, which only this process can change."""
        if not address.in_memory:
            self._watch = SqliteWatch(address.path, self._turn) if address.path else PostgresWatch(address)

    def place(self) -> Place:
        return Place(self._retried(lambda left: identity(self.address, self.engine)), str(self.address))

    def run(self, region: str, work: Callable[[Tx], T]) -> T:
        return self._retried(lambda left: self._once(region, work, None, left))

    def create(self, region: Region, work: Callable[[Tx], T]) -> T:
        return self._retried(lambda left: self._once(region.name, work, region, left))

    @contextmanager
    def read(self, region: str) -> Iterator[SqlReader]:
        """A snapshot. An idle connection that has died is replaced; one that dies during the read is an error."""
        connection = self._retried(lambda left: self._snapshot())
        try:
            yield SqlReader(connection, self.statements, self._clock, self.on_statement, region)
        except Exception as error:
            raise self._as_our_error(error) from cause(error)
        finally:
            _release(connection)

    def wait(self, region: str, version: int, timeout: float) -> int:
        try:
            if self._watch is not None:
                return self._watch.wait(region, version, timeout)
            seen, current = self._turn.commits, self._version(region)
            if current == version and timeout > 0:
                self._turn.wait(seen, timeout)
                current = self._version(region)
            return current
        except Exception as error:
            if self.address.path is not None and is_transient(error):
                return version  # busy for a moment: an early return, after which the waiter waits again
            raise self._as_our_error(error) from cause(error)

    def regions(self) -> list[Region]:
        with self.read("") as reader:
            return reader.regions()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        if self._engine is not None and self._pid == os.getpid():
            self._engine.dispose()
            self._engine = None

    @property
    def engine(self) -> Engine:
        """The engine of this process; a forked child makes its own, without using its parent's connections."""
        engine = self._engine
        if engine is not None and self._pid == os.getpid():
            return engine
        if self._pid != os.getpid():
            self._making = threading.Lock()
        with self._making:
            if self._engine is not None and self._pid == os.getpid():
                return self._engine
            if self._engine is not None:
                self._engine.dispose(close=False)
            engine = make_engine(self.address)
            self._turn = turn_of(self.address.path) if self.address.path else self._turn
            self._statements = Statements(engine.dialect)
            self._engine, self._pid = engine, os.getpid()
            return engine

    @property
    def statements(self) -> Statements:
        assert self.engine is not None and self._statements is not None
        return self._statements

    def _retried(self, once: Callable[[float], T]) -> T:
        return retried(self._patience, once, self._as_our_error)

    def _once(self, region: str, work: Callable[[Tx], T], first: Region | None, left: float) -> T:
        if getattr(self._busy, "region", None) is not None:
            raise RuntimeError(f"a transaction on region {self._busy.region!r} is open on this thread")
        if self.address.postgres:
            return self._transact(region, work, first)
        with self._turn.taken(left) as got:
            if not got:
                text = f"The control plane {self.address} was busy for {self._patience.bound:.0f} s."
                raise ServiceUnavailable(text, hint="Try again later.")
            return self._transact(region, work, first)

    def _transact(self, region: str, work: Callable[[Tx], T], first: Region | None) -> T:
        self._busy.region = region
        try:
            with self.engine.connect() as connection:
                self._hook("begin")
                connection.begin()
                if not self.address.postgres:
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                tx = SqlTx(connection, self.statements, self._clock, self.on_statement, region)
                if first is not None:
                    tx.insert_region(first)
                tx.lock()
                result = work(tx)
                tx.flush()
                self._hook("commit")
                connection.commit()
                self._hook("committed")
        finally:
            self._busy.region = None
        self._turn.changed()
        return result

    def _hook(self, what: str) -> None:
        if self.on_statement is not None:
            self.on_statement(what)

    def _snapshot(self) -> Connection:
        connection = self.engine.connect()
        try:
            if self.address.postgres:
                connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
                # The first statement takes the snapshot, and fails if the connection is dead.
                connection.exec_driver_sql("SELECT 1")
            elif not self.address.in_memory:
                connection.exec_driver_sql("BEGIN")
        except BaseException:
            _release(connection)
            raise
        return connection

    def _version(self, region: str) -> int:
        with self._turn.taken(self._patience.bound), self.engine.connect() as connection:
            return SqlReader(connection, self.statements, None, None, region).region().version

    def _as_our_error(self, error: Exception) -> Exception:
        """A database's error as ours, without secrets; any other error unchanged."""
        if is_schema(error):
            reason = self.address.without_secrets(str(getattr(error, "orig", None) or error))
            text = f"The control plane {self.address} lacks a table or column: {reason}."
            return SchemaError(text, hint="Run `crkafka init`.")
        if not self.address.postgres and "is locked" in str(getattr(error, "orig", None) or error):
            return ServiceUnavailable(
                f"The control plane {self.address} is held by another process for longer than {self._patience.bound:g} s.",
                hint="One that is stopped inside a transaction (SIGSTOP, a debugger) holds it until it goes on or ends: "
                f"`fuser {self.address.path}` lists the processes. Reads still work.",
            )
        if is_unreachable(error):
            return unavailable(self.address, error)
        return error


def _release(connection: Connection) -> None:
    """Return a reader's connection; the pool drops one that has died, which no longer matters to the reader."""
    try:
        connection.close()
    except Exception:
        with suppress(Exception):
            connection.invalidate()
            connection.close()
