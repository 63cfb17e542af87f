"""The watchdog: renews the lease while the other threads make progress, and ends a process that hangs (SPEC G3, G4)."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from crkafka_core.control import Tx
from crkafka_core.loop import THREADS, Loop, Repeated, Runtime
from crkafka_core.model import limits as stored
from crkafka_core.model.errors import Lost, NoSuchRegion, ServiceUnavailable, Superseded
from crkafka_core.model.limits import Limits
from crkafka_core.plane import members
from crkafka_core.plane.member_plane import MemberPlane
from crkafka_core.protocol import signals as sg

_log = logging.getLogger(__name__)
HARD_EXIT = 5.0
"""Seconds that a lost, superseded or isolated process has to end by itself."""
HUNG_CODE = 13


class Watchdog(Loop):
    """Posts the end of the lease, and ends a process that does not end by itself. The lease counts from before a renewal is sent. `renewer`
    is a loop of its own: a renewal that hangs delays no other duty."""

    def __init__(
        self,
        plane: MemberPlane,
        limits: Limits,
        post: Callable[[sg.Event], None],
        *,
        standstill: Callable[[], float],
        metrics: Callable[[], dict[str, object]],
        since: float,
        superseded_code: int = HUNG_CODE,
        runtime: Runtime = THREADS,
        end_process: Callable[[int], None] = lambda code: os._exit(code),
    ) -> None:
        """`standstill`: seconds without progress of the slowest thread."""
        super().__init__("watchdog", runtime)
        self._plane, self._limits, self._post = plane, limits, post
        self._standstill, self._metrics, self._end_process = standstill, metrics, end_process
        self._held = True
        self._over = threading.Event()
        self._doomed_at: float | None = None
        self._code, self._superseded_code = HUNG_CODE, superseded_code
        self._renewed = since
        """When the last renewal that was answered was sent."""
        self._pause = limits.renew_every
        self.renewer = Repeated("renewer", self._renew, runtime)
        self.isolated = False
        """The control plane was out of reach past the isolation timeout: the end is not reported (SPEC G4)."""

    def end(self) -> None:
        self._over.set()

    def doom(self, code: int | None = None) -> None:
        """The process is to end: if it has not within a few seconds, it is ended, with the code that it would have ended with."""
        if code is not None and self._code != self._superseded_code:
            self._code = code
        if self._doomed_at is None:
            self._doomed_at = self._runtime.now()

    def turn(self, patience: float = 0.1) -> bool:
        """Compare the lease and the doom with the clock."""
        if self._over.wait(patience):
            return False
        now = self._runtime.now()
        since = now - self._renewed
        if self._held != (since < self._limits.session_timeout):
            self._held = not self._held
            self._post(sg.Lease(self._held))
        if since > self._limits.session_timeout + self._limits.isolation_timeout:
            self.isolated = True
            self._post(
                sg.Broken("the control plane could not be reached for longer than the lease and the isolation timeout")
            )
            self.doom()
        if self._doomed_at is not None and now - self._doomed_at > HARD_EXIT:
            _log.critical("a thread hangs: the process is ended")
            self._end_process(self._code)
        return True

    def _renew(self) -> bool:
        """On the renewer's thread: wait, then one renewal, if the other threads make progress."""
        if self._runtime.wait(self._over, self._pause):
            return False
        self._pause = self._limits.renew_every
        sent = self._runtime.now()
        try:
            if self._standstill() > self._limits.renew_every:
                _log.error("a thread stands still: the lease is not renewed")
                self._pause = 0.5
                self._plane.check_registered()
                return True
            metrics = self._metrics()

            def renew(tx: Tx) -> float:
                members.renew(tx, self._plane.name, self._plane.incarnation, metrics)
                return stored.of(tx.region()).renew_every

            # As often as members expect that began after the limits were changed.
            self._pause = min(self._pause, self._plane.do(renew))
            self._renewed = sent
        except (Superseded, Lost, NoSuchRegion) as error:
            _log.warning("the lease is gone: %s", error)
            if isinstance(error, Superseded):
                # Else the host would start it again, against the one that took over (SPEC G3).
                self._code = self._superseded_code
            self._post(sg.Fenced())
            self.doom()
            return False
        except ServiceUnavailable as error:
            _log.warning("renewing the lease: %s", error)
            self._pause = min(1.0, self._limits.renew_every)
        except Exception:  # this thread must outlive anything: without it the member is lost
            _log.exception("renewing the lease")
            self._pause = min(1.0, self._limits.renew_every)
        return True
