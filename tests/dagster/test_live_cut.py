"""Runs that cut, on a real Kafka and a real Dagster: killed in each step, retried, doubled, woken late, cancelled (SPEC A6, X4)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.model.rows import CheckpointStatus
from tests.dagster.live_stage import Live, live

pytestmark = [pytest.mark.dagster, pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(600)]

MERGED, ABORTED = CheckpointStatus.MERGED, CheckpointStatus.ABORTED


@pytest.fixture(scope="module")
def stage(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(kafka, tmp_path_factory.mktemp("live"), rate=200.0) as made:
        made.succeed("cut")
        yield made


# tests/dagster/test_cut.py retries a run that failed in each step, without a Dagster that runs.
@pytest.mark.parametrize("step", ["open_cut", "await_drained", "await_merged"])
def test_6_a_cut_run_killed_in_a_step_and_retried_completes_its_cut(stage: Live, step: str) -> None:
    """Fault 6, SPEC A6: `kill -9` when the step's work is done, the worst moment; retried from failure as the UI does."""
    before = len(stage.checkpoints())
    stage.hold(step)
    run = stage.launch("cut")
    stage.kill_in(step, run)
    stage.scenario.until(lambda: stage.checkpoints()[-1].status is MERGED, "members finish the cut of the dead run")
    retried = stage.dagster.retry(run)
    assert stage.dagster.finished(retried) == "SUCCESS", stage.dagster.failures(retried)
    assert [c.status for c in stage.checkpoints()[before:]] == [MERGED]
    stage.succeed("cut")
    stage.scenario.verify(quiet=True)


@pytest.mark.parametrize("step", ["open_cut", "await_drained", "await_merged"])
def test_6_a_cut_run_killed_before_a_steps_work_is_retried(stage: Live, step: str) -> None:
    """Fault 6: before `open_cut` nothing is there to finish, so the retry cuts; after it, the cut goes on by itself."""
    before = len(stage.checkpoints())
    stage.hold(step, "before")
    run = stage.launch("cut")
    stage.kill_in(step, run)
    retried = stage.dagster.retry(run)
    assert stage.dagster.finished(retried) == "SUCCESS", stage.dagster.failures(retried)
    assert [c.status for c in stage.checkpoints()[before:]] == [MERGED]
    stage.scenario.verify(quiet=True)


def test_8_a_run_stopped_past_its_lease_opens_nothing_when_it_wakes(stage: Live) -> None:
    """Fault 8, SPEC A6: another has taken over meanwhile; the region is unaffected."""
    before = len(stage.checkpoints())
    stage.hold("open_cut", "before")
    first = stage.launch("cut")
    process = stage.held("open_cut")
    stage.scenario.freeze(process)
    stage.release("open_cut")
    time.sleep(4)  # the lease of a scenario's driver is 3 s
    second = stage.succeed("cut")
    os.kill(process, signal.SIGCONT)
    assert stage.dagster.finished(first) == "FAILURE"
    said = stage.dagster.failures(first)["open_cut"]
    assert "The lease driver of region" in said and second in said
    assert [c.status for c in stage.checkpoints()[before:]] == [MERGED]
    stage.scenario.check()


@pytest.mark.parametrize("step", ["open_cut", "await_drained", "await_merged"])
def test_a_cut_run_that_is_terminated_in_a_step_leaves_a_region_that_goes_on(stage: Live, step: str) -> None:
    """SPEC A6: as a person does in the UI; its cut is finished by the members, the next run is not kept waiting."""
    stage.hold(step)
    run = stage.launch("cut")
    stage.held(step)
    stage.dagster.terminate(run)
    assert stage.dagster.finished(run) == "CANCELED"
    stage.release(step)
    stage.scenario.until(lambda: stage.checkpoints()[-1].status is MERGED, "members finish the cut")
    stage.succeed("cut")
    stage.scenario.verify(quiet=True)


@pytest.mark.parametrize("step", ["reset", "await_running"])
def test_6_a_reset_run_killed_in_a_step_and_retried_is_one_reset(stage: Live, step: str) -> None:
    target = stage.scenario.cut_soon().id
    stage.scenario.cut_soon()
    mark = stage.scenario.mark()
    stage.hold(step)
    run = stage.launch("reset_region", reset={"to": str(target), "cause": "a test"})
    stage.kill_in(step, run)
    retried = stage.dagster.retry(run)
    assert stage.dagster.finished(retried) == "SUCCESS", stage.dagster.failures(retried)
    assert len(stage.scenario.resets(mark)) == 1
    assert stage.checkpoints()[-1].status is CheckpointStatus.SUPERSEDED
    stage.scenario.check()
