"""A real `dagster dev` (webserver, daemon, code server) as local processes: started, asked by GraphQL, stopped (docs/clients.md C-D10)."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from crkafka_core.dev.ports import free_ports

T = TypeVar("T")

SETTINGS = Path(__file__).parents[1] / "instance" / "dagster.yaml"
"""The project's own settings of an instance."""

ON_A_LEASH = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 2); os.execv(sys.argv[1], sys.argv[1:])"
"""Interrupt it when the process that started it is gone, however it went (PR_SET_PDEATHSIG)."""

_READY = """{ workspaceOrError { ... on Workspace { locationEntries { name loadStatus locationOrLoadError { __typename
  ... on PythonError { message } } } } } instance { daemonHealth { allDaemonStatuses { daemonType required healthy } } } }"""
_TERMINATE = "mutation T($id: String!) { terminateRun(runId: $id) { __typename } }"
_GOING = """{ runsOrError(filter: {statuses: [QUEUED, NOT_STARTED, STARTING, STARTED, CANCELING]}) {
  ... on Runs { results { runId } } } }"""


class LiveDagster:
    """`with LiveDagster(folder, module, location) as dagster: …`; `folder` gets the instance's home and the log."""

    def __init__(
        self,
        folder: Path,
        module: str,
        *,
        location: str = "crkafka",
        working_directory: Path | None = None,
        settings: Path | None = SETTINGS,
        env: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.home = folder / "dagster_home"
        self.home.mkdir(parents=True, exist_ok=True)
        if settings is not None:
            shutil.copy(settings, self.home / "dagster.yaml")
        else:
            (self.home / "dagster.yaml").write_text("telemetry: {enabled: false}\nnux: {enabled: false}\n")
        self.location = location
        self.port = free_ports(1)[0]
        self.log = folder / "dagster.log"
        self.workspace = folder / "workspace.yaml"
        self.workspace.write_text(
            f"load_from:\n  - python_module:\n      module_name: {module}\n      location_name: {location}\n"
            f"      working_directory: {working_directory or folder}\n"
        )
        self.env = {**os.environ, "DAGSTER_HOME": str(self.home), "DAGSTER_DISABLE_TELEMETRY": "1", **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> LiveDagster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, patience: float = 240.0) -> None:
        """Start, and wait until the location is loaded and every required daemon is healthy."""
        self._process = self.spawn("dagster", "dev", "-h", "127.0.0.1", "-p", str(self.port), "-w", str(self.workspace))
        try:
            self.until(self._ready, patience, "dagster dev is up")
        except BaseException:
            self.stop()
            raise

    def spawn(self, *module: str) -> subprocess.Popen[bytes]:
        """A Python module as a process, with the instance's environment; what it says goes into the log."""
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", ON_A_LEASH, sys.executable, "-m", *module],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self.env,
                cwd=self.folder,
            )

    def stop(self, patience: float = 20.0) -> None:
        """Interrupt it, as a person does with Ctrl-C; kill what does not end."""
        process, self._process = self._process, None
        if process is None:
            return
        group = process.pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(group, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        process.wait()
        self._end_strays()

    def _end_strays(self, patience: float = 5.0) -> None:
        """Runs are processes of their own, with what they started: those of this home that do not end by themselves are killed."""
        end = time.monotonic() + patience
        while (strays := self._strays()) and time.monotonic() < end:
            time.sleep(0.1)
        for pid in strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _strays(self) -> list[int]:
        mark, pids = f"DAGSTER_HOME={self.home}".encode(), []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if entry.name != str(os.getpid()) and mark in (entry / "environ").read_bytes().split(b"\0"):
                    pids.append(int(entry.name))
        return pids

    def wait(self) -> None:
        """Until it has ended."""
        assert self._process is not None
        self._process.wait()

    def end_runs(self, patience: float = 40.0) -> None:
        """Let the runs that go on come to their end; terminate those that do not, as a person would."""
        with contextlib.suppress(TimeoutError):
            self.until(lambda: not self._going(), patience, "all runs have ended by themselves")
        for run in self._going():
            self.terminate(run)
        self.until(lambda: not self._going(), patience, "all runs have ended")

    def _going(self) -> list[str]:
        return [r["runId"] for r in self.ask(_GOING)["runsOrError"]["results"]]

    # GraphQL

    def ask(self, query: str, **variables: Any) -> Any:
        """The data of an answer; errors are raised."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", data=body, headers={"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            answer = json.load(answer)
        if answer.get("errors"):
            raise RuntimeError(str(answer["errors"])[:2000])
        return answer["data"]

    def terminate(self, run_id: str) -> None:
        """End a run, as the UI does."""
        self.ask(_TERMINATE, id=run_id)

    def until(self, question: Callable[[], T], patience: float, what: str) -> T:
        """Ask again and again until the answer is true; it."""
        end, last = time.monotonic() + patience, ""
        while time.monotonic() < end:
            if self._process is not None and self._process.poll() is not None:
                raise RuntimeError(f"dagster dev has ended: see {self.log}\n{self.log.read_text()[-3000:]}")
            try:
                answer = question()
                if answer:
                    return answer
            except (OSError, KeyError, TypeError) as error:
                last = str(error)
            time.sleep(0.2)
        raise TimeoutError(
            f"not within {patience:.0f} s: {what}. {last} See {self.log}\n{self.log.read_text()[-3000:]}"
        )

    def _ready(self) -> bool:
        data = self.ask(_READY)
        entries = data["workspaceOrError"]["locationEntries"]
        for entry in entries:
            if (entry["locationOrLoadError"] or {}).get("__typename") == "PythonError":
                raise RuntimeError(entry["locationOrLoadError"]["message"])
        daemons = data["instance"]["daemonHealth"]["allDaemonStatuses"]
        return (
            bool(entries)
            and all(e["loadStatus"] == "LOADED" for e in entries)
            and all(d["healthy"] for d in daemons if d["required"])
        )
