"""What sensors share: cursors, reading the region, run keys with an attempt, whether a run is on its way."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.rows import Region
from dagster_project.known import Known
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

UNFINISHED = [dg.DagsterRunStatus.QUEUED, *NOT_BEGUN, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


@dataclass(frozen=True)
class Cursor:
    """A sensor's cursor, as JSON; every field has a default, *nothing is known*: it only saves work, and none is as good (SPEC A2)."""

    @classmethod
    def parse(cls, text: str | None) -> Self:
        """What `str` wrote; an empty one for anything else."""
        try:
            return cls(**json.loads(text or "{}"))
        except (ValueError, TypeError):
            return cls()

    def __str__(self) -> str:
        return json.dumps(dataclasses.asdict(self))


@dataclass(frozen=True)
class SensorSetup:
    """What a sensor is made for."""

    names: Names
    options: Options
    region: RegionResource
    """Held, and not asked of Dagster: a sensor that requires resources opens the instance at each tick, which costs ten times the rest."""
    known: Known

    @property
    def tables(self) -> list[str]:
        """Tables with a definition."""
        return [table.name for table in self.known.tables]

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


def duration(seconds: float) -> str:
    """In the unit in which a person would say it."""
    size, unit = (3_600, "h") if seconds >= 7_200 else (60, "min") if seconds >= 120 else (1, "s")
    return f"{seconds / size:.0f} {unit}"


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
