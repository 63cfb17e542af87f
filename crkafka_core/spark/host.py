"""The Spark host: each member is a Spark job of one long-lived task, restarted on its own (SPEC K1, G5).

Spark restarts a task that died, at once and elsewhere if need be. Its failure limit ends one job, so one member and no other;
that job is submitted again here, after a pause, for as long as the region wants the member. What flaps is stopped by the
region's own budgets (SPEC X6). The limit itself stays as it is, so that a table's job that can only fail does so soon.

Life: `begin` checks the slots and starts one thread → the thread keeps one job per wanted member running, and makes the
fences that a rewind owes (SPEC X4) → members end by themselves when the region is idle → `end` waits for that.
Threads here: `host` watches SQL; one `member …` thread per job waits for Spark.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from crkafka_core.member.main import NO_RESTART
from crkafka_core.model.errors import ConfigError, CrkafkaError
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import MemberStatus
from crkafka_core.plane import members
from crkafka_core.spark import location, session, shipping, tables
from crkafka_core.spark.handle import Handle

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)
AGAIN = 0.5
"""Seconds after a clean end before a member that is wanted after all is started again."""
PATIENCE = 15.0
"""Seconds that members have for a clean end before their jobs are cancelled."""
_EXECUTORS = 60.0
"""Seconds for executors of a cluster to come."""


@dataclass
class _Job:
    name: str
    tag: str = ""
    thread: threading.Thread | None = None
    done: bool = False
    """It ended for good: superseded, or refused."""
    failures: int = 0
    next_start: float = 0.0
    codes: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def running(self) -> bool:
        return self.thread is not None and self.thread.is_alive()


class SparkHost:
    """Members of one region as tasks of one session; `members` is the number to make room for, by default the wanted one."""

    def __init__(
        self, spark: SparkSession, region: Handle, *, members: int | None = None, log_level: str = "INFO"
    ) -> None:
        self._spark, self._region, self._members, self._log_level = spark, region, members, log_level
        self._config_json = region.config.to_json()
        self._jobs: dict[str, _Job] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="host", daemon=True)
        self._fencing: threading.Thread | None = None

    def begin(self) -> None:
        """Refuse at once what cannot work; then host in the background."""
        wanted = self._members or self._region.plane.read(lambda _, row: row.members_wanted)
        check_session(self._spark)
        check_slots(self._spark, wanted)
        shipping.ship(self._spark)
        self._thread.start()

    def join(self, timeout: float | None = None) -> bool:
        """Until the region is idle and all members have ended; whether that came to pass."""
        end = None if timeout is None else time.monotonic() + timeout
        while end is None or time.monotonic() < end:
            if self._region.plane.read(lambda _, row: row.phase is Phase.IDLE) and not self.running():
                return True
            time.sleep(0.1)
        return False

    def end(self, patience: float = PATIENCE) -> None:
        """Start no more members and wait for those there are; jobs that do not end are cancelled."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        limit = time.monotonic() + patience
        for job in list(self._jobs.values()):
            if job.thread is not None:
                job.thread.join(max(0.0, limit - time.monotonic()))
        for job in list(self._jobs.values()):
            if job.running:
                _log.warning("%s did not end in %.0f s: its job is cancelled", job.name, patience)
                self._cancel(job.tag)
                if job.thread is not None:
                    job.thread.join(10)

    def running(self) -> list[str]:
        """Names of members whose job runs."""
        with self._lock:
            return sorted(job.name for job in self._jobs.values() if job.running)

    def pids(self) -> dict[str, int]:
        """Process ids of the members that are registered from this machine, by name."""
        here = socket.gethostname()
        rows = self._region.plane.read(lambda reader, row: members.all_of(reader, row.name))
        said = {m.name: m.host.split(" pid ") for m in rows if m.status is MemberStatus.LIVE}
        return {name: int(parts[1]) for name, parts in said.items() if len(parts) == 2 and parts[0] == here}

    def errors(self) -> dict[str, list[str]]:
        """Jobs that failed as a whole, and why; a task that Spark restarted is no failed job."""
        with self._lock:
            return {job.name: list(job.errors) for job in self._jobs.values() if job.errors}

    # -- on the thread `host`

    def _watch(self) -> None:
        while not self._over.is_set():
            try:
                row = self._region.plane.read(lambda _, row: row)
                self._tend(0 if row.phase is Phase.IDLE else row.members_wanted)
                if row.phase is Phase.REWINDING:
                    self._fence()
                self._region.plane.wait(row.version, 0.5)
            except CrkafkaError as error:
                _log.warning("host: %s", error)
                self._over.wait(1.0)
            except Exception:  # a thread that died in silence would never restart a member again
                _log.exception("host")
                self._over.wait(1.0)
            self._over.wait(0.05)

    def _tend(self, wanted: int) -> None:
        now = time.monotonic()
        names = [self._region.config.member_name(i) for i in range(wanted)]
        with self._lock:
            for name in names:
                job = self._jobs.setdefault(name, _Job(name))
                if not job.running and not job.done and now >= job.next_start:
                    self._start(job)
            for name, job in self._jobs.items():
                if name not in names and not job.running:
                    job.done = False  # wanted again, it is started again

    def _fence(self) -> None:
        """In a thread of its own: a slow table must not keep members from being restarted."""
        if self._fencing is not None and self._fencing.is_alive():
            return

        def run() -> None:
            try:
                tables.fence_all(self._spark, self._region)
            except CrkafkaError as error:
                _log.warning("fence: %s", error)

        self._fencing = threading.Thread(target=run, name="fence", daemon=True)
        self._fencing.start()

    def _start(self, job: _Job) -> None:
        job.tag = f"crkafka-{uuid.uuid4().hex[:12]}"
        job.thread = threading.Thread(target=self._run, args=(job,), name=f"member {job.name}", daemon=True)
        job.thread.start()

    # -- on a thread `member …`

    def _run(self, job: _Job) -> None:
        started = time.monotonic()
        try:
            code = self._submit(job)
        except Exception as error:
            with self._lock:
                job.errors.append(f"{type(error).__name__}: {error}"[:2000])
                job.failures = 1 if time.monotonic() - started > 30 else job.failures + 1
                job.next_start = time.monotonic() + min(0.5 * 2**job.failures, 30.0)
            if not self._over.is_set():
                _log.warning("the job of %s failed; it is submitted again: %s", job.name, str(error).splitlines()[0])
            return
        with self._lock:
            job.codes.append(code)
            job.done = code in NO_RESTART
            job.next_start = (
                time.monotonic() + AGAIN
            )  # a clean end: not wanted at that moment, started again if it still is
        _log.info("%s ended with code %s", job.name, code)

    def _submit(self, job: _Job) -> int:
        """One Spark job of one task, until the member ends."""
        config_json, name, log_level = self._config_json, job.name, self._log_level

        def member(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            import pyarrow as pa

            from crkafka_core.spark.member_task import be_member

            for batch in batches:
                if batch.num_rows:
                    yield pa.RecordBatch.from_pydict(
                        {"code": [be_member(config_json, name, log_level)]}, pa.schema([("code", pa.int64())])
                    )

        if location.is_connect(self._spark):
            self._spark.addTag(job.tag)
        else:
            self._spark.sparkContext.addJobTag(job.tag)
            self._spark.sparkContext.setJobDescription(f"crkafka member {name}")
        rows = self._spark.range(0, 1, 1, 1).mapInArrow(member, "code long").collect()
        return int(rows[0]["code"])

    def _cancel(self, tag: str) -> None:
        """A classic session knows only the tags of the thread that asks, so there the context's tags are used."""
        if location.is_connect(self._spark):
            self._spark.interruptTag(tag)
        else:
            self._spark.sparkContext.cancelJobsWithTag(tag)


def open_host(region: Handle, logs: Path | None) -> SparkHost:
    """The host of a region whose configuration names Spark; members log to Spark's own logs."""
    return SparkHost(session.open_session(region.config), region)


def check_session(spark: SparkSession) -> None:
    """Speculation would start a second member of the same name beside a slow one (SPEC K1)."""
    if str(spark.conf.get("spark.speculation", "false")).lower() == "true":
        raise ConfigError(
            "Spark's speculation is on: it would run a member twice.",
            hint="Set spark.speculation to false for this session.",
        )


def check_slots(spark: SparkSession, wanted: int, *, patience: float = _EXECUTORS) -> None:
    """Too few task slots: members would wait for each other for ever, and the group never settle (SPEC K1)."""
    if location.is_connect(spark):
        there = location.slots(spark)
    else:
        there = task_slots(spark)
        end = time.monotonic() + (0.0 if location.is_local(spark) else patience)
        while there < wanted and time.monotonic() < end:
            time.sleep(0.5)
            there = task_slots(spark)
    if there < wanted:
        raise ConfigError(
            f"{wanted} members need {wanted} task slots; this Spark has {there}.",
            hint=f"Each member is one task that never ends: give Spark {wanted} cores or more, and one more for tables.",
        )


def task_slots(spark: SparkSession) -> int:
    """Tasks that run at once in a classic session, as of now."""
    context = spark.sparkContext
    cpus = max(1, int(context.getConf().get("spark.task.cpus", "1")))
    if location.is_local(spark):
        return context.defaultParallelism // cpus
    java = context._jsc.sc()
    return int(java.schedulerBackend().maxNumConcurrentTasks(java.resourceProfileManager().defaultResourceProfile()))


@contextmanager
def hosted(region: Handle, spark: SparkSession | None = None, *, members: int | None = None) -> Iterator[SparkHost]:
    """Members run as Spark tasks until the block ends, then the region is stopped; without `spark`, in the session of `host.spark`."""
    from crkafka_core.region.region import Region  # the facade knows this room by name only

    facade = region if isinstance(region, Region) else Region(region.config, region.plane)
    mine = spark or session.open_session(region.config)
    host = SparkHost(mine, facade, members=members)
    facade.init()
    facade.start()
    host.begin()
    try:
        yield host
    finally:
        try:
            facade.stop()
        finally:
            host.end()
