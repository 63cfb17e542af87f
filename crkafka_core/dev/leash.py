"""A watcher that ends a folder's services when the process that started them is gone, however it went."""

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
    """Held by a pipe, and by being the parent: when either is gone, even by SIGKILL, the services are ended.

    With `remove` the folder goes too, and the one around it if that leaves it empty. The watcher is a process of its
    own, in its own session, so that neither Ctrl-C nor a kill of the process group hits it.
    """

    def __init__(self, folder: Path, *, remove: bool = False) -> None:
        self._folder = Path(folder).absolute()
        self._remove = remove
        self._watcher: subprocess.Popen[bytes] | None = None

    def hold(self, folder: Path) -> None:
        """Start watching; to be called before the first service of the folder starts, which has to be the one that is watched."""
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
        """End what still runs in the folder, and the watcher."""
        if self._watcher is not None:
            self._watcher.communicate()
            self._watcher = None


def end_all(folder: Path) -> None:
    """SIGKILL to everything recorded in the folder, and to what runs there unrecorded."""
    for process in recorded_in(folder):
        process.stop(first=signal.SIGKILL)
    end_strays(folder)


def _watch(folder: Path, parent: int, *, remove: bool) -> None:
    # The pipe tells at once; the parent's pid tells also when a forked child of the parent keeps the pipe open.
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], 0.5)
        if readable and not os.read(0, 4096):
            break
    end_all(folder)
    time.sleep(0.3)  # one that was just being started has recorded itself by now
    end_all(folder)
    if remove:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty: another service is still there
            folder.parent.rmdir()


if __name__ == "__main__":
    _watch(Path(sys.argv[1]), int(sys.argv[2]), remove="--remove" in sys.argv[3:])
