"""The local-process host: one process per member, restarted with back-off, as many as the region wants (SPEC K1, G5)."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from crkafka_core.config import RegionConfig
from crkafka_core.member.main import NO_RESTART
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.phase import Phase
from crkafka_core.plane.transact import ControlPlane

_log = logging.getLogger(__name__)
STABLE = 30.0
"""A member that lived so long is restarted at once."""
AGAIN = 0.5
"""Seconds after a clean end before a member that is wanted after all is started again."""
PATIENCE = 15.0
"""Seconds that members have for a clean end."""


class Hosted(Protocol):
    """What a host needs of a region."""

    @property
    def config(self) -> RegionConfig: ...

    @property
    def plane(self) -> ControlPlane: ...


@dataclass
class _Child:
    name: str
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    failures: int = 0
    next_start: float = 0.0
    done: bool = False
    """It ended for good: superseded, or refused."""
    codes: list[int] = field(default_factory=list)


class ProcessHost:
    """`begin` … `end`; members also end by themselves when the region is idle. `log` is a folder for their output."""

    def __init__(
        self,
        config: RegionConfig,
        plane: ControlPlane,
        *,
        log: Path | None = None,
        log_level: str = "INFO",
        hook: str = "",
        hook_argument: str = "",
    ) -> None:
        """`hook`: a function `package.module:name` that each member calls with its parts before its threads start."""
        self._config = config
        self._plane = plane
        self._log = log
        self._order = {"log_level": log_level, "hook": hook, "hook_argument": hook_argument}
        self._children: dict[str, _Child] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="host", daemon=True)
        self._lock = threading.Lock()
        self.restarts = 0

    def begin(self) -> None:
        self._thread.start()

    def pids(self) -> dict[str, int]:
        """Process ids of the living members, by name."""
        with self._lock:
            return {
                c.name: c.process.pid
                for c in self._children.values()
                if c.process is not None and c.process.poll() is None
            }

    def join(self, timeout: float | None = None) -> bool:
        """Until the region is idle and all members have ended; whether that came to pass."""
        end = None if timeout is None else time.monotonic() + timeout
        while end is None or time.monotonic() < end:
            idle = self._plane.read(lambda _, region: region.phase is Phase.IDLE)
            if idle and not self.pids():
                return True
            time.sleep(0.1)
        return False

    def end(self, patience: float = PATIENCE) -> None:
        """Ask every member for a clean end, and end those that do not come to it."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            living = [c.process for c in self._children.values() if c.process is not None and c.process.poll() is None]
        for process in living:
            process.terminate()
        limit = time.monotonic() + patience
        for process in living:
            try:
                process.wait(max(0.0, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                _log.warning("member process %s did not end in %.0f s: killed", process.pid, patience)
                process.kill()
                process.wait()

    def _watch(self) -> None:
        while not self._over.is_set():
            try:
                region = self._plane.read(lambda _, row: row)
                wanted = 0 if region.phase is Phase.IDLE else region.members_wanted
                with self._lock:
                    self._tend(wanted)
                self._plane.wait(region.version, 0.2)
            except CrkafkaError as error:
                _log.warning("host: %s", error)
                self._over.wait(1.0)
            except Exception:  # a thread that died in silence would never restart a member again
                _log.exception("host")
                self._over.wait(1.0)
            self._over.wait(0.05)

    def _tend(self, wanted: int) -> None:
        now = time.monotonic()
        names = [self._config.member_name(i) for i in range(wanted)]
        for name in names:
            child = self._children.setdefault(name, _Child(name))
            self._reap(child, now)
            if child.process is None and not child.done and now >= child.next_start:
                self._start(child, now)
        for name, child in self._children.items():
            if name not in names:
                self._reap(child, now)
                if child.process is None:
                    child.done = False  # wanted again, it is started again

    def _reap(self, child: _Child, now: float) -> None:
        if child.process is None or child.process.poll() is None:
            return
        code = child.process.returncode
        child.process = None
        child.codes.append(code)
        child.done = code in NO_RESTART
        if child.done:
            return
        if code == 0:
            child.failures, child.next_start = (
                0,
                now + AGAIN,
            )  # not wanted at that moment; it is started again if it still is
            return
        child.failures = 1 if now - child.started > STABLE else child.failures + 1
        child.next_start = now + (0.0 if child.failures == 1 else min(0.5 * 2 ** (child.failures - 2), 30.0))
        self.restarts += 1
        _log.warning("%s ended with code %s; it is started again", child.name, code)

    def _start(self, child: _Child, now: float) -> None:
        order = {"config": self._config.to_json(), "name": child.name, "host": socket.gethostname(), **self._order}
        output = None
        if self._log is not None:
            self._log.mkdir(parents=True, exist_ok=True)
            output = (self._log / f"{child.name.replace('/', '-')}.log").open("ab")
        child.process = subprocess.Popen(
            [sys.executable, "-m", "crkafka_core.member.main"], stdin=subprocess.PIPE, stdout=output, stderr=output
        )
        if output is not None:
            output.close()
        assert child.process.stdin is not None
        child.process.stdin.write(json.dumps(order).encode())
        child.process.stdin.close()
        child.started = now


def open_host(region: Hosted, logs: Path | None) -> ProcessHost:
    """The host of a region whose configuration says `host: processes`."""
    return ProcessHost(region.config, region.plane, log=logs)
