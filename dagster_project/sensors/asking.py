"""What sensors share: reading the region, run keys with an attempt, whether a run is on its way."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.rows import Region
from dagster_project.names import Names
from dagster_project.options import Options
from dagster_project.resources import RegionResource

T = TypeVar("T")

AGAIN = 60.0
"""Seconds after which what is still due is asked for again: a run key is remembered for ever, also of a failed run (FACTS D4)."""

BEGINS = 300.0
"""Seconds within which a run that was launched holds what it works with."""

ON_THEIR_WAY = [
    dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]  # fmt: skip


@dataclass(frozen=True)
class Made:
    """What a sensor is made for."""

    names: Names
    options: Options

    @property
    def status(self) -> dg.DefaultSensorStatus:
        return dg.DefaultSensorStatus.RUNNING if self.options.sensors == "running" else dg.DefaultSensorStatus.STOPPED

    @property
    def resources(self) -> set[str]:
        return {self.names.slug}

    def region(self, context: dg.SensorEvaluationContext) -> RegionResource:
        found = getattr(context.resources, self.names.slug)
        assert isinstance(found, RegionResource)
        return found


def asked(region: RegionResource, question: Callable[[Reader, Region], T]) -> T | dg.SkipReason:
    """The answer of the control plane, or why there is none: a region that is not made yet is no failure of a tick."""
    try:
        return region.read(question)
    except CrkafkaError as error:
        return dg.SkipReason(str(error))


def run_key(region: Region, what: str, attempt: int = 0, *, checkpoint: int | None = None) -> str:
    """region:what:epoch:checkpoint:attempt (SPEC A2); the uid tells regions of one name apart (SPEC G6)."""
    at = region.head if checkpoint is None else checkpoint
    return f"{region.name}:{region.uid[:8]}:{what}:{region.epoch}:{at}:{attempt}"


def attempt(now: float, since: float, every: float = AGAIN) -> int:
    """Counts on while something stays due, by database time."""
    return max(0, int((now - since) // every))


def on_its_way(instance: dg.DagsterInstance, job: str | None = None, **tags: str) -> bool:
    """Whether such a run is queued, or began so recently that SQL need not know of it yet.

    An older one is believed only if it holds its lease in SQL: a run whose process died with its machine, and with nobody to
    tell, stays *started* in Dagster for ever.
    """
    found = instance.get_run_records(dg.RunsFilter(job_name=job, statuses=ON_THEIR_WAY, tags=tags or None), limit=25)
    now = time.time()
    return any(
        r.dagster_run.status is dg.DagsterRunStatus.QUEUED
        or now - (r.start_time or r.create_timestamp.timestamp()) < BEGINS
        for r in found
    )
