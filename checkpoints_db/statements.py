"""SQL text of each statement shape, built with SQLAlchemy Core once per dialect, then only looked up. Building and hashing a Core construct
costs more than SQLite needs to run it; a shape (row type, columns, operators, order) is therefore compiled once and executed as text with
bound values."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.expression import ClauseElement

from checkpoints_db.codec import plain
from checkpoints_db.tables import TABLES
from crkafka_core.control import Cond
from crkafka_core.model.rows import Region, Row

Shape = tuple[tuple[str, str], ...]

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

CHANNEL = """(SELECT CASE n.nspname WHEN 'crkafka' THEN 'crkafka' ELSE 'crkafka_' || n.oid::text END
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = 'region'::regclass)"""
"""The PostgreSQL notification channel, in SQL; the payload is `version:region`. Channels are shared by the whole database, in which two
schemas, for production and staging, may have regions of the same names."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A compiled statement: its text, and the names of its values in order."""

    sql: str
    names: tuple[str, ...]
    positional: bool
    fixed: tuple[tuple[str, Any], ...] = ()
    """Values that SQLAlchemy added, such as SQLite's OFFSET 0 with a LIMIT."""

    def bind(self, values: dict[str, Any]) -> Any:
        if self.fixed:
            values = {**dict(self.fixed), **values}
        return tuple(map(values.__getitem__, self.names)) if self.positional else values


_compiled: dict[str, dict[Any, Prepared]] = {}
"""By dialect, for all stores of the process."""


class Statements:
    """The statements of one dialect. Safe to use from several threads: at worst a shape is compiled twice."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.postgres = dialect.name == "postgresql"
        self._cache: dict[Any, Prepared] = _compiled.setdefault(dialect.name, {})

    # --- reading ---

    def select(
        self, row: type[Row], where: Sequence[Cond], order: Sequence[str], desc: bool, limited: bool, only: str = ""
    ) -> Prepared:
        """`only`: one column instead of all."""
        key = ("select", row, _shape(where), tuple(order), desc, limited, only)
        if known := self._cache.get(key):
            return known
        table = TABLES[row]
        columns = [table.c[only]] if only else list(table.columns)
        statement = sa.select(*columns).where(*self._conditions(table, where))
        # The key breaks ties, so that all control planes answer in one order.
        by = [*(table.c[name] for name in order), *(c for c in table.primary_key.columns if c.name not in order)]
        statement = statement.order_by(*(c.desc() for c in by) if desc else by)
        return self._compile(key, statement.limit(sa.bindparam("limit", type_=sa.Integer())) if limited else statement)

    def count(self, row: type[Row], where: Sequence[Cond]) -> Prepared:
        key, table = ("count", row, _shape(where)), TABLES[row]
        return self._cache.get(key) or self._compile(
            key, sa.select(sa.func.count()).select_from(table).where(*self._conditions(table, where))
        )

    def now(self) -> Prepared:
        text = "(julianday('now') - 2440587.5) * 86400.0"
        if self.postgres:
            text = "extract(epoch FROM clock_timestamp())::float8"
        return self._cache.get("now") or self._compile("now", sa.select(sa.literal_column(text)))

    def line(self) -> Prepared:
        """A checkpoint and its ancestors by their parents, whose ids are lower (SPEC C5)."""
        names = ("region", "checkpoint", "after")
        region, start, after = (f"%({name})s" if self.postgres else f":{name}" for name in names)
        return Prepared(
            "WITH RECURSIVE line(id, parent) AS ("
            f"SELECT id, parent FROM checkpoint WHERE region = {region} AND id = {start} AND id > {after}"
            " UNION ALL SELECT c.id, c.parent FROM line JOIN checkpoint AS c"
            f" ON c.region = {region} AND c.id = line.parent WHERE line.parent > {after}"
            ") SELECT id FROM line ORDER BY id",
            names,
            positional=False,
        )

    def lock_region(self) -> Prepared:
        """Locks the region's row (SPEC G7); SQLite holds the lock already, by BEGIN IMMEDIATE."""
        table = TABLES[Region]
        return self._cache.get("lock") or self._compile(
            "lock", sa.select(*table.columns).where(table.c.name == sa.bindparam("w0")).with_for_update()
        )

    # --- writing ---

    def update_region(self, changed: Sequence[str]) -> Prepared:
        """Update the region's row; in PostgreSQL the same statement notifies the listeners, once the transaction commits."""
        key = ("update", tuple(changed))
        if known := self._cache.get(key):
            return known
        table = TABLES[Region]
        values = {name: sa.bindparam(f"v_{name}", type_=_plain_type(table.c[name])) for name in changed}
        statement = sa.update(table).where(table.c.name == sa.bindparam("w0", type_=sa.Text())).values(values)
        if not self.postgres:
            return self._compile(key, statement)
        notify = sa.func.pg_notify(sa.literal_column(CHANNEL), sa.bindparam("payload", type_=sa.Text()))
        return self._compile(key, statement.returning(notify))

    def insert(self, row: type[Row], conflict: str) -> Prepared:
        """One row, or in SQLite each of many; `conflict`: error, ignore or replace. Values in order of columns."""
        key = ("insert", row, conflict)
        if known := self._cache.get(key):
            return known
        table = TABLES[row]
        parameters = {c.name: sa.bindparam(c.name, type_=_plain_type(c)) for c in table.columns}
        return self._compile(key, self._conflict(self._insert(table).values(parameters), table, conflict))

    def insert_many(self, row: type[Row], conflict: str) -> Prepared:
        """PostgreSQL: any number of rows of one region in one statement, from one array per column."""
        key = ("insert_many", row, conflict)
        if known := self._cache.get(key):
            return known
        table = TABLES[row]
        arrays = [
            sa.bindparam(c.name, type_=_plain_type(c)).label(f"c{index}")
            if c.name == "region"
            else sa.func.unnest(sa.bindparam(c.name, type_=_array(c))).label(f"c{index}")
            for index, c in enumerate(table.columns)
        ]
        statement = self._insert(table).from_select([c.name for c in table.columns], sa.select(*arrays))
        return self._compile(key, self._conflict(statement, table, conflict))

    def delete(self, row: type[Row], where: Sequence[Cond]) -> Prepared:
        key, table = ("delete", row, _shape(where)), TABLES[row]
        return self._cache.get(key) or self._compile(key, sa.delete(table).where(*self._conditions(table, where)))

    # --- values ---

    def values(self, where: Sequence[Cond]) -> dict[str, Any]:
        return {f"w{index}": self._value(op, value) for index, (_, op, value) in enumerate(where)}

    def _value(self, op: str, value: Any) -> Any:
        if op != "in":
            return plain(value)
        listed = plain(list(value))
        return listed if self.postgres else json.dumps(listed)

    # --- inside ---

    def _conditions(self, table: sa.Table, where: Sequence[Cond]) -> list[sa.ColumnElement[bool]]:
        return [self._condition(table, name, op, f"w{index}") for index, (name, op, _) in enumerate(where)]

    def _condition(self, table: sa.Table, name: str, op: str, parameter: str) -> sa.ColumnElement[bool]:
        left = table.c[name]
        if op != "in":
            result: sa.ColumnElement[bool] = _COMPARE[op](left, sa.bindparam(parameter, type_=_plain_type(left)))
            return result
        # One value holds the whole list, so that one statement serves any length, and no limit applies.
        if self.postgres:
            return left == sa.any_(sa.bindparam(parameter, type_=_array(left)))
        values = sa.func.json_each(sa.bindparam(parameter, type_=sa.Text()))
        return left.in_(sa.select(sa.column("value")).select_from(values))

    def _insert(self, table: sa.Table) -> Any:
        if not self.postgres:
            return sqlite.insert(table)
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)

    @staticmethod
    def _conflict(statement: Any, table: sa.Table, conflict: str) -> Any:
        key = list(table.primary_key.columns)
        if conflict == "error":
            return statement
        others = {c.name: statement.excluded[c.name] for c in table.columns if not c.primary_key}
        if conflict == "ignore" or not others:
            return statement.on_conflict_do_nothing(index_elements=key)
        return statement.on_conflict_do_update(index_elements=key, set_=others)

    def _compile(self, key: Any, statement: ClauseElement) -> Prepared:
        compiled: Any = statement.compile(dialect=self._dialect)
        positional = bool(compiled.positional)
        names = tuple(compiled.positiontup) if positional else tuple(compiled.params)
        fixed = tuple((name, value) for name, value in compiled.params.items() if value is not None)
        prepared = self._cache[key] = Prepared(str(compiled), names, positional, fixed)
        return prepared


def _shape(where: Sequence[Cond]) -> Shape:
    return tuple((name, op) for name, op, _ in where)


def _array(c: Any) -> Any:
    """PostgreSQL's array type, imported on use: it would delay each process on SQLite."""
    from sqlalchemy.dialects.postgresql import ARRAY

    return ARRAY(_plain_type(c))


def _plain_type(c: Any) -> Any:
    """The driver's type: text without its collation."""
    return sa.Text() if isinstance(c.type, sa.Text) else c.type
