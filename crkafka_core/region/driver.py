"""The driver without Dagster: opens due cuts, retires, and goes on after any failure (SPEC V1-V3)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from crkafka_core.config import redact
from crkafka_core.loop import Loop
from crkafka_core.model.errors import CrkafkaError, LeaseHeld, LeaseLost, Refused, ServiceUnavailable
from crkafka_core.model.limits import Backoff
from crkafka_core.model.phase import Phase
from crkafka_core.plane import cuts
from crkafka_core.plane.leases import DRIVER
from crkafka_core.region.lease import DriverLease, free, this_process
from crkafka_core.region.region import Region
from crkafka_core.region.waiting import TICK

_log = logging.getLogger(__name__)
RETIRE_EVERY = 60.0
PAUSES = Backoff(2.0, 60.0)
"""Between retries after an unknown error."""


class Driver(Loop):
    """Holds the driver's lease while it runs; a second driver is refused (SPEC A6)."""

    def __init__(self, region: Region, *, retire_every: float = RETIRE_EVERY) -> None:
        super().__init__("driver", region.runtime)
        self._region = region
        self._retire_every = retire_every
        self._retired_at = 0.0
        self._over = threading.Event()
        self._held = ExitStack()
        self._lease: DriverLease | None = None
        self._failures = 0
        self._refused = False
        """Another process has the lease."""

    def end(self) -> None:
        self._over.set()
        if self.is_alive():
            self.join()

    def turn(self, patience: float = TICK) -> bool:
        """Take the lease if it is not held; else do what is due, or wait for a change. Any failure releases the lease."""
        wait = 0.0
        try:
            if self._over.is_set():
                self._let_go()
            elif self._lease is None:
                if self._refused:
                    free(self._region, DRIVER)
                self._lease = self._held.enter_context(self._region.driver(data=this_process()))
                self._retired_at, self._refused = self._runtime.now(), False
            else:
                self._drive(self._lease, patience)
            self._failures = 0
        except Exception as error:  # any error: without its driver a host would run on without cuts
            self._failures += 1
            wait = self._failed(error)
            try:
                self._let_go()
            except Exception as another:
                self._failed(another)
        self._runtime.wait(self._over, wait)
        return not self._over.is_set() or self._lease is not None

    def _failed(self, error: Exception) -> float:
        """Log a failure; seconds to wait, growing for unknown errors, such as a missing right in the database."""
        if isinstance(error, CrkafkaError):
            before, self._refused = self._refused, isinstance(error, LeaseHeld)
            if not (before and self._refused):  # once while another driver goes on
                _log.warning("driver: no cuts by this process for now: %s", error)
            return 1.0 if isinstance(error, ServiceUnavailable) else 2.0
        wait = PAUSES.after(self._failures)
        reason = redact(" ".join(str(error).split()))
        _log.warning("driver: no cuts; it is tried again in %.0f s: %s: %s", wait, type(error).__name__, reason)
        return wait

    def _let_go(self) -> None:
        held, self._held, self._lease = self._held, ExitStack(), None
        held.close()

    def _drive(self, lease: DriverLease, patience: float) -> None:
        trigger, plane = self._region.config.trigger, self._region.plane
        why_due = partial(cuts.why_due, period=trigger.period, counted=trigger.operator_driven)
        row, cause = plane.read(lambda reader, region: (region, why_due(reader, region)))
        if cause:
            lease.check()
            try:
                self._region.cut(cause=cause, token=self._runtime.unique(), lease=lease.lease, if_new=True)
            except (ServiceUnavailable, LeaseLost):
                raise
            except Refused:
                self._runtime.wait(self._over, TICK)
        elif row.phase is Phase.RUNNING and self._runtime.now() - self._retired_at > self._retire_every:
            self._retired_at = self._runtime.now()
            self._retire()
        else:
            plane.wait(row.version, patience)

    def _retire(self) -> None:
        try:
            self._region.retire()
        except CrkafkaError as error:
            _log.warning("retiring: %s", error)


@contextmanager
def driving(region: Region, *, drive: bool) -> Iterator[None]:
    if not drive:
        yield
        return
    driver = Driver(region)
    driver.start()
    try:
        yield
    finally:
        driver.end()
