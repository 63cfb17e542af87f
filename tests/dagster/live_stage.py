"""A region on a real Kafka beneath a real Dagster (webserver, daemon and code server as processes), and runs that can be held in a step."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.model.rows import Checkpoint
from crkafka_core.plane.checkpoints import LIVE
from dagster_project.names import Names, key_of
from dagster_project.testing.live import SETTINGS
from tests.dagster.separate import SeparateDagster
from tests.rigs.pytest_scenarios import SESSION_FOR_RESTARTS
from tests.rigs.scenario import Scenario

DEFINITIONS = '''
"""One region; a file named as a step's function holds each process that comes there."""

import os
import time
from pathlib import Path

from crkafka_core.config import RegionConfig
from crkafka_core.region import Region
from dagster_project import consistent_region

FOLDER = Path({folder!r})


def holding(name):
    work = getattr(Region, name)

    def hold(when):
        point = FOLDER / name
        while point.exists() and point.read_text() == when:
            (FOLDER / (name + "!")).write_text(str(os.getpid()))
            time.sleep(0.02)

    def held(self, *args, **kwargs):
        hold("before")
        result = work(self, *args, **kwargs)
        hold("after")
        return result

    setattr(Region, name, held)


for name in ("open_cut", "await_drained", "await_merged", "reset", "await_running"):
    holding(name)
defs = consistent_region(RegionConfig.from_json({config!r}), **{options!r})
'''


@dataclass
class Live:
    scenario: Scenario
    dagster: SeparateDagster
    folder: Path

    @property
    def names(self) -> Names:
        return Names(self.scenario.config.region)

    def launch(self, job: str, **ops: dict[str, Any]) -> str:
        """Launch a job of the region; its run's id."""
        return self.dagster.launch(self.names.of(job), {"ops": {op: {"config": keys} for op, keys in ops.items()}})

    def succeed(self, job: str, patience: float = 120.0, **ops: dict[str, Any]) -> str:
        run = self.launch(job, **ops)
        status = self.dagster.finished(run, patience)
        assert status == "SUCCESS", (status, self.dagster.failures(run), self.scenario.account())
        return run

    def partitions(self) -> list[str]:
        return self.dagster.partitions(*self.names.records.path)

    def filled(self) -> list[str]:
        """Keys of the live checkpoints with rows: what the partitions should be (SPEC A3, C6)."""
        return [key_of(c.id) for c in self.checkpoints() if c.status in LIVE and c.rows]

    def await_published(self, patience: float = 120.0) -> None:
        """Until exactly the live checkpoints with rows are partitions, in order."""
        self.dagster.until(lambda: self.partitions() == self.filled(), patience, "what is live is published")

    def checkpoints(self) -> list[Checkpoint]:
        return self.scenario.region.plane.read(lambda reader, row: reader.select(Checkpoint, order=("id",)))

    # Runs that are held in a step

    def hold(self, step: str, when: str = "after") -> None:
        (self.folder / f"{step}!").unlink(missing_ok=True)
        (self.folder / step).write_text(when)

    def held(self, step: str) -> int:
        """Process id of the run that is held there, once one is."""
        mark = self.folder / f"{step}!"
        return int(self.dagster.until(lambda: mark.exists() and mark.read_text(), 60, f"a run is held in {step}"))

    def release(self, step: str) -> None:
        (self.folder / step).unlink(missing_ok=True)

    def kill_in(self, step: str, run: str) -> None:
        """`kill -9` of the process of the run that is held in a step; Dagster notices by itself."""
        os.kill(self.held(step), signal.SIGKILL)
        self.release(step)
        assert self.dagster.finished(run, 60) == "FAILURE"


@contextmanager
def live(
    kafka: KafkaCluster, folder: Path, options: dict[str, Any] | None = None, *, instance: str = "", **keys: Any
) -> Iterator[Live]:
    """Everything up; everything down afterwards. `instance` are more lines of the instance's settings."""
    points = folder / "points"
    points.mkdir()
    settings = folder / "settings.yaml"
    settings.write_text(
        SETTINGS.read_text().replace("poll_interval_seconds: 10", "poll_interval_seconds: 1") + instance
    )
    with Scenario(kafka, folder, **{"session": SESSION_FOR_RESTARTS, **keys}) as scenario:
        module = DEFINITIONS.format(folder=str(points), config=scenario.config.to_json(), options=options or {})
        (folder / "live_definitions.py").write_text(module)
        with SeparateDagster(folder, "live_definitions", settings=settings) as dagster:
            try:
                yield Live(scenario, dagster, points)
            except BaseException:
                print(dagster.log.read_text()[-4_000:])
                raise
            finally:
                scenario.quieten()
                scenario.region.stop(wait=False)
                with contextlib.suppress(Exception):  # what hosts members in a run comes to its end
                    dagster.end_runs()
