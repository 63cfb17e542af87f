"""A control plane's rows in memory: fast enough for thousands of simulated regions, and as strict as SQL."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

from crkafka_core.control import Cond, KeyExists, Place, Reader, Tx, own_key
from crkafka_core.model.errors import NoSuchRegion, ServiceUnavailable
from crkafka_core.model.rows import ROWS, Checkpoint, Region, Row
from tests.rigs.memory_rows import MemoryRows

R = TypeVar("R", bound=Row)
T = TypeVar("T")

OnStatement = Callable[[str], None]
"""Called before every statement and commit, and with `committed` after a commit; may raise, as a crash would."""

_TRIES = 50


class ConnectionCut(Exception):
    """What a hook raises where a database's connection would die: the transaction is rolled back and run again."""


class MemoryStore:
    """Implements `crkafka_core.control.Store` for one process. Time comes from outside."""

    def __init__(self, clock: Callable[[], float] = time.time, on_statement: OnStatement | None = None) -> None:
        self.clock = clock
        self.on_statement = on_statement
        self._tables: dict[type[Row], MemoryRows] = {row: MemoryRows(row) for row in ROWS}
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._open: str | None = None

    def place(self) -> Place:
        return Place("memory", "memory")

    def run(self, region: str, work: Callable[[Tx], T]) -> T:
        return self._retried(region, work, None)

    def create(self, region: Region, work: Callable[[Tx], T]) -> T:
        return self._retried(region.name, work, region)

    def read(self, region: str) -> _Reader:
        """Rows are frozen and nothing is interleaved on one thread; other threads wait until the block ends."""
        return _Reader(self, region)

    def wait(self, region: str, version: int, timeout: float) -> int:
        """Waits in real time, for another thread; a simulation on one thread passes 0."""
        with self._changed:

            def current() -> int:
                row: Region | None = self._tables[Region].rows.get((region,))
                if row is None:
                    raise _no_such_region(region)
                return row.version

            if timeout > 0:
                self._changed.wait_for(lambda: current() != version, timeout)
            return current()

    def regions(self) -> list[Region]:
        with self._lock:
            self._hook("select Region")
            return list(self._tables[Region].all.ordered().values())

    def close(self) -> None:
        """Nothing to give back."""

    def _retried(self, region: str, work: Callable[[Tx], T], first: Region | None) -> T:
        for _ in range(_TRIES):
            try:
                return self._once(region, work, first)
            except ConnectionCut:
                continue
        raise ServiceUnavailable("The control plane in memory was cut off each time.", hint="Let the hook stop.")

    def _once(self, region: str, work: Callable[[Tx], T], first: Region | None) -> T:
        with self._lock:
            if self._open is not None:
                raise RuntimeError(f"a transaction on region {self._open!r} is open")
            self._open = region
            tx = _Tx(self, region)
            try:
                tx.begin(first)
                result = work(tx)
                tx.flush()
                self._hook("commit")
            except BaseException:
                tx.rollback()
                raise
            finally:
                self._open = None
            self._changed.notify_all()
            self._hook("committed")
            return result

    def _hook(self, what: str) -> None:
        if self.on_statement is not None:
            self.on_statement(what)


class _Reader:
    """Implements `crkafka_core.control.Reader`; a snapshot as long as its block lasts."""

    def __init__(self, store: MemoryStore, region: str) -> None:
        self.name = region
        self._store = store
        self._tables = store._tables

    def __enter__(self) -> Reader:
        self._store._lock.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self._store._lock.release()

    def now(self) -> float:
        if (hook := self._store.on_statement) is not None:
            hook("now")
        return self._store.clock()

    def region(self) -> Region:
        row = self.get(Region)
        if row is None:
            raise _no_such_region(self.name)
        return row

    def get(self, row: type[R], *key: Any) -> R | None:
        table = self._table(row)
        if (hook := self._store.on_statement) is not None:
            hook(f"get {row.__name__}")
        full = key if row.SHARED else (self.name, *key)
        if len(full) != len(row.KEY):
            raise TypeError(f"{row.__name__} has the key {own_key(row)}, not {len(key)} values")
        held: R | None = table.rows.get(full)
        return held

    def select(
        self, row: type[R], *where: Cond, order: Sequence[str] = (), desc: bool = False, limit: int | None = None
    ) -> list[R]:
        table = self._table(row)
        if (hook := self._store.on_statement) is not None:
            hook(f"select {row.__name__}")
        return table.select(where if row.SHARED else ((row.REGION, "=", self.name), *where), order, desc, limit)

    def column(
        self,
        row: type[R],
        name: str,
        *where: Cond,
        order: Sequence[str] = (),
        desc: bool = False,
        limit: int | None = None,
    ) -> list[Any]:
        return [getattr(each, name) for each in self.select(row, *where, order=order, desc=desc, limit=limit)]

    def count(self, row: type[R], *where: Cond) -> int:
        return len(self.select(row, *where))

    def line(self, checkpoint: int, *, after: int = 0) -> list[int]:
        if (hook := self._store.on_statement) is not None:
            hook("line")
        rows = self._tables[Checkpoint].rows
        ids: list[int] = []
        while checkpoint > after and (row := rows.get((self.name, checkpoint))) is not None:
            ids.append(checkpoint)
            checkpoint = row.parent
        return ids[::-1]

    def _table(self, row: type[Row]) -> MemoryRows:
        """Where a statement finds the rows of this type."""
        return self._tables[row]


class _Tx(_Reader):
    """Implements `crkafka_core.control.Tx`: writes in place, and keeps what was there for the case of a rollback."""

    def __init__(self, store: MemoryStore, region: str) -> None:
        super().__init__(store, region)
        self._undo: list[tuple[MemoryRows, tuple[Any, ...], Any]] = []
        self._before: Region | None = None
        self._region: Region | None = None
        self._time: float | None = None

    def begin(self, first: Region | None) -> None:
        """Lock the region's row, after inserting it if it is new."""
        if (hook := self._store.on_statement) is not None:
            hook("begin")
        regions = self._tables[Region]
        if first is not None and (first.name,) not in regions.rows:
            self._set(regions, first)
        self._before = self._region = regions.rows.get((self.name,))
        if self._region is None:
            raise _no_such_region(self.name)

    def flush(self) -> None:
        """The region's row is written once, at the end or when it is read."""
        if self._region is not None and self._region is not self._before:
            if (hook := self._store.on_statement) is not None:
                hook("update Region")
            self._set(self._tables[Region], self._region)
            self._before = self._region

    def rollback(self) -> None:
        for table, key, before in reversed(self._undo):
            if before is None:
                table.drop(key)
            else:
                table.set(key, before)
        self._undo.clear()

    def region(self) -> Region:
        if self._region is None:
            raise NoSuchRegion(f"Region {self.name!r} was deleted by this transaction.")
        return self._region

    def set_region(self, **changes: Any) -> Region:
        current = self.region()
        if "name" in changes or "version" in changes:
            raise TypeError("name and version of a region are not for setting")
        unknown = changes.keys() - _REGION_AT.keys()
        if unknown:
            raise TypeError(f"Region has no column {', '.join(sorted(unknown))}")
        assert self._before is not None
        values, same = list(_region_values(current)), bool(changes)
        for name, value in changes.items():
            at = _REGION_AT[name]
            same = same and values[at] == value
            values[at] = value
        if same:
            return current
        values[_REGION_AT["version"]] = self._before.version + 1
        self._region = Region(*values)
        return self._region

    def now(self) -> float:
        """Time stands still in a transaction."""
        if self._time is None:
            self._time = super().now()
        return self._time

    def _table(self, row: type[Row]) -> MemoryRows:
        if row is Region:
            self.flush()
        return self._tables[row]

    def put(self, *rows: Row) -> None:
        table = self._writable(rows, "put")
        if table is not None:
            for row in rows:
                self._set(table, row)

    def add(self, *rows: Row) -> None:
        table = self._writable(rows, "add")
        if table is None:
            return
        keys = [table.key_of(row) for row in rows]
        if len(set(keys)) < len(keys) or not table.rows.keys().isdisjoint(keys):
            raise KeyExists(f"{table.row.__name__} {[key for key in keys if key in table.rows][:1] or keys[:1]}")
        for row in rows:
            self._set(table, row)

    def delete(self, row: type[Row], *where: Cond) -> int:
        if (hook := self._store.on_statement) is not None:
            hook(f"delete {row.__name__}")
        table = self._table(row)
        rows = table.select(((row.REGION, "=", self.name), *where), (), False, None)
        for each in rows:
            key = table.key_of(each)
            self._undo.append((table, key, table.drop(key)))
        if row is Region and rows:
            self._before = self._region = None
        return len(rows)

    def _writable(self, rows: Sequence[Row], what: str) -> MemoryRows | None:
        if not rows:
            return None
        row = type(rows[0])
        if (hook := self._store.on_statement) is not None:
            hook(f"{what} {row.__name__}")
        if row is Region:
            raise TypeError("The region's row is changed by set_region.")
        for each in rows:
            if type(each) is not row:
                raise TypeError("The rows of one call are of one type.")
            if getattr(each, "region", None) != self.name:
                raise ValueError(f"A row of another region than {self.name!r}: its row is the one locked.")
        return self._tables[row]

    def _set(self, table: MemoryRows, row: Row) -> None:
        key = table.key_of(row)
        self._undo.append((table, key, table.set(key, row)))


_REGION_AT = {field.name: at for at, field in enumerate(fields(Region))}
_region_values: Callable[[Region], tuple[Any, ...]] = attrgetter(*_REGION_AT)


def _no_such_region(name: str) -> NoSuchRegion:
    return NoSuchRegion(f"There is no region {name!r} in this control plane.", hint="`crkafka init` makes it.")
