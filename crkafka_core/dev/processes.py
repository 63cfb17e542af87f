"""A background process known by a pid file, which also says when it began, so that a reused pid is never killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crkafka_core.dev.errors import ServiceFailed

# The child writes its own pid file and then becomes the service: at no moment does the service run unrecorded.
_RECORD_AND_BECOME = """
pid_file=$1; shift
if [ -r /proc/$$/stat ]; then
  began=$(IFS= read -r line </proc/$$/stat; line=${line##*) }; set -- $line; echo "${20}")
else
  began=$(ps -o lstart= -p $$ | tr ' ' _)
fi
echo "$$ $began" >"$pid_file.new" && mv "$pid_file.new" "$pid_file" && exec "$@"
"""


def process_began(pid: int) -> str | None:
    """When the process with this pid began, as an opaque word; None when there is none (or only its zombie)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return None
        found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return found.stdout.rstrip("\n").replace(" ", "_") or None
    fields = text.rpartition(") ")[2].split()
    if fields[0] in "ZX" and not _still_ending(pid):
        return None
    return fields[19]


def _still_ending(pid: int) -> bool:
    """A killed process of many threads looks like a zombie before its last thread, and with it its ports, is gone."""
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except OSError:
        return False


def parent_of(pid: int) -> int:
    """The process that has started it, as Linux tells. Raises OSError where it is not there."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


def children_of(pid: int) -> list[int]:
    """Processes that this one has started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if parent_of(int(entry.name)) == pid:
                found.append(int(entry.name))
    return found


@dataclass(frozen=True)
class RecordedProcess:
    """One service's process: where its pid is written, and where its output goes."""

    name: str
    """What a person calls it, such as `kafka-1`."""
    pid_file: Path
    log: Path

    def start(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: str | None = None,
    ) -> int:
        """Start the command in a session of its own (Ctrl-C in a terminal does not reach it) and return its pid."""
        self.pid_file.parent.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.pid_file.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            child = subprocess.Popen(
                ["/bin/sh", "-c", _RECORD_AND_BECOME, "sh", str(self.pid_file), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=None if env is None else {**os.environ, **env},
                cwd=cwd,
                user=user,
                start_new_session=True,
            )
        _children[child.pid] = child
        deadline = time.monotonic() + 10
        while self.pid != child.pid:
            if child.poll() is not None or time.monotonic() > deadline:
                raise ServiceFailed(self.name, "could not be started", log=self.log)
            time.sleep(0.002)
        return child.pid

    @property
    def pid(self) -> int | None:
        """The pid of the live process that the pid file means, or None."""
        try:
            pid_text, began = self.pid_file.read_text().split()
        except (FileNotFoundError, ValueError):
            return None
        pid = int(pid_text)
        if child := _children.get(pid):
            child.poll()  # reaps it, so that a dead child of ours is not taken for a live one
        return pid if process_began(pid) == began else None

    @property
    def alive(self) -> bool:
        return self.pid is not None

    def send(self, number: signal.Signals) -> None:
        """Send a signal; a process that is gone is not an error."""
        pid = self.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self, *, first: signal.Signals = signal.SIGTERM, patience: float = 10.0) -> None:
        """End the process, gently for `patience` seconds and then with SIGKILL; return when it is gone."""
        if self.alive:
            self.send(signal.SIGCONT)  # a paused process would not see SIGTERM
            self.send(first)
            if not self._gone_within(patience):
                self.send(signal.SIGKILL)
                if not self._gone_within(10):
                    raise ServiceFailed(self.name, f"process {self.pid} does not end even by SIGKILL", log=self.log)
        self.pid_file.unlink(missing_ok=True)

    def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True


def recorded_in(folder: Path) -> list[RecordedProcess]:
    """The processes that have a pid file in this folder, live or not."""
    pids = sorted((folder / "pids").glob("*.pid"))
    return [RecordedProcess(pid.stem, pid, folder / "logs" / f"{pid.stem}.log") for pid in pids]


def end_strays(folder: Path) -> list[int]:
    """SIGKILL to services that run on this folder's data although no pid file says so: somebody removed the folder."""
    ended = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        on_our_data = any(word.startswith((f"{folder}/kafka/node-", f"{folder}/postgres/data")) for word in command)
        if on_our_data and Path(command[0]).name in ("java", "postgres"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(entry.name), signal.SIGKILL)
                ended.append(int(entry.name))
    deadline = time.monotonic() + 10
    while any(process_began(pid) for pid in ended) and time.monotonic() < deadline:
        time.sleep(0.01)
    return ended


_children: dict[int, subprocess.Popen[bytes]] = {}
