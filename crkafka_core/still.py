"""Work that takes long tells now and then that it goes on, to whoever sees only lines: a log, the output of a job."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

FIRST, LATER = 10.0, 30.0
"""Seconds between two lines in the first minute, and after it."""
_MINUTE = 60.0


def spark_starts(seconds: float) -> str:
    """For `telling`."""
    return f"Spark is still starting, for {seconds:.0f} s now"


def pause(since: float) -> float:
    """Seconds until the next line, so long after the beginning."""
    return FIRST if since < _MINUTE else LATER


@contextmanager
def telling(tell: Callable[[str], None], words: Callable[[float], str]) -> Iterator[None]:
    """While the block lasts `tell` hears, on a thread of its own, what `words` says after so many seconds."""
    began, over = time.monotonic(), threading.Event()

    def run() -> None:
        while not over.wait(pause(time.monotonic() - began)):
            tell(words(time.monotonic() - began))

    thread = threading.Thread(target=run, name="still", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(1.0)


def starting(tell: Callable[[str], None], start: Callable[[], T]) -> T:
    """The Spark session that `start` gives; how long that takes is told while it takes long, and at the end."""
    began = time.monotonic()
    tell("Spark starts; jars that are not here yet are fetched first")
    with telling(tell, spark_starts):
        started = start()
    tell(f"Spark has started, in {time.monotonic() - began:.0f} s; its first job takes longer than the next ones")
    return started
