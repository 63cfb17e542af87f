"""Background processes with pid files, which also have the start time, so that a reused pid is never killed."""

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

# The child writes its own pid file and then becomes the service, so that the service never runs unrecorded.
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
    """Start time of the process with this pid, as an opaque word; None if it does not exist, or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return None
        listed = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return listed.stdout.rstrip("\n").replace(" ", "_") or None
    fields = text.rpartition(") ")[2].split()
    if fields[0] in "ZX" and not _still_ending(pid):
        return None
    return fields[19]


def _still_ending(pid: int) -> bool:
    """Whether a zombie still has threads: only with its last thread are the ports of a killed process released."""
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except OSError:
        return False


def parent_of(pid: int) -> int:
    """The parent's pid, on Linux. Raises OSError if the process does not exist."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


def children_of(pid: int) -> list[int]:
    """Pids of the direct children."""
    children = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if parent_of(int(entry.name)) == pid:
                children.append(int(entry.name))
    return children


@dataclass(frozen=True)
class RecordedProcess:
    """A service's process, with its pid file and log."""

    name: str
    """Name for people, such as `kafka-1`."""
    pid_file: Path
    log: Path

    def start(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> int:
        """Start the command in a session of its own, which Ctrl-C in a terminal does not reach; returns its pid."""
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
        """The pid in the pid file if that process still lives, else None."""
        try:
            pid_text, began = self.pid_file.read_text().split()
        except (FileNotFoundError, ValueError):
            return None
        pid = int(pid_text)
        if child := _children.get(pid):
            child.poll()  # reaps a dead child, which would look alive
        return pid if process_began(pid) == began else None

    @property
    def alive(self) -> bool:
        return self.pid is not None

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if the process lives."""
        pid = self.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self, *, first: signal.Signals = signal.SIGTERM, patience: float = 10.0) -> None:
        """End the process by `first`, and by SIGKILL after `patience` seconds; returns once it has ended."""
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
    """The processes with a pid file in this folder, live or not."""
    pids = sorted((folder / "pids").glob("*.pid"))
    return [RecordedProcess(pid.stem, pid, folder / "logs" / f"{pid.stem}.log") for pid in pids]


def end_strays(folder: Path) -> list[int]:
    """Kill services that run on this folder's data without a pid file, since the folder was removed; returns their pids."""
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
