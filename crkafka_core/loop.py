"""A loop is a `turn` that a thread of three lines repeats; who gives time and threads may be real or simulated.

| a loop calls | on threads | in a simulation |
|---|---|---|
| `now`, `sleep`, `wait` | the system's clock | simulated time; another loop may move meanwhile |
| `start`, `ended` | a daemon thread per loop | the scheduler repeats its turns |
"""

from __future__ import annotations

import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol


class Signal(Protocol):
    """What can be waited for: a `threading.Event`."""

    def is_set(self) -> bool: ...
    def set(self) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Turns(Protocol):
    """What can be repeated."""

    def turn(self) -> bool: ...


class Runtime(Protocol):
    """Time, and who repeats the turns of loops."""

    def now(self) -> float:
        """Monotonic seconds."""

    def sleep(self, seconds: float) -> None: ...

    def wait(self, signal: Signal, seconds: float) -> bool:
        """Sleep, cut short when the signal is set; whether it is."""

    def start(self, loop: Loop) -> None: ...

    def repeat(self, loop: Turns) -> None:
        """Its turns, here and now, until there is nothing more to do."""

    def ended(self, loop: Loop, patience: float | None) -> bool:
        """Whether a loop has ended or never began, waited for so long (None: until it has)."""

    def unique(self) -> str:
        """Hex digits that nobody else has."""


class Threads:
    """The system's clock and threads."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, signal: Signal, seconds: float) -> bool:
        return signal.wait(seconds)

    def start(self, loop: Loop) -> None:
        loop.start()

    def repeat(self, loop: Turns) -> None:
        while loop.turn():
            pass

    def ended(self, loop: Loop, patience: float | None) -> bool:
        if loop.is_alive():
            loop.join(patience)
        return not loop.is_alive()

    def unique(self) -> str:
        return uuid.uuid4().hex


THREADS = Threads()


class Loop(threading.Thread, ABC):
    """A daemon thread, once started, that repeats its turn."""

    def __init__(self, name: str, runtime: Runtime = THREADS) -> None:
        super().__init__(name=name, daemon=True)
        self._runtime = runtime

    @abstractmethod
    def turn(self, patience: float = ...) -> bool:
        """One round; waits for something to do for at most `patience` seconds. False: there is nothing more to do, ever."""

    def run(self) -> None:
        self._runtime.repeat(self)


class Repeated(Loop):
    """A loop whose turn is a function."""

    def __init__(self, name: str, turn: Callable[[], bool], runtime: Runtime) -> None:
        super().__init__(name, runtime)
        self._turn = turn

    def turn(self, patience: float = 0.0) -> bool:
        return self._turn()
