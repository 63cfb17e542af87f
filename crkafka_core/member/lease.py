"""The watchdog: renews the lease while the other threads make progress, and ends a process that hangs (SPEC G3, G4)."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

from crkafka_core.model.errors import Lost, NoSuchRegion, ServiceUnavailable, Superseded
from crkafka_core.model.limits import Limits
from crkafka_core.plane import members
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.protocol import signals as sg

_log = logging.getLogger(__name__)
HARD_EXIT = 5.0
"""Seconds that a lost, superseded or isolated process has to end by itself."""
HUNG_CODE = 13


class Watchdog(threading.Thread):
    """The lease is counted from before a renewal is sent. `alive` says for how long a thread has stood still."""

    def __init__(
        self, plane: ControlPlane, name: str, incarnation: str, limits: Limits, post: Callable[[sg.Event], None],
        *, standstill: Callable[[], float], metrics: Callable[[], dict[str, object]], since: float, superseded_code: int = HUNG_CODE,
    ) -> None:  # fmt: skip
        super().__init__(name="watchdog", daemon=True)
        self._plane = plane
        self._member = name
        self._incarnation = incarnation
        self._limits = limits
        self._post = post
        self._standstill = standstill
        self._metrics = metrics
        self._renewed = since
        self._held = True
        self._over = threading.Event()
        self._doomed_at: float | None = None
        self._code = HUNG_CODE
        self._superseded_code = superseded_code
        self.isolated = False
        """The control plane was out of reach for so long that nothing can be said to it (SPEC G4)."""

    def end(self) -> None:
        self._over.set()

    def doom(self, code: int | None = None) -> None:
        """The process is to end: if it has not within a few seconds, it is ended, with the code that it would have ended with."""
        if code is not None and self._code != self._superseded_code:
            self._code = code
        if self._doomed_at is None:
            self._doomed_at = time.monotonic()

    def run(self) -> None:
        renewer = threading.Thread(target=self._renew, name="renewer", daemon=True)
        renewer.start()
        while not self._over.wait(0.1):
            now = time.monotonic()
            since = now - self._renewed
            if self._held != (since < self._limits.session_timeout):
                self._held = not self._held
                self._post(sg.Lease(self._held))
            if since > self._limits.session_timeout + self._limits.isolation_timeout:
                self.isolated = True
                self._post(
                    sg.Broken(
                        "the control plane could not be reached for longer than the lease and the isolation timeout"
                    )
                )
                self.doom()
            if self._doomed_at is not None and now - self._doomed_at > HARD_EXIT:
                _log.critical("a thread hangs: the process is ended")
                os._exit(self._code)

    def _send(self, metrics: dict[str, object]) -> None:
        self._plane.do(lambda tx: members.renew(tx, self._member, self._incarnation, metrics))

    def _renew(self) -> None:
        wait = self._limits.renew_every
        while not self._over.wait(wait):
            sent = time.monotonic()
            try:
                if self._standstill() > self._limits.renew_every:
                    _log.error("a thread stands still: the lease is not renewed")
                    wait = 0.5
                    self._plane.read(
                        lambda reader, region: members.of(reader, self._member, self._incarnation, region.name)
                    )
                    continue
                self._send(self._metrics())
                self._renewed = sent
                wait = self._limits.renew_every
            except (Superseded, Lost, NoSuchRegion) as error:
                _log.warning("the lease is gone: %s", error)
                if isinstance(error, Superseded):
                    # Else the host would start it again, against the one that took over (SPEC G3).
                    self._code = self._superseded_code
                self._post(sg.Fenced())
                self.doom()
                return
            except ServiceUnavailable as error:
                _log.warning("renewing the lease: %s", error)
                wait = min(1.0, self._limits.renew_every)
            except Exception:  # this thread must outlive anything: without it the member is lost
                _log.exception("renewing the lease")
                wait = min(1.0, self._limits.renew_every)
