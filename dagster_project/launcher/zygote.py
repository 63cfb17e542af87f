"""The warm process of one code location: imports it, waits, and forks a child per run. Nothing here starts a thread before the fork.

It ends when it is idle for long, when the process that started it is gone, and when something that the definitions came from was changed:
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

from dagster_project.compat import launcher as compat
from dagster_project.launcher.process import GOES
from dagster_project.launcher.sources import Sources

POLL_S = 2.0
"""How often it looks whether it is still wanted, in seconds."""

GO = 30.0
"""For how many seconds a child waits for the launcher's word."""


def main() -> None:
    order = json.load(sys.stdin)
    origin = compat.deserialize_value(order["origin"], compat.JobPythonOrigin)
    os.environ.update(variables(order))
    with Sources() as sources:
        warm(origin)
    path = Path(order["socket"])
    # A fork copies one thread only: a lock that another holds would stay locked in the child.
    if threading.active_count() != 1:
        sys.exit(f"the definitions started threads: {[t.name for t in threading.enumerate()]}; runs stay cold")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    door = listen(path)
    mine = path.stat().st_ino
    try:
        serve(door, order["idle"], order["parent"], sources)
    finally:
        with contextlib.suppress(OSError):
            if path.stat().st_ino == mine:  # a newer one may have taken the place
                path.unlink()


def variables(order: dict[str, Any]) -> dict[str, str]:
    """What Dagster gives a code server beside its own environment: the variables of a `.env` file."""
    loader = compat.deserialize_value(order["instance"], compat.InstanceRef).secrets_loader
    return {} if loader is None else dict(loader.get_secrets_for_environment(order["location"] or None))


def warm(origin: compat.JobPythonOrigin) -> None:
    """Import what a run imports, and keep the definitions, so that a run need not make them again."""
    compat.load()
    pointer = origin.repository_origin.code_pointer
    loaded: Any = compat.def_from_pointer(pointer)
    if isinstance(pointer, compat.ModuleCodePointer):
        if callable(loaded):
            loaded = loaded()
        module = importlib.import_module(pointer.module)
        if hasattr(loaded, "get_repository_def"):
            loaded.get_repository_def()
            setattr(module, pointer.fn_name, loaded)
    with contextlib.suppress(ImportError):
        import crkafka_core.region  # noqa: F401


def listen(path: Path) -> socket.socket:
    """Listen; a newer zygote takes the place of an older one."""
    new = path.with_suffix(f".{os.getpid()}")
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(new))
    new.chmod(0o600)
    door.listen(64)
    new.rename(path)
    return door


def serve(door: socket.socket, idle: float, parent: int, sources: Sources) -> None:
    last = time.monotonic()
    while time.monotonic() - last < idle and os.getppid() == parent:
        ready, _, _ = select.select([door], [], [], POLL_S)
        if not ready:
            continue
        guest, _ = door.accept()
        with guest:
            guest.settimeout(POLL_S)
            try:
                request = json.loads(guest.makefile().readline())
            except (OSError, ValueError):
                continue
            if sources.changed():
                guest.sendall(b'{"stale": true}\n')
                return
            last = time.monotonic()
            pid = os.fork()
            if pid == 0:
                door.close()
                if not told_to_go(guest):
                    os._exit(0)
                guest.close()
                run(request)
            with contextlib.suppress(OSError):
                guest.sendall(json.dumps({"pid": pid}).encode() + b"\n")


def told_to_go(guest: socket.socket) -> bool:
    """In the child: whether the launcher has got the answer. One that has not launches the run elsewhere: it must not run twice."""
    guest.settimeout(GO)
    try:
        return guest.recv(1) == GOES
    except OSError:
        return False


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
