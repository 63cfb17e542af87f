"""Who writes to a SQLite file next, among the threads of this process, and who wants to hear of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Turn:
    """One per file and process: threads queue here, not at SQLite's lock, and hear of each other's commits."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._committed = threading.Condition()
        self.commits = 0
        """How often this process, or whoever watches the file for it, saw a change."""

    @contextmanager
    def taken(self, timeout: float) -> Iterator[bool]:
        """Wait for one's turn; False when it did not come in time."""
        got = self._lock.acquire(timeout=max(0.0, timeout))
        try:
            yield got
        finally:
            if got:
                self._lock.release()

    def changed(self) -> None:
        """Wake all who wait."""
        with self._committed:
            self.commits += 1
            self._committed.notify_all()

    def wait(self, seen: int, timeout: float) -> int:
        """Until a change after `seen`, or the time is over; what to pass the next time."""
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
