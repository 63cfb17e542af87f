"""What the definitions of a code location came from: every file that was read and every folder that was listed while they were made.

Installed packages and Python's own files are left out: a new environment is a new interpreter.
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

LISTING = ("os.listdir", "os.scandir")
"""Audit events of a folder that is listed: a new region is a new folder in it."""


class Sources:
    """`with Sources() as sources: …` keeps what the block reads; `changed` tells whether it is not so any more."""

    def __init__(self) -> None:
        self._open = False
        self._files: set[str] = set()
        self._folders: set[str] = set()
        self._seen: dict[str, Any] = {}

    def __enter__(self) -> Sources:
        self._open = True
        sys.addaudithook(self._hook)  # it cannot be taken away: afterwards it does nothing
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        modules = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        self._files |= {file for file in modules if file and not is_left_out(file)}
        self._seen = {path: _state(path) for path in self._files | self._folders}

    def changed(self) -> str:
        """The first file or folder that is not as it was; empty when all are."""
        return next((path for path, state in self._seen.items() if _state(path) != state), "")

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._open:
            return
        if event == "open" and isinstance(args[0], str | os.PathLike) and not _writes(args):
            self._add(self._files, args[0])
        elif event in LISTING and isinstance(args[0], str | os.PathLike):
            self._add(self._folders, args[0])

    def _add(self, to: set[str], path: str | os.PathLike[str]) -> None:
        full = str(Path.cwd() / os.fsdecode(path))
        if not is_left_out(full) and "__pycache__" not in full:
            to.add(full)


def is_left_out(path: str) -> bool:
    """Whether a file or folder is none that definitions come from. Code may lie within the interpreter's own prefix: `/usr/src/app`."""
    return f"{path}/".startswith(_LEFT_OUT)


def _writes(args: tuple[Any, ...]) -> bool:
    mode, flags = args[1], args[2]
    return any(c in mode for c in "wax+") if isinstance(mode, str) else bool((flags or 0) & (os.O_WRONLY | os.O_RDWR))


def _left_out() -> tuple[str, ...]:
    libraries = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders = {*libraries, *(str(Path(path).resolve()) for path in libraries), "/proc", "/dev", "/sys"}
    return tuple(f"{folder}/" for folder in folders)


_LEFT_OUT = _left_out()


def _state(path: str) -> object:
    """What tells whether it changed: of a folder, the names of its modules, YAML files and folders; of a file, time and size."""
    with contextlib.suppress(OSError):
        if not Path(path).is_dir():
            stat = Path(path).stat()
            return stat.st_mtime_ns, stat.st_size
        names = [entry for entry in Path(path).iterdir() if not entry.name.startswith((".", "__pycache__"))]
        return sorted(e.name for e in names if e.suffix in (".py", ".yaml", ".yml") or e.is_dir())
    return None
