"""What a shape decodes is kept while its tables are written, so that several outputs cost one pass over the rows (SPEC K6)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pyspark import StorageLevel
from pyspark.sql import DataFrame

_kept: ContextVar[list[DataFrame] | None] = ContextVar("crkafka_kept", default=None)


@contextmanager
def one_pass() -> Iterator[None]:
    """Frames given to `keep` inside are computed once, and let go at the end."""
    frames: list[DataFrame] = []
    before = _kept.set(frames)
    try:
        yield
    finally:
        _kept.reset(before)
        for frame in frames:
            frame.unpersist()


def keep(frame: DataFrame) -> DataFrame:
    """The frame, computed once if a pass is under way; else as it is."""
    frames = _kept.get()
    if frames is None:
        return frame
    frames.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
    return frames[-1]
