"""A process with a warm Spark session, which keeps the tables fresh whose rows Spark makes, for a host without Spark (SPEC K6, A7). It
begins once such a table is declared, and ends with its host, by the pipe between them. A process of its own can be ended for sure, and does
not touch the Spark session of a program that hosts members."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
import threading
import time
import uuid
from functools import partial

from crkafka_core.holder import holder
from crkafka_core.lake.handle import Handle
from crkafka_core.model import limits
from crkafka_core.model.errors import CrkafkaError, LeaseHeld
from crkafka_core.model.limits import Backoff
from crkafka_core.model.rows import Lease
from crkafka_core.plane import leases
from crkafka_core.plane import tables as plane
from crkafka_core.region.keeper import Tell
from crkafka_core.region.lease import free

_log = logging.getLogger(__name__)
MODULE = "crkafka_core.spark.feeder"
"""Run by name: the Spark room is above this one."""
PATIENCE = 60.0
"""Seconds for its last writes when its host ends, its start included."""
_PAUSES = Backoff(1.0, 60.0)
"""Between two starts of the process."""


class FeederProcess:
    """Threads: one that starts the process and passes on its messages."""

    def __init__(self, region: Handle, *, tell: Tell = lambda _: None, news: Tell | None = None) -> None:
        """`tell` receives problems; `news`, or else `tell`, progress."""
        self._region, self._tell, self._news = region, tell, news or tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder process", daemon=True)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """The process writes the checkpoints merged by now, then ends; after `PATIENCE` it is killed."""
        self._over.set()
        with self._lock:
            process = self._process
            if process is not None and process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()
        self._thread.join(PATIENCE)
        if self._thread.is_alive() and process is not None:
            self._tell(f"the process that writes tables with Spark did not end within {PATIENCE:.0f} s: it is killed")
            process.kill()
            self._thread.join(10)

    @property
    def pid(self) -> int | None:
        """Number of the process while it runs."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def _run(self) -> None:
        left, failures = self._region.config.left_to_others, 0
        while not self._over.is_set():
            try:
                version, families = self._region.plane.read(
                    lambda reader, row: (row.version, plane.fed_by_spark(reader, row, left))
                )
                if not families:
                    self._region.plane.wait(version, 1.0)
                    continue
                lease = self._taken()
            except CrkafkaError as error:
                if not isinstance(error, LeaseHeld):
                    _log.warning("feeder process: %s", error)
                self._over.wait(2.0)
                continue
            began = time.monotonic()
            try:
                ended = f"ended with code {self._once(lease.token)}"
            except OSError as error:  # no memory, process or file is left for it; this thread goes on
                ended = f"could not be started: {error.strerror or error}"
            with contextlib.suppress(CrkafkaError):  # it may have been killed
                self._region.plane.do(partial(leases.release, lease=lease))
            if self._over.is_set():
                return
            failures = 1 if time.monotonic() - began > _PAUSES.longest else failures + 1
            self._tell(f"the process that writes tables with Spark {ended}; it is started again")
            self._over.wait(_PAUSES.after(failures))

    def _taken(self) -> Lease:
        """The lease that the process takes over once it has started: other processes see by it that one is coming."""
        free(self._region, plane.SPARK_FEEDER)
        left = plane.left_out(self._region.config.left_to_others)
        own = {"holder": holder(), "token": uuid.uuid4().hex, "data": left}
        length = self._region.plane.read(lambda _, row: limits.of(row).driver_lease)
        return self._region.plane.do(lambda tx: leases.take(tx, plane.SPARK_FEEDER, length=length, **own))

    def _once(self, token: str) -> int:
        """Run the process once, with this lease; its exit code."""
        with self._lock:
            if self._over.is_set():
                return 0
            process = self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            assert process.stdin is not None and process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(f"{self._region.config.to_json()}\n{token}\n")
                process.stdin.flush()
        for line in process.stdout:
            with contextlib.suppress(ValueError):
                text, good = json.loads(line)
                (self._news if good else self._tell)(str(text))
        process.stdout.close()
        return process.wait()
