"""The launcher: a run goes to the zygote of its code location; while there is none, to Dagster's own launcher (docs/clients.md C-D2)."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from crkafka_core.private_folder import private_folder
from dagster_project.compat.launcher import (
    GRPC_INFO_TAG,
    CheckRunHealthResult,
    ConfigurableClassData,
    DefaultRunLauncher,
    JobPythonOrigin,
    LaunchRunContext,
    WorkerStatus,
    serialize_value,
)
from dagster_project.launcher.process import GOES, Process
from dagster_project.names import REGION

_log = logging.getLogger(__name__)

TAG = ".dagster/crkafka_process"
"""Where a warm run's process is: for terminating it and for seeing that it died. Of no use to a person: not shown in the list of runs."""
ANSWER = 5.0
"""Seconds within which a zygote forks; past it the run is launched as usual."""
START = 60.0
"""Seconds for which a starting zygote is not started again."""


class WarmRunLauncher(DefaultRunLauncher):
    """In dagster.yaml: `run_launcher: {module: dagster_project.launcher, class: WarmRunLauncher}`. Linux, one machine."""

    def __init__(self, idle: float = 900.0, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(inst_data)
        self._idle = idle
        self._starting: dict[str, float] = {}
        self._lock = threading.Lock()

    @classmethod
    def config_type(cls) -> Any:
        return {
            "idle": dg.Field(
                float,
                default_value=900.0,
                is_required=False,
                description="Seconds without runs after which a zygote ends.",
            )
        }

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]) -> WarmRunLauncher:
        return cls(inst_data=inst_data, **config_value)

    def launch_run(self, context: LaunchRunContext) -> None:
        run = context.dagster_run
        try:
            warm = starts_warm(run) and self._launched(context)
        except Exception:
            _log.exception("run %s is launched as usual", run.run_id)
            warm = False
            self._forget(run.run_id)
        if not warm:
            super().launch_run(context)
        self._run_ids.add(run.run_id)

    def _forget(self, run_id: str) -> None:
        """A process that was never told to go is not a process of the run."""
        kept = self._instance.get_run_by_id(run_id)
        if kept is not None and TAG in kept.tags:
            self._instance.add_run_tags(run_id, {TAG: ""})

    def _launched(self, context: LaunchRunContext) -> bool:
        """Whether a warm process runs it. An exception before the last line leaves the run to be launched as usual."""
        run, origin, server = context.dagster_run, context.job_code_origin, server_of(context)
        if origin is None or not server:
            return False
        path = socket_of(origin, server)
        with socket.socket(socket.AF_UNIX) as door:
            pid = self._ask(door, origin, path, run)
            if pid is None:
                return False
            self._instance.add_run_tags(run.run_id, {TAG: str(Process.of(pid))})
            door.sendall(GOES)
        return True

    def terminate(self, run_id: str) -> bool:
        run = self._instance.get_run_by_id(run_id) if self.has_instance else None
        if run is None or run.is_finished:
            return False
        process = Process.parse(run.tags.get(TAG, ""))
        if process is None:
            return bool(super().terminate(run_id))  # type: ignore[no-untyped-call]
        self._instance.report_run_canceling(run)
        if process.interrupt():
            return True
        self._instance.report_engine_event(
            f"The process of the run is not there any more: {process}", run, cls=self.__class__
        )
        return False

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        process = Process.parse(run.tags.get(TAG, "")) or (self._cold(run) if starts_warm(run) else None)
        if process is None or not process.here or process.alive:  # monitoring fails a run whose state is unknown
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.FAILED, f"Process {process.pid} of the run has ended.")

    def _cold(self, run: dg.DagsterRun) -> Process | None:
        """The process of a run that Dagster's own launcher has started here, once the run has told its number."""
        where = json.loads(run.tags.get(GRPC_INFO_TAG, "{}"))
        if "socket" not in where and where.get("host") not in ("localhost", "127.0.0.1", "::1"):
            return None
        record = self._instance.get_run_record_by_id(run.run_id)
        told = self._instance.get_records_for_run(
            run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT, limit=20
        ).records
        pid = next((p for r in told if (p := _pid_of(r.event_log_entry.dagster_event))), 0)
        if not pid or record is None or record.start_time is None:
            return None
        process = Process.of(pid)
        if not process.alive or process.since > record.start_time + 1:
            return Process(process.host, pid, "gone")
        self._instance.add_run_tags(run.run_id, {TAG: str(process)})
        return process

    def dispose(self) -> None:
        """Zygotes end with the process that started them."""

    # Zygotes

    def _ask(self, door: socket.socket, origin: JobPythonOrigin, path: Path, run: dg.DagsterRun) -> int | None:
        """The process that will run it once it is told to go, or None: there is no zygote yet, it has other code, or it does not answer."""
        instance = serialize_value(self._instance.get_ref())
        request = {"run_id": run.run_id, "instance": instance, "home": os.environ.get("DAGSTER_HOME", "")}
        try:
            door.settimeout(ANSWER)
            door.connect(str(path))
            door.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(door.makefile().readline() or "{}")
        except (OSError, ValueError) as error:
            _log.info("no warm process for %s yet: %s", path.name, error)
            answer = {}
        if "pid" in answer:
            return int(answer["pid"])
        where = run.remote_job_origin.location_name if run.remote_job_origin is not None else ""
        self._start(origin, path, {"instance": instance, "location": where})
        return None

    def _start(self, origin: JobPythonOrigin, path: Path, about: Mapping[str, str]) -> None:
        with self._lock:
            if time.monotonic() - self._starting.get(str(path), -START) < START:
                return
            self._starting[str(path)] = time.monotonic()
        python = origin.repository_origin.executable_path or sys.executable
        listens = {"socket": str(path), "idle": self._idle, "parent": os.getpid()}
        order = json.dumps({"origin": serialize_value(origin), **listens, **about})
        child = subprocess.Popen(
            [python, "-m", "dagster_project.launcher.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert child.stdin is not None
        child.stdin.write(order.encode())
        child.stdin.close()
        threading.Thread(target=self._reap, args=(child, str(path)), daemon=True, name="zygote").start()

    def _reap(self, child: subprocess.Popen[bytes], path: str) -> None:
        child.wait()
        with self._lock:
            self._starting.pop(path, None)


def _pid_of(event: dg.DagsterEvent | None) -> int:
    """The process that an engine event tells of; 0 for any other."""
    entry = event.engine_event_data.metadata.get("pid") if event is not None else None
    text = str(entry.value) if entry is not None else ""
    return int(text) if text.isdigit() else 0


def starts_warm(run: dg.DagsterRun) -> bool:
    """Only runs that ask for it start warm: those of a region, and others by the tag `crkafka/warm: "true"`."""
    return REGION in run.tags or run.tags.get("crkafka/warm") == "true"


def server_of(context: LaunchRunContext) -> str:
    """The code server of the run's location, which is another one after a reload; empty when Dagster has not started it here.

    One that it has started listens on a socket, and has this process's environment and folder. Behind a port, of this machine too, may be a
    container, or a server with an environment of its own.
    """
    origin = context.dagster_run.remote_job_origin
    if origin is None or context.workspace is None:
        return ""
    location: Any = context.workspace.get_code_location(origin.repository_origin.code_location_origin.location_name)
    return str(location.server_id) if location.socket else ""


def socket_of(origin: JobPythonOrigin, server: str) -> Path:
    """Where the zygote of a code location listens: one per code server, location, instance and user."""
    repository = origin.repository_origin
    what = [
        server,
        repository.executable_path,
        serialize_value(repository.code_pointer),  # type: ignore[arg-type]
        os.environ.get("DAGSTER_HOME", ""),
        os.getuid(),
    ]
    digest = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]
    # Whoever owns the socket runs what comes through it with the rights and the environment of this user.
    home = os.environ.get("XDG_RUNTIME_DIR", "")
    if not Path(home).is_dir() or not home:
        home = tempfile.gettempdir()
    return private_folder(Path(home) / f"crkafka-runs-{os.getuid()}") / f"{digest}.sock"
