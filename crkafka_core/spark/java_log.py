"""Folder of this process for its Spark: Java's log, and the settings of the start; removed at the end, unless an error names the log."""

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
SETTINGS = ".conf"
_KEPT = 7 * 86_400.0
"""Seconds for which the log of a process that has ended stays, since an error may name it."""
_STARTS = 3_600.0
"""Seconds for which a file of settings may be in use by a start."""
_folder: list[Path] = []


def path() -> Path:
    """The log; its folder is made at the first call."""
    return folder() / "spark.log"


def folder() -> Path:
    if not _folder:
        remove_left_over()
        _folder.append(Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")))
        atexit.register(remove)
    return _folder[0]


def keep() -> str:
    """The log, if there is one: it outlives this process from now on."""
    if not _folder or not path().exists():
        return ""
    log = path()
    _folder.clear()
    return str(log)


def remove() -> None:
    """Remove the folder, unless its log is kept."""
    for folder in _folder:
        shutil.rmtree(folder, ignore_errors=True)


def remove_left_over() -> None:
    """Remove what killed processes have left: settings after an hour, logs, kept ones too, after a week."""
    now = time.time()
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        pid = re.match(rf"{PREFIX}(\d+)-", left.name)
        with suppress(OSError):
            if pid is None or left.lstat().st_uid != os.geteuid() or left.is_symlink():
                continue
            ages = {file: now - file.lstat().st_mtime for file in (left, *left.iterdir())}
            for file in ages:
                if file.suffix == SETTINGS and ages[file] > _STARTS:
                    file.unlink()
            if is_gone(machine(), int(pid[1])) and min(ages.values()) > _KEPT:
                shutil.rmtree(left, ignore_errors=True)
