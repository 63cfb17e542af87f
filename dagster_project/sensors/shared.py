"""What sensors share: reading the region, run keys with an attempt, whether a run is on its way."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.rows import Region
from dagster_project import opened
from dagster_project.names import Names
from dagster_project.options import Options
from dagster_project.resources import RegionResource

T = TypeVar("T")

UnresolvedJob = Any
"""Of `dg.define_asset_job`; its type has no public name."""

ASK_AGAIN_S = 60.0
"""Seconds after which what is still due is asked for again: a run key is kept for ever, also of a failed run (docs/clients.md C-D4)."""

BEGIN_WINDOW_S = 300.0
"""Seconds within which a run that was launched holds what it works with."""

NOT_BEGUN = [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING]
"""Launched, and waiting for a worker: what Dagster's run monitoring marks as failed after its `start_timeout_seconds`."""

UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    *NOT_BEGUN,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


_lock = threading.Lock()
_lingering = 0
"""Ticks of this process that wait at this moment."""


@dataclass(frozen=True)
class SensorSetup:
    """What a sensor is made for."""

    names: Names
    options: Options
    region: RegionResource
    """Held, and not asked of Dagster: a sensor that requires resources opens the instance at each tick, which costs ten times the rest."""

    def every(self, seconds: int) -> int:
        """The least interval of a sensor."""
        return max(seconds, self.options.pace)

    @property
    def status(self) -> dg.DefaultSensorStatus:
        return dg.DefaultSensorStatus.RUNNING if self.options.sensors == "running" else dg.DefaultSensorStatus.STOPPED


def read_or_skip(region: RegionResource, question: Callable[[Reader, Region], T]) -> T | dg.SkipReason:
    """The answer of the control plane, or why there is none: a region that is not made yet is not a failure of a tick."""
    try:
        return region.read(question)
    except CrkafkaError as error:
        return dg.SkipReason(str(error))


def run_key(region: Region, what: str, attempt: int = 0, *, checkpoint: int | None = None) -> str:
    """region:what:epoch:checkpoint:attempt (SPEC A2); the uid tells regions of one name apart (SPEC G6)."""
    at = region.head if checkpoint is None else checkpoint
    return f"{region.name}:{region.uid[:8]}:{what}:{region.epoch}:{at}:{attempt}"


def attempt(now: float, since: float) -> int:
    """Counts on while something stays due, by database time."""
    return max(0, int((now - since) // ASK_AGAIN_S))


def on_its_way(
    instance: dg.DagsterInstance, tags: Mapping[str, str], job: str | None = None, *, begun: bool = True
) -> bool:
    """Whether such a run is queued, or began so recently that SQL need not know of it yet; without `begun`, only one that has not begun.

    One that waits for its worker is on its way for as long as it does: run monitoring ends it where there will be none. Where the
    instance has no monitoring, nobody does, so that it counts from its latest change (it may have waited in the queue for long).
    An older one that has begun is believed only if it holds its lease in SQL: a run whose process died with its machine, and with nobody to
    tell, stays *started* in Dagster for ever.
    """
    statuses = UNFINISHED if begun else [s for s in UNFINISHED if s is not dg.DagsterRunStatus.STARTED]
    records = instance.get_run_records(dg.RunsFilter(job_name=job, statuses=statuses, tags=tags), limit=25)
    now, waits = time.time(), [dg.DagsterRunStatus.QUEUED]
    if instance.run_monitoring_enabled and instance.run_monitoring_start_timeout_seconds > 0:
        waits += NOT_BEGUN
    return any(
        r.dagster_run.status in waits or now - (r.start_time or r.update_timestamp.timestamp()) < BEGIN_WINDOW_S
        for r in records
    )


def threads_of(context: dg.SensorEvaluationContext) -> int:
    """Threads in which the instance evaluates sensors; 0 where all share one. Asked once per process."""

    def ask() -> int:
        settings = context.instance.get_sensor_settings()
        return int(settings.get("num_workers") or (os.cpu_count() or 1) + 4) if settings.get("use_threads") else 0

    return opened.once("sensor threads", str(context.instance_ref), ask)


@contextmanager
def lingering(threads: int, seconds: float) -> Iterator[float]:
    """For how long a tick may wait, while the block runs; other sensors must not wait for it.

    Not at all where all sensors of the instance share one thread. Of its threads, the regions of a code location together take no more
    than a quarter: who finds that taken does not wait, and is evaluated again with the daemon's next loop.
    """
    global _lingering
    with _lock:
        may = _lingering < (max(1, threads // 4) if threads else 0)
        _lingering += may
    try:
        yield seconds if may else 0.0
    finally:
        with _lock:
            _lingering -= may
