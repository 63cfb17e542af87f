"""Keeps a lease alive beside something long, and tells when it was lost (SPEC T1, K6)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from crkafka_core.lake.handle import Handle
from crkafka_core.loop import Loop, Runtime
from crkafka_core.model.errors import LeaseLost, Refused, ServiceUnavailable
from crkafka_core.model.rows import Lease
from crkafka_core.plane import leases

_log = logging.getLogger(__name__)
_PATIENCE = 10.0
"""Seconds for which the end waits until the lease is released."""


class Hold(Loop):
    """`renew` and `release` run on the thread of this hold and on the caller's; one at a time."""

    def __init__(
        self, renew: Callable[[], object], release: Callable[[], object], every: float, what: str, runtime: Runtime
    ) -> None:
        super().__init__(f"hold {what}", runtime)
        self._renew, self._release, self._every, self._what = renew, release, every, what
        self._over = threading.Event()
        self._linger: float | None = None
        self.lost: Refused | None = None
        """Set once the lease is known to be somebody else's."""
        runtime.start(self)

    def turn(self, patience: float = 0.0) -> bool:
        over = self._runtime.wait(self._over, self._every)
        if over or (self._linger is not None and self._runtime.now() > self._linger):
            self._let_go()
            return False
        try:
            self._renew()
        except Refused as refused:
            self.lost = refused
            _log.warning("%s: %s", self._what, refused)
            return False
        except ServiceUnavailable as away:
            _log.warning("%s: not renewed: %s", self._what, away)
        return True

    def _let_go(self) -> None:
        try:
            self._release()
        except (Refused, ServiceUnavailable) as error:
            _log.info("%s: not released, it ends by itself: %s", self._what, error)

    def check(self) -> None:
        """Raise what lost the lease, if something did."""
        if self.lost is not None:
            raise LeaseLost(str(self.lost))

    def confirm(self) -> None:
        """Raise if it is somebody else's by now: SQL is asked, since who was asleep for long does not know."""
        self._renew()

    def end_after(self, seconds: float) -> None:
        """Let go by itself after so long."""
        self._linger = self._runtime.now() + seconds

    def end(self) -> None:
        """Let go now."""
        self._over.set()
        if threading.current_thread() is not self:
            self._runtime.ended(self, _PATIENCE)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def keeping(region: Handle, lease: Lease, what: str) -> Hold:
    """Renew a lease for as long as it is held, and release it at the end."""
    return Hold(
        lambda: region.plane.do(lambda tx: leases.renew(tx, lease, lease.length)),
        lambda: region.plane.do(lambda tx: leases.release(tx, lease)),
        lease.length / 3,
        what,
        region.runtime,
    )
