"""Waits for changes of a region in a SQLite file: notified within a process, by cheap polling across processes."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from checkpoints_db.engines import connect_sqlite, file_at
from checkpoints_db.reader import no_such_region

_PAUSES = ((1.0, 0.002), (10.0, 0.01), (60.0, 0.025))
"""(seconds since the last change, pause between polls): changes come in groups."""
_IDLE_PAUSE = 0.1


class Turn:
    """Queue of this process's writers to one file, instead of SQLite's lock, with notifications of their commits."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._committed = threading.Condition()
        self.commits = 0
        """Number of changes that this process or its watch has seen."""

    @contextmanager
    def taken(self, timeout: float) -> Iterator[bool]:
        """Wait for the turn; False after the timeout."""
        got = self._lock.acquire(timeout=max(0.0, timeout))
        try:
            yield got
        finally:
            if got:
                self._lock.release()

    def changed(self) -> None:
        with self._committed:
            self.commits += 1
            self._committed.notify_all()

    def wait(self, seen: int, timeout: float) -> int:
        """Wait for a change after `seen`, or the timeout; returns the next `seen`."""
        with self._committed:
            self._committed.wait_for(lambda: self.commits != seen, timeout)
            return self.commits


_turns: dict[tuple[int, Path], Turn] = {}
_registry = threading.Lock()
os.register_at_fork(after_in_child=lambda: globals().update(_registry=threading.Lock()))


def turn_of(path: Path) -> Turn:
    """The turn of a file in this process; a forked child has one of its own."""
    with _registry:
        return _turns.setdefault((os.getpid(), path), Turn())


class SqliteWatch:
    """Waiters borrow a connection that never writes, so that its `PRAGMA data_version` changes with each commit."""

    def __init__(self, path: Path, turn: Turn) -> None:
        self._path = path
        self._turn = turn
        self._free: list[sqlite3.Connection] = []
        self._file = file_at(path)
        """The file that the free connections have open."""
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._last_change = time.monotonic()

    def wait(self, region: str, version: int, timeout: float) -> int:
        """The region's version once it differs from `version`, or after the timeout. Runs on the waiter's thread."""
        deadline = time.monotonic() + timeout
        with self._borrowed() as connection:
            commits = self._turn.commits
            seen = self._data_version(connection)
            current = self._version(connection, region)
            while current == version:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                quiet = time.monotonic() - self._last_change
                pause = next((pause for until, pause in _PAUSES if quiet < until), _IDLE_PAUSE)
                commits = self._turn.wait(commits, min(left, pause))
                now = self._data_version(connection)
                if now != seen:
                    seen = now
                    self._last_change = time.monotonic()
                    current = self._version(connection, region)
            return current

    def close(self) -> None:
        if self._pid != os.getpid():  # after a fork: the connections belong to the parent
            return
        with self._lock:
            free, self._free = self._free, []
        for connection in free:
            connection.close()

    @contextmanager
    def _borrowed(self) -> Iterator[sqlite3.Connection]:
        if self._pid != os.getpid():
            # The child of a fork may neither use nor close its parent's connections.
            self._free, self._lock, self._pid = [], threading.Lock(), os.getpid()
        file = file_at(self._path)
        if file != self._file:
            self.close()
        with self._lock:
            self._file = file
            connection = self._free.pop() if self._free else None
        if connection is None:
            connection = connect_sqlite(self._path)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if file == self._file:
                self._free.append(connection)
                return
        connection.close()

    @staticmethod
    def _data_version(connection: sqlite3.Connection) -> int:
        return int(connection.execute("PRAGMA data_version").fetchone()[0])

    @staticmethod
    def _version(connection: sqlite3.Connection, region: str) -> int:
        stored = connection.execute("SELECT version FROM region WHERE name = ?", (region,)).fetchone()
        if stored is None:
            raise no_such_region(region)
        return int(stored[0])
