"""`dagster dev` as a process of the demo: with the project's instance settings, a free port, and a log."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import dagster_project
from crkafka_core.dev.ports import free_ports

SETTINGS = Path(dagster_project.__file__).parent / "instance" / "dagster.yaml"
"""The project's own choice of instance settings."""
READY = '{"query": "{ workspaceOrError { ... on Workspace { locationEntries { loadStatus locationOrLoadError { __typename } } } } }"}'


class DagsterDev:
    """Webserver, daemon and code server; all end with `end`."""

    def __init__(self, project: Path, home: Path, log: Path) -> None:
        self.project, self.home, self.log = project, home, log
        self.port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def begin(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        shutil.copy(SETTINGS, self.home / "dagster.yaml")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dagster", "dev", "-f", "definitions.py", "-h", "127.0.0.1", "-p", str(self.port)],
                cwd=self.project, env={**os.environ, "DAGSTER_HOME": str(self.home)}, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def ready(self, within: float = 240.0) -> None:
        """Until the webserver answers and has loaded the project; the daemon's sensors tick from then on."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            assert self._process is not None
            if self._process.poll() is not None:
                raise SystemExit(f"Dagster ended with {self._process.returncode}; see {self.log}.")
            try:
                request = urllib.request.Request(
                    f"{self.url}/graphql", READY.encode(), {"Content-Type": "application/json"}
                )
                with urllib.request.urlopen(request, timeout=5) as answer:
                    entries = json.load(answer)["data"]["workspaceOrError"]["locationEntries"]
                if entries and all(e["loadStatus"] == "LOADED" and e["locationOrLoadError"] for e in entries):
                    return
            except (OSError, ValueError, KeyError, TypeError):
                pass
            time.sleep(0.5)
        raise SystemExit(f"Dagster was not ready within {within:.0f} s; see {self.log}.")

    def wait(self) -> None:
        assert self._process is not None
        self._process.wait()

    def end(self) -> None:
        """Ask it to end, and all that it started; what does not, is ended."""
        if self._process is None or self._process.poll() is not None:
            return
        os.killpg(self._process.pid, signal.SIGINT)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
