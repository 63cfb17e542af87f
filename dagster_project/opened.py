"""Stores and regions, opened once per process: resources are set up at every tick (docs/clients.md C-D12).

Engines must not survive a fork.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_making: dict[tuple[int, str, str], threading.Lock] = {}
_opened: dict[tuple[int, str, str], Any] = {}


def once(kind: str, key: str, make: Callable[[], T]) -> T:
    """What `make` gives, made once per process, kind and key; one that hangs does not delay others."""
    at = (os.getpid(), kind, key)
    with _making.setdefault(at, threading.Lock()):
        if at not in _opened:
            _opened[at] = make()
        kept: T = _opened[at]
        return kept
