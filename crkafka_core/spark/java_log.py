"""What Java writes for a Spark of ours: a log in a folder of this process, gone at its end unless an error names it."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from crkafka_core.holder import is_gone, machine

PREFIX = "crkafka-spark-"
_KEPT = 7 * 86_400.0
"""Seconds for which the log of a process that is gone stays: somebody may have been told to look there."""
_folder: list[Path] = []


def path() -> Path:
    """Of this process's Spark; its folder is made when it is first asked for."""
    if not _folder:
        remove_left_over()
        _folder.append(Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")))
        atexit.register(remove)
    return _folder[0] / "spark.log"


def keep() -> str:
    """The log, if anything was written: it outlives this process."""
    if not _folder or not any(_folder[0].iterdir()):
        return ""
    log = path()
    _folder.clear()
    return str(log)


def remove() -> None:
    """Unless it is kept."""
    for folder in _folder:
        shutil.rmtree(folder, ignore_errors=True)


def remove_left_over() -> None:
    """Folders of processes that were killed, or that kept their log, a week ago."""
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        pid = re.match(rf"{PREFIX}(\d+)-", left.name)
        with suppress(OSError):
            last = max(file.lstat().st_mtime for file in (left, *left.iterdir()))
            mine = left.lstat().st_uid == os.geteuid() and not left.is_symlink()
            if mine and pid is not None and is_gone(machine(), int(pid[1])) and time.time() - last > _KEPT:
                shutil.rmtree(left, ignore_errors=True)
