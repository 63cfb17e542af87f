"""The driver without Dagster: opens the cuts that are due, retires, and goes on after whatever failed (SPEC §12)."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable

from crkafka_core.model.errors import CrkafkaError, LeaseLost, Refused, ServiceUnavailable
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Lease
from crkafka_core.plane import triggers
from crkafka_core.region.lease import DriverLease
from crkafka_core.region.region import Region
from crkafka_core.region.waiting import TICK

_log = logging.getLogger(__name__)
RETIRE_EVERY = 60.0


class Driver(threading.Thread):
    """Holds the driver's lease while it runs; a second driver is refused (SPEC A6)."""

    def __init__(
        self, region: Region, *, progress: Callable[[str], None] = lambda _: None, retire_every: float = RETIRE_EVERY
    ) -> None:
        super().__init__(name="driver", daemon=True)
        self._region = region
        self._progress = progress
        self._retire_every = retire_every
        self._over = threading.Event()

    def end(self) -> None:
        self._over.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        while not self._over.is_set():
            try:
                with self._region.driver() as lease:
                    self._drive(lease)
            except ServiceUnavailable as error:
                _log.warning("driver: %s", error)
                self._over.wait(1.0)
            except CrkafkaError as error:
                _log.warning("driver: %s", error)
                self._over.wait(2.0)

    def _drive(self, lease: DriverLease) -> None:
        trigger, plane = self._region.config.trigger, self._region.plane
        retired_at = time.monotonic()
        while not self._over.is_set():
            row, cause = plane.read(
                lambda reader, region: (
                    region,
                    triggers.cause(reader, region, period=trigger.period, counted=trigger.tuples is not None),
                )
            )
            if cause:
                lease.check()
                self._cut(cause, lease.lease)
            elif row.phase is Phase.RUNNING and time.monotonic() - retired_at > self._retire_every:
                retired_at = time.monotonic()
                self._retire()
            else:
                plane.wait(row.version, TICK)

    def _cut(self, cause: str, lease: Lease | None) -> None:
        try:
            self._region.cut(cause=cause, token=uuid.uuid4().hex, lease=lease, progress=self._progress)
        except (ServiceUnavailable, LeaseLost):
            raise
        except Refused as refused:
            self._progress(str(refused))
            self._over.wait(TICK)

    def _retire(self) -> None:
        try:
            self._region.retire()
        except CrkafkaError as error:
            _log.warning("retiring: %s", error)
