"""A process of this machine that may have been replaced by another of the same number: told apart by when it began."""

from __future__ import annotations

import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

GOES = b"+"
"""The launcher's word to a child of a zygote, which begins with it."""


@dataclass(frozen=True)
class Process:
    """Where a run's process is; kept as a tag of the run."""

    host: str
    pid: int
    began: str

    @classmethod
    def of(cls, pid: int) -> Process:
        return cls(socket.gethostname(), pid, began(pid))

    @classmethod
    def parse(cls, text: str) -> Process | None:
        """What `str` wrote; None for anything else."""
        parts = text.split("|")
        if len(parts) != 3 or not parts[1].isdigit():
            return None
        return cls(parts[0], int(parts[1]), parts[2])

    def __str__(self) -> str:
        return f"{self.host}|{self.pid}|{self.began}"

    @property
    def here(self) -> bool:
        return self.host == socket.gethostname()

    @property
    def alive(self) -> bool:
        return self.here and began(self.pid) == self.began != ""

    @property
    def since(self) -> float:
        """When it began, as seconds since 1970."""
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
        return float(boot.split()[1]) + float(self.began or 0) / os.sysconf("SC_CLK_TCK")

    def interrupt(self) -> bool:
        """Ask it to end as Dagster does; whether it was there."""
        if not self.alive:
            return False
        try:
            os.kill(self.pid, signal.SIGINT)
        except ProcessLookupError:
            return False
        return True


def began(pid: int) -> str:
    """When a process began, in ticks since boot; empty when it is not there or only waits to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[19]
