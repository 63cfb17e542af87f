"""Expectations of the compliance suite, so that it needs no test framework."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def raises(*errors: type[BaseException]) -> Iterator[None]:
    """The block must raise one of these."""
    try:
        yield
    except errors:
        return
    raise AssertionError(f"nothing was raised; expected {', '.join(error.__name__ for error in errors)}")


def eventually(true: Callable[[], bool], *, within: float, what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + within
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what}")
        time.sleep(0.01)
