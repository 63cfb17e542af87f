"""How a member's process handles memory: batches of half a megabyte come and go, a hundred times a second (docs/speed.md, row 7)."""

from __future__ import annotations

import ctypes
import gc
import sys

_COLLECT_EVERY = 100_000
"""Objects between two looks for garbage. Messages count, though none is part of a cycle: the usual 700 cost a tenth of the speed."""
_KEPT = 64 << 20
"""Bytes of freed memory that stay ours. Given back to the system and asked for again, each page is cleared again."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # <malloc.h> of glibc


def settle() -> None:
    """Once, after all is imported and before threads start; without glibc only the garbage collector is set."""
    gc.freeze()
    gc.set_threshold(_COLLECT_EVERY)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _KEPT // 2)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)
