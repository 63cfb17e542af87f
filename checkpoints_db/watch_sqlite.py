"""Notices that a region in a SQLite file has changed: at once within a process, by cheap polling across processes."""

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
from checkpoints_db.turns import Turn

_PAUSES = ((1.0, 0.002), (10.0, 0.01), (60.0, 0.025))
"""(seconds since the last change, pause between looks); a change seldom comes alone."""
_IDLE_PAUSE = 0.1


class SqliteWatch:
    """Waiters borrow a connection that does nothing else, so that `PRAGMA data_version` tells of all commits."""

    def __init__(self, path: Path, turn: Turn) -> None:
        self._path = path
        self._turn = turn
        self._free: list[sqlite3.Connection] = []
        self._file = file_at(path)
        """Which the free ones have open."""
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._last_change = time.monotonic()

    def wait(self, region: str, version: int, timeout: float) -> int:
        """The version, as soon as it differs, or when the time is over. Runs on the waiter's own thread."""
        deadline = time.monotonic() + timeout
        with self._borrowed() as connection:
            commits = self._turn.commits
            seen = self._data_version(connection)
            current = self._version(connection, region)
            while current == version:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                commits = self._turn.wait(commits, min(left, self._pause()))
                now = self._data_version(connection)
                if now != seen:
                    seen = now
                    self._last_change = time.monotonic()
                    current = self._version(connection, region)
            return current

    def close(self) -> None:
        if self._pid != os.getpid():  # what a fork has left here is its parent's
            return
        with self._lock:
            free, self._free = self._free, []
        for connection in free:
            connection.close()

    def _pause(self) -> float:
        quiet = time.monotonic() - self._last_change
        return next((pause for until, pause in _PAUSES if quiet < until), _IDLE_PAUSE)

    @contextmanager
    def _borrowed(self) -> Iterator[sqlite3.Connection]:
        if self._pid != os.getpid():
            # A connection must not be used, nor closed, on the other side of a fork.
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
