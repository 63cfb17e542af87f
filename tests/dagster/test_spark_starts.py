"""While Spark starts, the log of the run that needs it tells so: the page of a run shows nothing else meanwhile."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

import pytest

from crkafka_core import still
from crkafka_core.region import region as region_room
from crkafka_core.spark import tables
from dagster_project import resources
from tests.dagster.conftest import LandedSeat, Seat
from tests.plane.bronze import allowed
from tests.rigs.until import until

pytestmark = pytest.mark.dagster

BRONZE: list[Any] = [[{"name": "bronze", "format": "delta", "path": "lake.shop.bronze"}]]
STARTS = {
    "Spark starts; jars that are not here yet are fetched first",
    "Spark is still starting, for N s now",
    "Spark has started, in N s; its first job takes longer than the next ones",
}


def told(seat: Seat) -> Sequence[tuple[str | None, int, str]]:
    """Step, level and words of what the runs so far have logged about Spark's start."""
    entries = [entry for run in seat.instance.get_runs() for entry in seat.instance.all_logs(run.run_id)]
    return [
        (e.step_key, e.level, re.sub(r"\d+", "N", e.user_message))
        for e in entries
        if e.user_message.startswith("Spark ")
    ]


@pytest.fixture
def slow_spark(landed: LandedSeat, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that is there only once the log has said that it is still starting."""

    def make(_: resources.SparkSessionResource) -> object:
        until(lambda: any("still" in words for *_, words in told(landed)), "something is told while Spark starts")
        return object()

    monkeypatch.setattr(still, "FIRST", 0.01)
    monkeypatch.setattr(resources.SparkSessionResource, "_make", make)
    monkeypatch.setattr(region_room, "check_available", lambda *_: None)
    for written in ("rewrite", "advance", "fence_all"):
        monkeypatch.setattr(tables, written, lambda *_, **__: None)


@pytest.mark.parametrize("tables", BRONZE)
def test_a_rewind_tells_that_spark_starts(
    landed: LandedSeat, slow_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region_room.Region, "await_running", lambda self, *_, **__: self.plane.read(lambda _, row: row))
    landed.landing.land(10, times=2)
    allowed(landed.landing)
    assert landed.run("reset_region", {"reset": {"to": 1}}).success
    assert {(step, level) for step, level, _ in told(landed)} == {("rewind", logging.INFO)}
    assert {words for *_, words in told(landed)} == STARTS
