"""Reads rows through one connection: the read half of a transaction, or a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, methodcaller
from typing import Any, TypeVar

from sqlalchemy import Connection

from checkpoints_db.codec import codec
from checkpoints_db.statements import Prepared, Statements
from crkafka_core.control import Cond, own_key
from crkafka_core.model.errors import NoSuchRegion
from crkafka_core.model.rows import Region, Row

R = TypeVar("R", bound=Row)
T = TypeVar("T")

OnStatement = Callable[[str], None]
"""Called before every statement and commit, and after the commit with `committed`; may raise, like a crash.

Not one of SQLAlchemy's events: an exception in those drops the connection, and with it SQLite in memory.
"""


def no_such_region(name: str) -> NoSuchRegion:
    return NoSuchRegion(f"There is no region {name!r} in this control plane.", hint="`crkafka init` makes it.")


class SqlReader:
    """Implements `crkafka_core.control.Reader`. For one thread at a time."""

    def __init__(
        self,
        connection: Connection,
        statements: Statements,
        clock: Callable[[], float] | None,
        on_statement: OnStatement | None,
        region: str,
    ) -> None:
        self.name = region
        self._connection = connection
        self._statements = statements
        self._clock = clock
        self._on_statement = on_statement
        self._region: Region | None = None

    def now(self) -> float:
        """Database time, or that of a simulation's clock."""
        if self._clock is not None:
            return self._clock()
        return float(self._rows(self._statements.now(), {})[0][0])

    def region(self) -> Region:
        if self._region is None:
            stored = self.select(Region)
            if not stored:
                raise no_such_region(self.name)
            self._region = stored[0]
        return self._region

    def regions(self) -> list[Region]:
        return codec(Region).decode(self._rows(self._statements.select(Region, (), (), False, False), {}))

    def get(self, row: type[R], *key: Any) -> R | None:
        names = own_key(row)
        if len(key) != len(names):
            raise TypeError(f"{row.__name__} has the key {names}, not {len(key)} values")
        where: list[Cond] = [(name, "=", value) for name, value in zip(names, key, strict=True)]
        return next(iter(self.select(row, *where)), None)

    def select(self, row: type[R], *where: Cond, **how: Any) -> list[R]:
        return codec(row).decode(self._selected(row, where, **how))

    def column(self, row: type[R], name: str, *where: Cond, **how: Any) -> list[Any]:
        return [values[0] for values in self._selected(row, where, only=name, **how)]

    def _selected(
        self,
        row: type[Row],
        where: tuple[Cond, ...],
        *,
        order: Sequence[str] = (),
        desc: bool = False,
        limit: int | None = None,
        only: str = "",
    ) -> list[Any]:
        where = self._within(row, where)
        prepared = self._statements.select(row, where, order, desc, limit is not None, only)
        values = self._statements.values(where)
        return self._rows(prepared, values if limit is None else {**values, "limit": limit})

    def count(self, row: type[R], *where: Cond) -> int:
        where = self._within(row, where)
        prepared = self._statements.count(row, where)
        return int(self._rows(prepared, self._statements.values(where))[0][0])

    def line(self, checkpoint: int, *, after: int = 0) -> list[int]:
        values = {"region": self.name, "checkpoint": checkpoint, "after": after}
        return [row[0] for row in self._rows(self._statements.line(), values)]

    def _within(self, row: type[Row], where: tuple[Cond, ...]) -> tuple[Cond, ...]:
        return where if row.SHARED else ((row.REGION, "=", self.name), *where)

    def _rows(self, prepared: Prepared, values: dict[str, Any]) -> list[Any]:
        return self._run(prepared.sql, prepared.bind(values), methodcaller("fetchall"))

    def _execute(self, sql: str, values: Any = None) -> int:
        """Execute a statement without an answer; the number of its rows."""
        count: int = self._run(sql, values, attrgetter("rowcount"))
        return count

    def _run(self, sql: str, values: Any, answer: Callable[[Any], T]) -> T:
        """Run a statement by the driver's cursor: SQLAlchemy would analyse the columns of each answer again, which costs more than SQLite's
        answer. Errors of the driver still go to SQLAlchemy, which drops a dead connection."""
        if self._on_statement is not None:
            self._on_statement(sql)
        connection, cursor = self._connection, None
        try:
            cursor = connection.connection.cursor()
            if values is None:
                cursor.execute(sql)
            elif type(values) is list:
                cursor.executemany(sql, values)
            else:
                cursor.execute(sql, values)
            answered = answer(cursor)
        except BaseException as error:
            of_driver = isinstance(error, connection.dialect.loaded_dbapi.Error)
            connection._handle_dbapi_exception(error, sql if of_driver else None, None, cursor, None)
        cursor.close()
        return answered
