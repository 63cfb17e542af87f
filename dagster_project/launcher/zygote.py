"""The warm process of one code location: imports it, waits, and forks a child per run. Nothing here starts a thread before the fork.

It ends when it is idle for long, when the process that started it is gone, and when a file it has imported was changed:
then runs start cold until the next one is there, with the new code.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from dagster_project.launcher import compat

LOOK = 2.0
"""How often it looks whether it is still wanted, in seconds."""


def main() -> None:
    order = json.load(sys.stdin)
    origin = compat.deserialize_value(order["origin"], compat.JobPythonOrigin)
    warm(origin)
    path = Path(order["socket"])
    fingerprint = files()
    # A fork copies one thread only: a lock that another holds would stay locked in the child.
    if threading.active_count() != 1:
        sys.exit(f"the definitions started threads: {[t.name for t in threading.enumerate()]}; runs stay cold")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    door = listen(path)
    mine = path.stat().st_ino
    try:
        serve(door, order["idle"], order["parent"], fingerprint)
    finally:
        with contextlib.suppress(OSError):
            if path.stat().st_ino == mine:  # a newer one may have taken the place
                path.unlink()


def warm(origin: compat.JobPythonOrigin) -> None:
    """Import what a run imports, and keep the definitions, so that a run need not make them again."""
    import dagster._core.execution.api
    import dagster._core.storage.event_log.sqlite
    import dagster._core.storage.runs.sqlite  # noqa: F401

    pointer = origin.repository_origin.code_pointer
    loaded = compat.def_from_pointer(pointer)
    if isinstance(pointer, compat.ModuleCodePointer):
        if callable(loaded):
            loaded = loaded()
        module = importlib.import_module(pointer.module)
        if hasattr(loaded, "get_repository_def"):
            loaded.get_repository_def()
            setattr(module, pointer.fn_name, loaded)
    with contextlib.suppress(ImportError):
        import crkafka_core.region  # noqa: F401


def files() -> dict[str, float]:
    """When each source file of the project was changed: of all modules outside the environment."""
    outside = (sys.prefix, sys.base_prefix)
    found: dict[str, float] = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and not file.startswith(outside):
            with contextlib.suppress(OSError):
                found[file] = Path(file).stat().st_mtime
                for yaml in Path(file).parent.glob("*/defs.yaml"):
                    found[str(yaml)] = yaml.stat().st_mtime
    return found


def changed(fingerprint: dict[str, float]) -> bool:
    """Whether a file is not as it was imported."""
    try:
        return any(Path(file).stat().st_mtime != at for file, at in fingerprint.items())
    except OSError:
        return True


def listen(path: Path) -> socket.socket:
    """Listen; a newer zygote takes the place of an older one."""
    new = path.with_suffix(f".{os.getpid()}")
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(new))
    new.chmod(0o600)
    door.listen(64)
    new.rename(path)
    return door


def serve(door: socket.socket, idle: float, parent: int, fingerprint: dict[str, float]) -> None:
    last = time.monotonic()
    while time.monotonic() - last < idle and os.getppid() == parent:
        ready, _, _ = select.select([door], [], [], LOOK)
        if not ready:
            continue
        guest, _ = door.accept()
        with guest:
            guest.settimeout(LOOK)
            try:
                request = json.loads(guest.makefile().readline())
            except (OSError, ValueError):
                continue
            if changed(fingerprint):
                guest.sendall(b'{"stale": true}\n')
                return
            last = time.monotonic()
            pid = os.fork()
            if pid == 0:
                door.close()
                guest.close()
                run(request)
            guest.sendall(json.dumps({"pid": pid}).encode() + b"\n")


def run(request: dict[str, Any]) -> None:
    """In the child: execute the run and end."""
    from dagster import DagsterInstance

    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        if request["home"]:
            os.environ["DAGSTER_HOME"] = request["home"]
        ref = compat.deserialize_value(request["instance"], compat.InstanceRef)
        with DagsterInstance.from_ref(ref) as instance:
            code = compat.execute_run(request["run_id"], instance, lambda _: None, False)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
