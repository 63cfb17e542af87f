"""Keeps the wanted number of members running, and restarts those that ended, with back-off (SPEC K1, G5). `launch` starts a member, as a
process, a job of Spark, or a simulated one. Life: `begin` → one loop starts the missing members → members end by themselves when the region
is idle → `end` asks the remaining ones to end, and kills them if they do not."""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from crkafka_core.config import RegionConfig
from crkafka_core.control import Reader
from crkafka_core.loop import THREADS, Repeated, Runtime
from crkafka_core.member.exit_codes import NO_RESTART, REFUSED, why_not_again
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.limits import Backoff
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Region
from crkafka_core.plane import events, roster
from crkafka_core.plane.transact import ControlPlane

_log = logging.getLogger(__name__)
STABLE_S = 30.0
"""Life after which a failed member is restarted at once; also the longest delay of the others."""
CLEAN_END_PAUSE_S = 0.5
"""Delay before a member that ended cleanly, and is wanted again, is restarted."""
AWAY_S = 5.0
"""Time without a live successor after which a superseded member is started again; before, the successor's host may restart it."""
PATIENCE_S = 15.0
"""Time for a clean end of all members."""
KILL_S = 10.0
"""Time for a killed member to end."""
_SIGNALS = {each.value: each.name for each in signal.Signals}
"""Without the real-time signals, which have no names."""


def restart_delay(failures: int, longest: float = STABLE_S) -> float:
    """Seconds before a restart after so many failures in a row: none after the first."""
    return Backoff(0.5, longest).after(failures - 1)


class Running(Protocol):
    """A started member."""

    def poll(self) -> int | None:
        """The exit code once it has ended, negative for a signal; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended; raises `subprocess.TimeoutExpired`."""

    def terminate(self) -> None:
        """Ask for a clean end."""

    def kill(self) -> None: ...


R = TypeVar("R", bound=Running)


class Hosted(Protocol):
    """Interface of a region for its host."""

    @property
    def config(self) -> RegionConfig: ...

    @property
    def plane(self) -> ControlPlane: ...


@dataclass
class _Child(Generic[R]):
    name: str
    running: R | None = None
    started: float = 0.0
    failures: int = 0
    next_start: float = 0.0
    done: bool = False
    """Not to be restarted: refused, or superseded by another process."""
    code: int = 0
    """Exit code of its last end."""

    @property
    def superseded(self) -> bool:
        return self.done and self.code != REFUSED


class Supervisor(Generic[R]):
    """One per host; `launch` starts a member by its name."""

    def __init__(
        self,
        config: RegionConfig,
        plane: ControlPlane,
        launch: Callable[[str], R],
        *,
        runtime: Runtime = THREADS,
        stable: float = STABLE_S,
    ) -> None:
        self._config, self._plane = config, plane
        self._launch, self._runtime, self._stable = launch, runtime, stable
        self._children: dict[str, _Child[R]] = {}
        self._names: list[str] = []
        self._over = threading.Event()
        self._loop = Repeated("host", self.turn, runtime)
        self._lock = threading.Lock()
        self._killed: list[tuple[str, int]] = []
        """Members and the signals that ended them, not yet in the event log."""

    def begin(self) -> None:
        self._runtime.start(self._loop)

    def running(self) -> dict[str, R]:
        """The members that run, by name."""
        with self._lock:
            started = {c.name: c.running for c in self._children.values() if c.running is not None}
        return {name: running for name, running in sorted(started.items()) if running.poll() is None}

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the region is idle and all members have ended; False after the timeout."""
        end = None if timeout is None else self._runtime.now() + timeout
        while end is None or self._runtime.now() < end:
            idle = self._plane.read(lambda _, region: region.phase is Phase.IDLE)
            if idle and not self.running():
                return True
            self._runtime.sleep(0.1)
        return False

    def given_up(self) -> str:
        """Why none of the wanted members will be restarted; empty if some will."""
        with self._lock:
            wanted = [self._children[name] for name in self._names if name in self._children]
            if not wanted or len(wanted) < len(self._names) or not all(child.done for child in wanted):
                return ""
            return "; ".join(f"{child.name} {why_not_again(child.code)}" for child in wanted)

    def end(self, patience: float = PATIENCE_S) -> None:
        """Stop starting members, ask all for a clean end, and kill those that do not end in time."""
        self.stop_starting()
        self._runtime.ended(self._loop, None)
        living = self.running()
        for running in living.values():
            running.terminate()
        limit = self._runtime.now() + patience
        for name, running in living.items():
            try:
                running.wait(max(0.0, limit - self._runtime.now()))
            except subprocess.TimeoutExpired:
                _log.warning("%s did not end in %.0f s: it is killed", name, patience)
                running.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    running.wait(KILL_S)

    def stop_starting(self) -> None:
        """Start no more members; running ones go on."""
        self._over.set()

    def also(self, region: Region) -> None:
        """Further work of a host at each turn; must be short."""

    def turn(self, patience: float = 0.2) -> bool:
        """Start the missing members, then wait for a change."""
        if self._over.is_set():
            return False
        try:
            region, live = self._plane.read(self._read)
            with self._lock:
                self._tend(0 if region.phase is Phase.IDLE else region.members_wanted, live)
            while self._killed:
                name, number = self._killed[0]
                text = f"the process of {name} was ended by {_SIGNALS.get(number, f'signal {number}')}; it is started again"
                self._plane.do(partial(events.log, kind="process died", text=text, member=name))
                del self._killed[0]
            self.also(region)
            self._plane.wait(region.version, patience)
        except CrkafkaError as error:
            _log.warning("host: %s", error)
            self._runtime.wait(self._over, 1.0)
        except Exception:  # without this thread no member would be restarted
            _log.exception("host")
            self._runtime.wait(self._over, 1.0)
        self._runtime.wait(self._over, 0.05)
        return True

    def _read(self, reader: Reader, region: Region) -> tuple[Region, frozenset[str]]:
        """The region; and its live members, if one of ours was superseded."""
        ask = any(child.superseded for child in self._children.values())
        return region, frozenset(member.name for member in roster.live(reader)) if ask else frozenset()

    def _tend(self, wanted: int, live: frozenset[str]) -> None:
        now = self._runtime.now()
        names = self._names = [self._config.member_name(i) for i in range(wanted)]
        for name in names:
            child = self._children.setdefault(name, _Child(name))
            if child.superseded:  # perhaps by a process of a host that ends soon
                if name in live:
                    child.next_start = now + AWAY_S
                child.done = now < child.next_start
            self._reap(child, now)
            if child.running is None and not child.done and now >= child.next_start:
                child.running, child.started = self._launch(name), now
        for name, child in self._children.items():
            if name not in names:
                self._reap(child, now)
                if child.running is None:
                    child.done = False  # wanted again, it is started again

    def _reap(self, child: _Child[R], now: float) -> None:
        code = None if child.running is None else child.running.poll()
        if code is None:
            return
        child.running = None
        child.code, child.done = code, code in NO_RESTART
        if child.done:
            return
        if code == 0:  # it was not wanted when it ended, and is restarted if it is wanted now
            child.failures, child.next_start = 0, now + CLEAN_END_PAUSE_S
            return
        child.failures = 1 if now - child.started > self._stable else child.failures + 1
        child.next_start = now + restart_delay(child.failures, self._stable)
        if code < 0:  # reported in the event log
            self._killed.append((child.name, -code))
        else:
            _log.warning("%s ended with code %s; it is started again", child.name, code)
