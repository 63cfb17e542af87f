"""Waiting in a test: polls a condition, and fails where it does not come about."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(condition: Callable[[], Any], what: str = "", *, seconds: float = 60.0) -> Any:
    """What the condition gives, once that is something."""
    end = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.02)
    return answer
