"""The closing thread: flushes to disk what a cut has taken, while the process thread goes on (SPEC D5)."""

from __future__ import annotations

import queue
from collections.abc import Callable

from crkafka_core.loop import THREADS, Loop, Runtime


class Closer(Loop):
    """Does one piece of work after the other; each handles its own errors."""

    def __init__(self, runtime: Runtime = THREADS) -> None:
        super().__init__("closer", runtime)
        self.todo: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._since: float | None = None

    def do(self, work: Callable[[], None]) -> None:
        self.todo.put(work)

    def end(self) -> None:
        self.todo.put(None)

    def busy_for(self, now: float) -> float:
        """Seconds since the present piece of work began; 0 when idle."""
        since = self._since
        return 0.0 if since is None else now - since

    def turn(self, patience: float | None = None) -> bool:
        try:
            work = self.todo.get(timeout=patience)
        except queue.Empty:
            return True
        if work is None:
            return False
        self._since = self._runtime.now()
        work()
        self._since = None
        return True
