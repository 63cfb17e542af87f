"""Reads rows through one connection: the read half of a transaction, or a snapshot of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, CursorResult

from checkpoints_db.codec import codec
from checkpoints_db.statements import Prepared, Statements
from crkafka_core.control import Cond
from crkafka_core.model.errors import NoSuchRegion
from crkafka_core.model.rows import Row

R = TypeVar("R", bound=Row)

OnStatement = Callable[[str], None]
"""Called before every statement and commit, and after the commit with `committed`; may raise, as a crash would.

Outside of SQLAlchemy's own events: an exception in those costs the connection, and SQLite in memory lives in it.
"""


def no_such_region(name: str) -> NoSuchRegion:
    """The error for a region that has no row."""
    return NoSuchRegion(f"There is no region {name!r} in this control plane.", hint="`crkafka init` makes it.")


class SqlReader:
    """Implements `crkafka_core.control.Reader`. For one thread at a time."""

    def __init__(
        self,
        connection: Connection,
        statements: Statements,
        clock: Callable[[], float] | None,
        on_statement: OnStatement | None = None,
    ) -> None:
        self._connection = connection
        self._statements = statements
        self._clock = clock
        self._on_statement = on_statement

    def now(self) -> float:
        """Database time; a simulation brings a clock of its own."""
        if self._clock is not None:
            return self._clock()
        return float(self._rows(self._statements.now(), {})[0][0])

    def get(self, row: type[R], *key: Any) -> R | None:
        if len(key) != len(row.KEY):
            raise TypeError(f"{row.__name__} has the key {row.KEY}, not {len(key)} values")
        where: list[Cond] = [(name, "=", value) for name, value in zip(row.KEY, key, strict=True)]
        found = self.select(row, *where)
        return found[0] if found else None

    def select(
        self, row: type[R], *where: Cond, order: Sequence[str] = (), desc: bool = False, limit: int | None = None
    ) -> list[R]:
        prepared = self._statements.select(row, where, order, desc, limit is not None)
        values = self._statements.values(where)
        if limit is not None:
            values["limit"] = limit
        return codec(row).decode(self._rows(prepared, values))

    def count(self, row: type[R], *where: Cond) -> int:
        prepared = self._statements.count(row, where)
        return int(self._rows(prepared, self._statements.values(where))[0][0])

    def line(self, region: str, checkpoint: int, *, after: int = 0) -> list[int]:
        values = {"region": region, "checkpoint": checkpoint, "after": after}
        return [row[0] for row in self._rows(self._statements.line(), values)]

    def _rows(self, prepared: Prepared, values: dict[str, Any]) -> Sequence[Any]:
        return self._execute(prepared.sql, prepared.bind(values)).fetchall()

    def _execute(self, sql: str, values: Any = None) -> CursorResult[Any]:
        if self._on_statement is not None:
            self._on_statement(sql)
        return self._connection.exec_driver_sql(sql, values)
