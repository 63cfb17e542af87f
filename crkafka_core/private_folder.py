"""A folder that only this user can enter, whoever may have made one of that name before."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from crkafka_core.model.errors import ConfigError


def private_folder(path: Path) -> Path:
    """The folder, made if need be; refused if it is a link, somebody else's, or open to others and cannot be closed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise ConfigError(
                f"{path} is not a folder of this user ({_whose(found)}), and others must not read or write what belongs there.",
                hint="Remove it, or have it removed.",
            ) from None
    path.chmod(0o700)
    return path


def _whose(found: os.stat_result) -> str:
    kind = "a link" if stat.S_ISLNK(found.st_mode) else "a folder" if stat.S_ISDIR(found.st_mode) else "a file"
    return f"it is {kind} of user {found.st_uid}"
