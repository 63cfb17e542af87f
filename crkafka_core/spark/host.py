"""The Spark host: each member is a Spark job of one long-lived task, restarted on its own (SPEC K1, G5).

Spark restarts a task that died, on another executor if need be. Its failure limit ends one job, which is one member; the supervisor
submits that job again as long as the region wants the member. The region's own budgets stop a member that flaps (SPEC X6).

Threads: `host` watches SQL and starts the fences of a rewind (SPEC X4); one `member …` thread per job waits for Spark.
"""

from __future__ import annotations

import logging
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from crkafka_core import logs as logs_of
from crkafka_core.hosts.supervisor import Supervisor
from crkafka_core.lake.handle import Handle
from crkafka_core.model.errors import ConfigError, CrkafkaError
from crkafka_core.model.phase import Phase
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Region
from crkafka_core.region.host import running
from crkafka_core.region.keeper import Keeper
from crkafka_core.spark import java_log, launch, location, session, shipping, tables
from crkafka_core.spark.feeder import BySpark

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)
_EXECUTORS = 60.0
"""Seconds for executors of a cluster to come."""
_FAILED = 1
"""Exit code of a job that Spark gave up."""


class MemberJob:
    """One member as one Spark job of one task, submitted when made."""

    def __init__(self, spark: SparkSession, name: str, order: tuple[str, str, str, str]) -> None:
        """`order`: the arguments of `be_member`."""
        self._spark, self._order = spark, order
        self._tag = f"crkafka-{uuid.uuid4().hex[:12]}"
        self._code = _FAILED
        self._cancelled = False
        self._thread = threading.Thread(target=self._run, name=f"member {name}", daemon=True)
        self._thread.start()

    def poll(self) -> int | None:
        return None if self._thread.is_alive() else self._code

    def wait(self, timeout: float | None = None) -> int:
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise subprocess.TimeoutExpired(self._thread.name, timeout or 0.0)
        return self._code

    def terminate(self) -> None:
        """Nothing: a member ends when its region is idle by SQL."""

    def kill(self) -> None:
        """Cancel the job."""
        if launch.gone():
            return
        self._cancelled = True
        location.cancel_jobs(self._spark, self._tag)

    def _run(self) -> None:
        try:
            self._code = self._submit()
        except Exception as error:
            if not self._cancelled and not launch.gone():
                lines = str(error).splitlines()
                java = (
                    isinstance(error, Py4JJavaError) and len(lines) > 1
                )  # its own error is behind the call that met it
                reason = lines[1].removeprefix(": ") if java else lines[0]
                _log.warning("the %s failed as a job of Spark: %s", self._thread.name, reason)

    def _submit(self) -> int:
        """Until the member ends; its exit code."""
        order = self._order

        def member() -> int:
            from crkafka_core.spark.member_task import be_member

            return be_member(*order)

        location.tag_jobs(self._spark, self._tag)
        if location.is_connect(self._spark):

            def in_arrow(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
                import pyarrow as pa

                for batch in batches:
                    if batch.num_rows:
                        yield pa.RecordBatch.from_pydict({"code": [member()]}, pa.schema([("code", pa.int64())]))

            return int(self._spark.range(0, 1, 1, 1).mapInArrow(in_arrow, "code long").collect()[0]["code"])
        # Spark's first query of a session takes the JVM ten seconds of processor; a plain task takes three.
        context = self._spark.sparkContext
        context.setJobDescription(f"crkafka {self._thread.name}")
        return context.parallelize([0], 1).map(lambda _: member()).collect()[0]


class SparkHost(Supervisor[MemberJob]):
    """Members of one region as tasks of one session."""

    def __init__(
        self, spark: SparkSession, region: Handle, *, log_level: str = "INFO", log_format: str = "text"
    ) -> None:
        self._spark, self._region = spark, region
        self._fencing: threading.Thread | None = None
        config_json = region.config.to_json()
        super().__init__(
            region.config, region.plane, lambda name: MemberJob(spark, name, (config_json, name, log_level, log_format))
        )

    def begin(self) -> None:
        """Refuse a session that cannot host, such as one whose speculation would start a second member of one name (SPEC K1)."""
        if str(self._spark.conf.get("spark.speculation", "false")).lower() == "true":
            raise ConfigError(
                "Spark's speculation is on: it would run a member twice.",
                hint="Set spark.speculation to false for this session.",
            )
        check_slots(self._spark, self._region.plane.read(lambda _, row: row.members_wanted))
        shipping.ship(self._spark)
        super().begin()

    def given_up(self) -> str:
        """Why no member will be started any more, or ""."""
        return launch.over(self._spark) or super().given_up()

    def feeder(self, tell: Callable[[str], None], news: Callable[[str], None]) -> Keeper:
        """The keeper of tables, in the session of the members."""
        way = BySpark(self._region, lambda: self._spark, news=news, why_not=self._no_slot)
        return Keeper(self._region, way, tell=tell)

    def _no_slot(self) -> str:
        """Why no other job can run, or "": each member takes a slot as long as it runs."""
        wanted = self._region.plane.read(lambda _, row: row.members_wanted)
        if location.is_connect(self._spark) or task_slots(self._spark) > wanted:
            return ""
        return (
            f"{plural(wanted, 'member takes', 'members take')} every task slot of this Spark: "
            "tables are left to others; give it one core more"
        )

    def also(self, region: Region) -> None:
        """Cap Java's log, and fence tables during a rewind, on another thread: a slow table must not delay restarts."""
        launch.cap_log()
        if region.phase is not Phase.REWINDING or (self._fencing is not None and self._fencing.is_alive()):
            return

        def fence() -> None:
            try:
                tables.fence_all(self._spark, self._region)
            except CrkafkaError as error:
                _log.warning("fence: %s", error)

        self._fencing = threading.Thread(target=fence, name="fence", daemon=True)
        self._fencing.start()


def open_host(region: Handle, logs: Path | None) -> SparkHost:
    """The host of a region whose configuration names Spark; members write to Spark's logs, in local mode `spark.log`."""
    opened = session.open_session(region.config, log=java_log.path() if logs is None else logs / "spark.log")
    return SparkHost(opened, region, log_level=logs_of.level("INFO"), log_format=logs_of.form())


def check_slots(spark: SparkSession, wanted: int) -> None:
    """Refuse too few task slots: the members would wait for each other for ever (SPEC K1)."""
    own = location.is_connect(spark) or location.is_local(spark)
    end = time.monotonic() + (0.0 if own else _EXECUTORS)
    while (slots := task_slots(spark)) < wanted and time.monotonic() < end:
        time.sleep(0.5)
    if slots < wanted:
        raise ConfigError(
            f"{plural(wanted, 'member needs', 'members need')} {plural(wanted, 'task slot')}; this Spark has {slots}.",
            hint=f"Each member is one task that never ends: give Spark {plural(wanted, 'core')} or more, and one more for tables.",
        )


def task_slots(spark: SparkSession) -> int:
    """Number of tasks that run at once, as of now."""
    if location.is_connect(spark):
        return location.slots(spark)
    context = spark.sparkContext
    cpus = max(1, int(context.getConf().get("spark.task.cpus", "1")))
    if location.is_local(spark):
        return context.defaultParallelism // cpus
    java = context._jsc.sc()
    return int(java.schedulerBackend().maxNumConcurrentTasks(java.resourceProfileManager().defaultResourceProfile()))


@contextmanager
def hosted(region: Handle, spark: SparkSession | None = None) -> Iterator[SparkHost]:
    """Members run as Spark tasks until the block ends, then the region is stopped; without `spark`, in the session of `host.spark`."""
    from crkafka_core.region.region import Region  # the room of regions loads this one by an entry point

    facade = region if isinstance(region, Region) else Region(region.config, region.plane)
    mine = spark or session.open_session(region.config, log=java_log.path())
    host = SparkHost(mine, facade)
    facade.init()
    facade.start()
    with running(facade, host):
        try:
            yield host
        finally:
            facade.stop()
