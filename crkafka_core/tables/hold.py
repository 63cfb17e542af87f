"""Keeps a lease alive from a thread of its own while something long runs, and tells when it was lost (SPEC T1, K6)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType

from crkafka_core.model.errors import LeaseLost, Refused, ServiceUnavailable

_log = logging.getLogger(__name__)


class Hold:
    """`renew` and `release` run on the thread of this hold and on the caller's; one at a time."""

    def __init__(self, renew: Callable[[], object], release: Callable[[], object], every: float, what: str) -> None:
        self._renew, self._release, self._every, self._what = renew, release, every, what
        self._over = threading.Event()
        self._linger: float | None = None
        self.lost: Refused | None = None
        """Set once the lease is known to be somebody else's."""
        self._thread = threading.Thread(target=self._run, name=f"hold {what}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(self._every):
            if self._linger is not None and time.monotonic() > self._linger:
                break
            try:
                self._renew()
            except Refused as refused:
                self.lost = refused
                _log.warning("%s: %s", self._what, refused)
                return
            except ServiceUnavailable as away:
                _log.warning("%s: not renewed: %s", self._what, away)
        self._let_go()

    def _let_go(self) -> None:
        try:
            self._release()
        except (Refused, ServiceUnavailable) as error:
            _log.info("%s: not released, it ends by itself: %s", self._what, error)

    def check(self) -> None:
        """Raise what lost the lease, if something did."""
        if self.lost is not None:
            raise LeaseLost(str(self.lost))

    def end_after(self, seconds: float) -> None:
        """Let go by itself after so long."""
        self._linger = time.monotonic() + seconds

    def end(self) -> None:
        """Let go now."""
        self._over.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=10)

    def __enter__(self) -> Hold:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
