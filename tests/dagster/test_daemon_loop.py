"""One loop of Dagster's own sensor daemon where all sensors share one thread (SPEC A3, A7)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.test_utils import InProcessTestWorkspaceLoadTarget, create_test_daemon_workspace_context
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._daemon import sensor as daemon

from dagster_project.names import RANGE_END, RANGE_START, key_of
from tests.dagster.conftest import LandedSeat

pytestmark = pytest.mark.dagster

DEFINITIONS = """
from crkafka_core.config import RegionConfig
from dagster_project import consistent_region

defs = consistent_region(RegionConfig.from_json({config!r}), host=False)
"""
STOCK = {
    "sensors": {"use_threads": False},
    "run_coordinator": {"module": "dagster.core.run_coordinator", "class": "QueuedRunCoordinator"},
}
BRONZE = [[{"name": "bronze", "format": "delta", "path": "lake.shop.bronze"}]]


def loop(seat: LandedSeat, folder: Path) -> Callable[[], None]:
    """Evaluates every sensor once; what it asks for is done as the daemon does it."""
    file = folder / "loop_definitions.py"
    file.write_text(DEFINITIONS.format(config=seat.config.to_json()))
    origin = InProcessCodeLocationOrigin(LoadableTargetOrigin(python_file=str(file), working_directory=str(folder)))
    target = InProcessTestWorkspaceLoadTarget(origin)

    def once() -> None:
        with create_test_daemon_workspace_context(target, seat.instance) as workspace:
            errors = [e for e in daemon.execute_sensor_iteration(workspace, logging.getLogger(), None, None) if e]
        assert errors == []

    return once


@pytest.mark.parametrize("storage", [STOCK])
@pytest.mark.parametrize("tables", BRONZE)
def test_a_table_gets_its_run_in_the_loop_that_publishes_its_checkpoints(landed: LandedSeat, tmp_path: Path) -> None:
    """Each checkpoint is told of once, and there is one run."""
    once = loop(landed, tmp_path)

    def told() -> list[str | None]:
        records = landed.instance.fetch_materializations(landed.names.records, limit=100).records
        return sorted(str(r.partition_key) for r in records)

    def runs() -> list[tuple[str, str]]:
        queued = landed.instance.get_runs(dg.RunsFilter(job_name="orders_write_tables"))
        return [(r.tags[RANGE_START], r.tags[RANGE_END]) for r in queued]

    landed.landing.land(1, times=2)
    once()
    assert landed.partitions() == told() == [key_of(1), key_of(2)]
    assert runs() == [(key_of(1), key_of(2))]
    landed.landing.land(1)
    for _ in range(2):
        time.sleep(1.1)  # the least interval of a sensor
        once()
    assert landed.partitions() == told() == [key_of(1), key_of(2), key_of(3)]
    assert len(runs()) == 1, "it is on its way"
