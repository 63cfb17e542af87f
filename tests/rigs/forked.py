"""Members of tests as forks of one process that has imported everything: a second of a core less for each, and else as `LeashedProcess`.

    this process ── socket ──> the template ── fork ──> a keeper ── fork ──> the member
         └─────────── the order, and the leash ────────────────────────────────┘

The template only forks. A keeper waits for its member and tells how it ended; it has nothing else to do, so a member that is
stopped, killed or superseded meets nobody but its host.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

IMPORTS = (
    "checkpoints_db.store",
    "crkafka_core.member.main",
    "crkafka_core.segments.objects",
    "tests.rigs.failpoints",
    "psycopg",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite",
)
"""What members need sooner or later. None of it may start a thread of ours or a client: neither would live in a fork."""
_LARGEST_REQUEST = 1 << 20


class ForkedProcess:
    """One member, started as a host starts it: a session of its own, an order and a leash in a pipe, its output in a file."""

    def __init__(self, order: Mapping[str, Any], log: Path | None) -> None:
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
        reading, self._leash = os.pipe()
        self._exit_pipe, telling = os.pipe()
        self._lock = threading.Lock()
        self._code: int | None = None
        request = {"log": str(log or ""), "folder": str(Path.cwd()), "environment": dict(os.environ)}
        try:
            _template().fork(request, (reading, telling))
        finally:
            os.close(reading)
            os.close(telling)
        self.pid = int(self._next_word())
        with contextlib.suppress(BrokenPipeError):  # it died at once: its exit code says of what
            _write(self._leash, json.dumps({**order, "leash": True}).encode() + b"\n")

    def poll(self) -> int | None:
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("a forked member", timeout or 0.0)
        return code

    def terminate(self) -> None:
        with self._lock:
            self._let_go()

    def kill(self) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def __del__(self) -> None:
        self._let_go()
        os.close(self._exit_pipe)

    def _ended(self, patience: float | None) -> int | None:
        if self._code is None and self._hears(patience):
            with self._lock:
                if self._code is None:
                    self._code = int(self._next_word())
                    self._let_go()
        return self._code

    def _hears(self, patience: float | None) -> bool:
        waiting = select.poll()
        waiting.register(self._exit_pipe, select.POLLIN)
        return bool(waiting.poll(None if patience is None else patience * 1000))

    def _let_go(self) -> None:
        leash, self._leash = self._leash, -1
        if leash >= 0:
            os.close(leash)

    def _next_word(self) -> str:
        """A line from the keeper."""
        word = b""
        while not word.endswith(b"\n"):
            letter = os.read(self._exit_pipe, 1)
            if not letter:
                raise RuntimeError("The template of forked members is gone.")
            word += letter
        return word.decode()


class _Template:
    """The process that forks; it ends when this one does."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.rigs.forked", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def fork(self, request: Mapping[str, Any], pipes: tuple[int, int]) -> None:
        with self._lock:
            socket.send_fds(self._control, [json.dumps(request).encode()], pipes)

    def end(self) -> None:
        self._control.close()
        self._process.wait()


_made: list[_Template] = []
_making = threading.Lock()


def _template() -> _Template:
    with _making:
        if not _made:
            _made.append(_Template())
            atexit.register(_made[0].end)
        return _made[0]


def _serve(control: socket.socket) -> None:
    """The template: a keeper for each request, until the one who asks is gone; then until the last member is."""
    for name in IMPORTS:
        importlib.import_module(name)
    while True:
        message, pipes, _, _ = socket.recv_fds(control, _LARGEST_REQUEST, 2)
        if not message:
            break
        if os.fork() == 0:
            control.close()
            os._exit(_keep(json.loads(message), *pipes))
        for pipe in pipes:
            os.close(pipe)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _keep(request: Mapping[str, Any], order: int, telling: int) -> int:
    """The keeper: tells the member's process id, and its exit code as `subprocess` has it."""
    pid = os.fork()
    if pid == 0:
        os.close(telling)
        _become_member(request, order)
    os.close(order)
    _write(telling, f"{pid}\n".encode())
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(BrokenPipeError):  # nobody asks any more
        _write(telling, f"{code}\n".encode())
    return 0


def _become_member(request: Mapping[str, Any], order: int) -> NoReturn:
    """What `python -m crkafka_core.member.main` does, up to its last line."""
    from crkafka_core.member.main import leave, main

    os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    os.dup2(order, 0)
    os.close(order)
    if request["log"]:
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
    code = 1
    try:
        with open(0, closefd=False) as stdin:
            code = main(stdin)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    leave(code)


def _write(pipe: int, data: bytes) -> None:
    while data:
        data = data[os.write(pipe, data) :]


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        _serve(asked)
