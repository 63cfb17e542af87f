"""Dagster's own processes die, in any order: the region goes on, or recovers by itself once they are back (fault 58, SPEC G7)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.model.rows import CheckpointStatus
from tests.dagster.live_stage import Live, live
from tests.rigs import failpoints as fp

pytestmark = [pytest.mark.dagster, pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def stage(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(kafka, tmp_path_factory.mktemp("away"), rate=200.0, trigger={"period": 2}) as made:
        made.scenario.wait_head(2, timeout=120)
        yield made


def goes_on(stage: Live) -> None:
    """Cuts are driven, and published in order."""
    head = stage.scenario.head
    stage.scenario.wait_head(head + 2, timeout=180)
    stage.await_published()
    stage.scenario.verify()


def test_58_killed_daemon(stage: Live) -> None:
    """Cuts go on for a while by the code server; members go on consuming and lose nobody."""
    mark = stage.scenario.mark()
    stage.dagster.kill("daemon")
    time.sleep(8)
    epoch = stage.scenario.epoch
    stage.dagster.begin("daemon")
    goes_on(stage)
    assert stage.scenario.epoch == epoch and not stage.scenario.resets(mark)


def test_58_killed_code_server(stage: Live) -> None:
    """No sensor can be evaluated meanwhile; each is, once it is back."""
    stage.dagster.kill("code")
    time.sleep(8)
    stage.dagster.begin("code")
    goes_on(stage)


def test_58_everything_killed_while_a_cut_is_open(stage: Live) -> None:
    """The members finish the cut; all of Dagster comes back later and goes on."""
    member = stage.scenario.member(0)
    stage.scenario.points.set(member, fp.CONTRIBUTE, "hold")
    stage.scenario.points.await_reached(member, fp.CONTRIBUTE, timeout=60)
    cut = stage.checkpoints()[-1]
    assert cut.status is CheckpointStatus.OPEN
    for part in ("daemon", "webserver", "code"):
        stage.dagster.kill(part)
    stage.scenario.points.clear(member, fp.CONTRIBUTE)
    stage.scenario.wait_head(cut.id, timeout=30)
    for part in ("code", "webserver", "daemon"):
        stage.dagster.begin(part)
    stage.dagster.until(stage.dagster.ready, 180, "Dagster is back")
    goes_on(stage)


def test_58_killed_again_and_again(stage: Live) -> None:
    """At whatever moment of ticks, launches and cuts it hits."""
    for round_ in range(9):
        part = ("daemon", "code", "webserver")[round_ % 3]
        stage.dagster.kill(part)
        time.sleep(0.7 * round_)
        stage.dagster.begin(part)
        time.sleep(5)
    stage.dagster.until(stage.dagster.ready, 180, "Dagster is back")
    goes_on(stage)
    stage.dagster.kill("daemon")
    stage.scenario.finish_and_verify()
