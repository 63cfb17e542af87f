"""The folder of downloaded jars, and its lock between processes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """`CRKAFKA_CACHE`, else `.cache` of this package's checkout, else the user's cache folder."""
    if chosen := os.environ.get("CRKAFKA_CACHE"):
        return Path(chosen).absolute()
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return checkout / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crkafka"


@contextmanager
def exclusively(path: Path) -> Iterator[None]:
    """Hold a lock file during the block; other processes wait. The kernel releases it if the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
