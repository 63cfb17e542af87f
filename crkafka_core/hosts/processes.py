"""The host of local processes: one process per member (SPEC K1)."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from crkafka_core import logs as logs_of
from crkafka_core.config import RegionConfig
from crkafka_core.hosts.supervisor import STABLE_S, Hosted, Running, Supervisor
from crkafka_core.loop import THREADS, Runtime
from crkafka_core.model.rows import Region
from crkafka_core.plane.transact import ControlPlane


class Process(Running, Protocol):
    """A started process: a `LeashedProcess`, or a simulated one."""

    @property
    def pid(self) -> int: ...


Launch = Callable[[Mapping[str, Any], Path | None], Process]
"""Starts a member's process from its order, with its output in the file, if given."""


class LeashedProcess:
    """A Python process that reads its order from a pipe, and ends with the pipe, and so with its host, however that ends. It has a session
    of its own: signals of a terminal or supervisor to the host's process group reach only the host, which ends the members in its order,
    after the last cut (faults 81, 85)."""

    def __init__(self, order: Mapping[str, Any], log: Path | None) -> None:
        output = None
        if log is not None:
            log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            output = os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
        command = [sys.executable, "-m", "crkafka_core.member.main"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
        )
        if output is not None:
            output.close()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once: its exit code is the reason
            self._process.stdin.write(json.dumps({**order, "leash": True}).encode() + b"\n")
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        code = self._process.poll()
        if code is not None:
            self.terminate()
        return code

    def wait(self, timeout: float | None = None) -> int:
        return self._process.wait(timeout)

    def terminate(self) -> None:
        """Ask for a clean end."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def kill(self) -> None:
        self._process.kill()


class ProcessHost(Supervisor[Process]):
    """Runs each member as a process of this machine, from `begin` to `end`; `log` is a folder for their output."""

    def __init__(
        self,
        config: RegionConfig,
        plane: ControlPlane,
        *,
        log: Path | None = None,
        log_level: str = "INFO",
        log_format: str = "text",
        hook: str = "",
        hook_argument: str = "",
        launch: Launch = LeashedProcess,
        runtime: Runtime = THREADS,
        stable: float = STABLE_S,
    ) -> None:
        """`hook`: a function `package.module:name` that each member calls with its argument and itself before its threads start."""
        self._log = log
        order = {"config": config.to_json(), "host": socket.gethostname(), "hook": hook, "hook_argument": hook_argument}
        order = self._order = {**order, "log_level": log_level, "log_format": log_format}

        def start(name: str) -> Process:
            return launch({**order, "name": name}, self._log_of(name))

        super().__init__(config, plane, start, runtime=runtime, stable=stable)

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self.running().items()}

    def also(self, region: Region) -> None:
        for log in map(self._log_of, self._children):
            if log is not None:
                logs_of.cap(log)

    def _log_of(self, name: str) -> Path | None:
        return None if self._log is None else self._log / f"{name.replace('/', '-')}.log"


def open_host(region: Hosted, logs: Path | None) -> ProcessHost:
    """The host of a region with `host: processes`. Without a folder the members share our output, and log only warnings."""
    level = logs_of.level("WARNING" if logs is None else "INFO")
    return ProcessHost(region.config, region.plane, log=logs, log_level=level, log_format=logs_of.form())
