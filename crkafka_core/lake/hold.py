"""The keeper of a lease: renews it beside long work, and notices its loss (SPEC A6, T1, K6)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from crkafka_core.lake.handle import Handle
from crkafka_core.loop import Loop, Runtime
from crkafka_core.model.errors import CrkafkaError, LeaseLost, Refused
from crkafka_core.model.rows import Lease
from crkafka_core.plane import leases

_log = logging.getLogger(__name__)
_PATIENCE = 10.0
"""Seconds for which the end waits until the lease is released."""


class Hold(Loop):
    """A thread that renews a lease; its `release` runs on the same thread.

    An answer that the lease is another's ends it. While SQL is away it goes on: the lease may still be this one's.
    """

    def __init__(
        self,
        renew: Callable[[], object],
        release: Callable[[], object] | None,
        every: float,
        what: str,
        runtime: Runtime,
    ) -> None:
        """`release`: None if the caller does it, or nothing is to be released."""
        super().__init__(f"hold {what}", runtime)
        self._renew, self._release, self._every, self._what = renew, release, every, what
        self._over = threading.Event()
        self._linger: float | None = None
        self.lost: Refused | None = None
        """Why the lease is known to be another process's."""
        runtime.start(self)

    def turn(self, patience: float = 0.0) -> bool:
        over = self._runtime.wait(self._over, self._every)
        if over or (self._linger is not None and self._runtime.now() > self._linger):
            try:
                if self._release is not None:
                    self._release()
            except CrkafkaError as error:
                _log.info("%s: not released, it ends by itself: %s", self._what, error)
            return False
        try:
            self._renew()
        except Refused as refused:
            self.lost = refused
            _log.warning("%s: %s", self._what, refused)
            return False
        except CrkafkaError as error:
            _log.warning("%s: not renewed: %s", self._what, error)
        return True

    def check(self) -> None:
        """Raise what lost the lease, if something did."""
        if self.lost is not None:
            raise LeaseLost(str(self.lost))

    def end_after(self, seconds: float) -> None:
        self._linger = self._runtime.now() + seconds

    def stop(self) -> None:
        """Renew no more and release nothing; does not wait."""
        self._release = None
        self._over.set()

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
    return Hold(
        lambda: region.plane.do(lambda tx: leases.renew(tx, lease, lease.length)),
        lambda: region.plane.do(lambda tx: leases.release(tx, lease)),
        lease.length / 3,
        what,
        region.runtime,
    )
