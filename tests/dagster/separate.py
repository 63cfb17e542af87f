"""Dagster as it is run in production: code server, webserver and daemon as processes of their own, each of which may die."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

from crkafka_core.dev.ports import free_ports
from tests.rigs.driven_dagster import DrivenDagster

PARTS = ("code", "webserver", "daemon")


class SeparateDagster(DrivenDagster):
    """As `DrivenDagster`; `kill` ends one part as a crash does, `begin` brings it back."""

    def __init__(self, folder: Path, module: str, **more: Any) -> None:
        super().__init__(folder, module, **more)
        self._module = module
        self._code_port = free_ports(1)[0]
        self._parts: dict[str, subprocess.Popen[bytes]] = {}
        self.workspace.write_text(
            "load_from:\n  - grpc_server:\n      host: 127.0.0.1\n"
            f"      port: {self._code_port}\n      location_name: {self.location}\n"
        )

    def start(self, patience: float = 240.0) -> None:
        """Start all parts, and wait until the location is loaded and every required daemon is healthy."""
        try:
            for part in PARTS:
                self.begin(part)
            self.until(self.ready, patience, "Dagster is up")
        except BaseException:
            self.stop()
            raise

    def ready(self) -> bool:
        """Whether all parts are there and know of each other."""
        return self._serves() and self._ready()

    def _serves(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._code_port), timeout=5):
            return True
        return False

    def begin(self, part: str) -> None:
        """Start one part; those that ask the code server do so once it serves."""
        if part != "code":
            self.until(self._serves, 120, "the code server serves")
        workspace = ["-w", str(self.workspace)]
        code = ["-h", "127.0.0.1", "-p", str(self._code_port), "-m", self._module, "-d", str(self.folder)]
        command = {
            "code": ["dagster", "api", "grpc", *code],
            "webserver": ["dagster_webserver", "-h", "127.0.0.1", "-p", str(self.port), *workspace],
            "daemon": ["dagster._daemon", "run", *workspace],
        }[part]
        self._parts[part] = self.spawn(*command)

    def kill(self, part: str) -> None:
        """`kill -9` of one part; runs are not its process, and go on."""
        process = self._parts.pop(part)
        process.kill()
        process.wait()

    def stop(self, patience: float = 20.0) -> None:
        for process in self._parts.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGINT)
        for process in self._parts.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._parts.clear()
        self._end_strays()
