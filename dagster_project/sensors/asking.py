"""What sensors share: reading the region, run keys with an attempt, whether a run is on its way."""

from __future__ import annotations

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


def on_its_way(instance: dg.DagsterInstance, job: str, **tags: str) -> bool:
    """Whether a run of the job is queued or running."""
    return bool(
        instance.get_run_records(dg.RunsFilter(job_name=job, statuses=ON_THEIR_WAY, tags=tags or None), limit=1)
    )
