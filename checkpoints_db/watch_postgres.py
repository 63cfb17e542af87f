"""Waits for changes of a region in PostgreSQL: one listening connection per process, shared by all waiters."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from checkpoints_db.address import Address
from checkpoints_db.engines import FIND_SCHEMA, NOTICE_DEATH, renewed
from checkpoints_db.reader import no_such_region
from checkpoints_db.statements import CHANNEL

_LOOK_EVERY = 5.0
"""Seconds between reads of each waiter while the listener is up, since its connection may be dead unnoticed."""
_LOOK_WITHOUT_LISTENER = 0.25
_RETRY_LISTENER = (0.1, 0.5, 1.0, 2.0)
_IDLE_LISTENER = 120.0
"""Seconds without a waiter after which the listener's connection is closed."""


class PostgresWatch:
    """`wait` runs on the waiters' threads; `_listen` on one daemon thread per process, started by the first waiter. Notified versions are
    used only while the listener stays up: a new connection clears them, and each waiter reads the table once."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._versions: dict[str, int] = {}
        self._listening = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._waiters = 0
        self._last_waiter = time.monotonic()
        self._free: list[Any] = []

    def wait(self, region: str, version: int, timeout: float) -> int:
        """The region's version once it differs from `version`, or after the timeout."""
        if self._pid != os.getpid():
            self._reset()

        def changed(listening: bool) -> bool:
            return self._listening != listening or self._versions.get(region, version) != version

        deadline = time.monotonic() + timeout
        with self._waiting():
            while True:
                with self._changed:
                    current = self._versions.get(region) if self._listening else None
                if current is None:
                    current = self._read_version(region)
                left = deadline - time.monotonic()
                if current != version or left <= 0:
                    return current
                with self._changed:
                    listening = self._listening
                    pause = _LOOK_EVERY if listening else _LOOK_WITHOUT_LISTENER
                    woken = self._changed.wait_for(partial(changed, listening), min(left, pause))
                    if not woken and time.monotonic() < deadline:
                        self._versions.pop(region, None)

    def close(self) -> None:
        if self._pid != os.getpid():  # after a fork: the connections belong to the parent
            return
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            free, self._free = self._free, []
        for connection in free:
            connection.close()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(2.0)

    # --- on waiters' threads ---

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        with self._changed:
            self._waiters += 1
            if self._thread is None or not self._thread.is_alive():
                self._closed = False
                self._thread = threading.Thread(
                    target=_listen, args=(weakref.ref(self), self._address), name="crkafka-listen", daemon=True
                )
                self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._waiters -= 1
                self._last_waiter = time.monotonic()

    def _read_version(self, region: str) -> int:
        """Read the version; a version notified meanwhile is newer and stays."""
        with self._changed:
            connection = self._free.pop() if self._free else None
            listening = self._listening
        reused = connection is not None
        try:
            connection = connection or _connect(self._address)
            stored = connection.execute("SELECT version FROM region WHERE name = %s", (region,)).fetchone()
        except Exception:
            if connection is not None:
                connection.close()
            if reused:
                return self._read_version(region)
            raise
        with self._changed:
            if self._closed:
                connection.close()
            else:
                self._free.append(connection)
            if stored is None:
                raise no_such_region(region)
            if listening and self._listening:
                self._versions[region] = max(int(stored[0]), self._versions.get(region, -1))
                return self._versions[region]
        return int(stored[0])

    # --- on the listener's thread ---

    def heard(self, payload: str) -> None:
        """Note a notification, `version:region`."""
        version, _, region = payload.partition(":")
        with self._changed:
            self._versions[region] = int(version)
            self._changed.notify_all()

    def listening(self, up: bool) -> None:
        with self._changed:
            self._versions.clear()
            self._listening = up
            self._changed.notify_all()

    @property
    def wanted(self) -> bool:
        return not self._closed and (self._waiters > 0 or time.monotonic() - self._last_waiter < _IDLE_LISTENER)


def _listen(watch: weakref.ref[PostgresWatch], address: Address) -> None:
    """Listens without a reference to the watch while it sleeps, so that an unused store is collected."""
    failures = 0
    while (owner := watch()) is not None and owner.wanted:
        del owner
        try:
            with _connect(address) as connection:
                (channel,) = connection.execute(f"SELECT {CHANNEL}").fetchone()
                connection.execute(f"LISTEN {channel}")
                if (owner := watch()) is None:
                    return
                owner.listening(True)
                del owner
                failures = 0
                while (owner := watch()) is not None and owner.wanted:
                    del owner
                    for notice in connection.notifies(timeout=0.5):
                        if (owner := watch()) is None:
                            return
                        owner.heard(notice.payload)
                        del owner
        except Exception:
            # Not reported: each waiter reads the table now, and gets the error itself.
            failures += 1
        finally:
            if (owner := watch()) is not None:
                owner.listening(False)
                del owner
        if failures:
            time.sleep(_RETRY_LISTENER[min(failures, len(_RETRY_LISTENER)) - 1])


def _connect(address: Address) -> Any:
    import psycopg

    # The engine's arguments for the URL, which may name several hosts.
    _, given = address.url.get_dialect()().create_connect_args(address.url)
    arguments = {**given, **renewed(given)}
    arguments.setdefault("connect_timeout", 5)
    arguments.setdefault("application_name", "crkafka-watch")
    connection = psycopg.connect(**NOTICE_DEATH | arguments, autocommit=True)
    if not address.names_a_schema:
        connection.execute(FIND_SCHEMA)
    return connection
