"""The launcher: a run goes to the zygote of its code location; while there is none, to Dagster's own launcher (FACTS D2)."""

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

from dagster_project.launcher.compat import (
    GRPC_INFO_TAG,
    CheckRunHealthResult,
    ConfigurableClassData,
    DefaultRunLauncher,
    JobPythonOrigin,
    LaunchRunContext,
    WorkerStatus,
    serialize_value,
)
from dagster_project.launcher.process import Process

_log = logging.getLogger(__name__)

TAG = "crkafka/process"
"""Where a warm run's process is: for terminating it and for seeing that it died."""
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
        run, origin = context.dagster_run, context.job_code_origin
        found = self._ask(origin, run.run_id) if origin is not None else None
        if found is None:
            super().launch_run(context)
            return
        self._instance.add_run_tags(run.run_id, {TAG: str(Process.of(found))})
        self._run_ids.add(run.run_id)

    def terminate(self, run_id: str) -> bool:
        run = self._instance.get_run_by_id(run_id) if self.has_instance else None
        if run is None or run.is_finished:
            return False
        process = Process.parse(run.tags.get(TAG, ""))
        if process is None:
            return bool(super().terminate(run_id))
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
        process = Process.parse(run.tags.get(TAG, "")) or self._cold(run)
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

    def _ask(self, origin: JobPythonOrigin, run_id: str) -> int | None:
        """The process of the run, or None: there is no zygote yet, it has other code, or it does not answer."""
        path = socket_of(origin)
        request = {
            "run_id": run_id,
            "instance": serialize_value(self._instance.get_ref()),
            "home": os.environ.get("DAGSTER_HOME", ""),
        }
        try:
            with socket.socket(socket.AF_UNIX) as door:
                door.settimeout(ANSWER)
                door.connect(str(path))
                door.sendall(json.dumps(request).encode() + b"\n")
                answer = json.loads(door.makefile().readline() or "{}")
        except (OSError, ValueError) as error:
            _log.info("no warm process for %s yet: %s", path.name, error)
            self._start(origin, path)
            return None
        if "pid" in answer:
            return int(answer["pid"])
        self._start(origin, path)
        return None

    def _start(self, origin: JobPythonOrigin, path: Path) -> None:
        with self._lock:
            if time.monotonic() - self._starting.get(str(path), -START) < START:
                return
            self._starting[str(path)] = time.monotonic()
        repository = origin.repository_origin
        python = repository.executable_path or sys.executable
        order = json.dumps(
            {"origin": serialize_value(origin), "socket": str(path), "idle": self._idle, "parent": os.getpid()}
        )
        child = subprocess.Popen(
            [python, "-m", "dagster_project.launcher.zygote"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True,
            cwd=getattr(repository.code_pointer, "working_directory", None) or None,
        )  # fmt: skip
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
    found = event.engine_event_data.metadata.get("pid") if event is not None else None
    text = str(found.value) if found is not None else ""
    return int(text) if text.isdigit() else 0


def socket_of(origin: JobPythonOrigin) -> Path:
    """Where the zygote of a code location listens: one per location, instance and user."""
    repository = origin.repository_origin
    what = [
        repository.executable_path,
        serialize_value(repository.code_pointer),
        os.environ.get("DAGSTER_HOME", ""),
        os.getuid(),
    ]
    digest = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"crkafka-runs-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{digest}.sock"
