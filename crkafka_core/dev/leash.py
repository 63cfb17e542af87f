"""A watcher that ends a folder's services with the process that started them, however that ends."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from crkafka_core.dev.processes import end_strays, recorded_in


class Leash:
    """Ends the services once the pipe to this process breaks or this process is no longer the watcher's parent, also after SIGKILL.

    With `remove` the folder is removed too, and its parent if that is empty then. The watcher is a process in its own session, so that
    neither Ctrl-C nor a kill of the process group reaches it.
    """

    def __init__(self, folder: Path, *, remove: bool = False) -> None:
        self._folder = Path(folder).absolute()
        self._remove = remove
        self._watcher: subprocess.Popen[bytes] | None = None

    def hold(self, folder: Path) -> None:
        """Start watching `folder`, which has to be the leash's; call it before its first service starts."""
        if folder != self._folder:
            raise ValueError(f"The leash is on {self._folder}; services of {folder} would outlive it.")
        if self._watcher is None or self._watcher.poll() is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            options = ["--remove"] if self._remove else []
            self._watcher = subprocess.Popen(
                [sys.executable, "-m", "crkafka_core.dev.leash", str(self._folder), str(os.getpid()), *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )

    def release(self) -> None:
        """End the folder's services and the watcher."""
        if self._watcher is not None:
            self._watcher.communicate()
            self._watcher = None


def end_all(folder: Path) -> None:
    """Kill all services of the folder, with and without pid files."""
    for process in recorded_in(folder):
        process.stop(first=signal.SIGKILL)
    end_strays(folder)


def _watch(folder: Path, parent: int, *, remove: bool) -> None:
    # The pipe breaks at once; the parent's pid is for a forked child of the parent that keeps the pipe open.
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], 0.5)
        if readable and not os.read(0, 4096):
            break
    end_all(folder)
    time.sleep(0.3)  # a service that was just being started has written its pid file by now
    end_all(folder)
    if remove:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty: it has another service's folder
            folder.parent.rmdir()


if __name__ == "__main__":
    _watch(Path(sys.argv[1]), int(sys.argv[2]), remove="--remove" in sys.argv[3:])
