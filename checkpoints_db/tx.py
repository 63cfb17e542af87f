"""A transaction that holds the region's row: reads, and writes in bulk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from sqlalchemy.exc import IntegrityError

from checkpoints_db.codec import codec
from checkpoints_db.reader import SqlReader, no_such_region
from crkafka_core.control import Cond, KeyExists
from crkafka_core.model.errors import NoSuchRegion
from crkafka_core.model.rows import Region, Row

R = TypeVar("R", bound=Row)

_CHUNK = 20_000
"""Rows of one statement, which keeps it below some tens of megabytes."""


class SqlTx(SqlReader):
    """Implements `crkafka_core.control.Tx`. Changes of the region's row are collected, and written once. `now` is constant in a
    transaction: all rows of one mutation have the same time."""

    _stored: Region | None = None
    _time: float | None = None

    # --- the region's row ---

    def lock(self) -> None:
        """Lock the region's row (SPEC G7)."""
        prepared = self._statements.lock_region()
        stored = codec(Region).decode(self._rows(prepared, {"w0": self.name}))
        if not stored:
            raise no_such_region(self.name)
        self._stored = self._region = stored[0]

    def insert_region(self, region: Region) -> None:
        """Insert the region's row unless it exists; of two concurrent creators one inserts it."""
        self._write_one(Region, codec(Region).encode([region])[0], "ignore")

    def region(self) -> Region:
        if self._region is None:
            raise NoSuchRegion(f"Region {self.name!r} was deleted by this transaction.")
        return self._region

    def set_region(self, **changes: Any) -> Region:
        current = self.region()
        if changes.keys() & {"name", "version"}:
            raise TypeError("a region's name and version cannot be set")
        changed = codec(Region).with_changes(current, changes)
        if changed != current or not changes:
            # Without changes: another row of the region has changed, and waiters are notified by a new version.
            assert self._stored is not None
            changed = codec(Region).with_changes(changed, {"version": self._stored.version + 1})
        self._region = changed
        return changed

    def flush(self) -> None:
        before, after = self._stored, self._region
        if before is None or after is None or before == after:
            return
        fields, encode = codec(Region).fields, codec(Region).encode
        old, new = encode([before])[0], encode([after])[0]
        changed = {name: value for name, was, value in zip(fields, old, new, strict=True) if was != value}
        prepared = self._statements.update_region(tuple(changed))
        values = {f"v_{name}": value for name, value in changed.items()} | {"w0": self.name}
        if self._statements.postgres:
            values["payload"] = f"{after.version}:{self.name}"
        self._execute(prepared.sql, prepared.bind(values))
        self._stored = after

    # --- reading ---

    def now(self) -> float:
        if self._time is None:
            self._time = super().now()
        return self._time

    def _within(self, row: type[Row], where: tuple[Cond, ...]) -> tuple[Cond, ...]:
        if row is Region:
            self.flush()
        return super()._within(row, where)

    # --- writing ---

    def put(self, *rows: Row) -> None:
        self._write(rows, "replace")

    def add(self, *rows: Row) -> None:
        """Insert all rows or none: after `KeyExists` the transaction can go on."""
        if not rows:
            return
        if len(rows) == 1:
            # A failed statement would end a PostgreSQL transaction; counting the inserted rows does not.
            if self._write(rows, "ignore") == 0:
                raise self._key_exists(rows)
            return
        self._execute("SAVEPOINT bulk")
        try:
            self._write(rows, "error")
        except IntegrityError as error:
            self._execute("ROLLBACK TO SAVEPOINT bulk")
            raise self._key_exists(rows) from error
        self._execute("RELEASE SAVEPOINT bulk")

    def delete(self, row: type[Row], *where: Cond) -> int:
        where = ((row.REGION, "=", self.name), *where)
        prepared = self._statements.delete(row, where)
        done = self._execute(prepared.sql, prepared.bind(self._statements.values(where)))
        if row is Region and done:
            self._stored = self._region = None
        return done

    def _write(self, rows: Sequence[Row], conflict: str) -> int:
        if not rows:
            return 0
        row = type(rows[0])
        if row is Region:
            raise TypeError("The region's row is changed by set_region.")
        if any(type(each) is not row for each in rows):
            raise TypeError("The rows of one call are of one type.")
        if any(getattr(each, "region", None) != self.name for each in rows):
            raise ValueError(f"A row of another region than {self.name!r}: its row is the one locked.")
        values = codec(row).encode(rows)
        if len(rows) == 1:
            return self._write_one(row, values[0], conflict)
        if self._statements.postgres:
            return self._write_arrays(row, values, conflict)
        prepared = self._statements.insert(row, conflict)
        return self._execute(prepared.sql, values)

    def _write_one(self, row: type[Row], values: tuple[Any, ...], conflict: str) -> int:
        prepared = self._statements.insert(row, conflict)
        bound: Any = values if prepared.positional else dict(zip(codec(row).fields, values, strict=True))
        return self._execute(prepared.sql, bound)

    def _write_arrays(self, row: type[Row], values: list[tuple[Any, ...]], conflict: str) -> int:
        if conflict == "replace":
            # PostgreSQL refuses to replace a row twice in one statement; as in SQLite, the last one stands.
            width = [codec(row).fields.index(name) for name in row.KEY]
            values = list({tuple(each[i] for i in width): each for each in values}.values())
        prepared = self._statements.insert_many(row, conflict)
        done = 0
        for start in range(0, len(values), _CHUNK):
            columns = zip(*values[start : start + _CHUNK], strict=True)
            bound: dict[str, Any] = dict(zip(codec(row).fields, map(list, columns), strict=True))
            bound["region"] = self.name
            done += self._execute(prepared.sql, bound)
        return done

    def _key_exists(self, rows: Sequence[Row]) -> KeyExists:
        row = type(rows[0])
        shown = ", ".join(f"{name}={getattr(rows[0], name)!r}" for name in row.KEY)
        return KeyExists(f"{row.__name__} {shown}" + (f" or one of {len(rows) - 1} others" if len(rows) > 1 else ""))
