"""Runs that write tables: they wait for a host that writes one, tell what they do, and start Spark where it is needed (SPEC A7)."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from crkafka_core import still
from crkafka_core.plane import permits
from crkafka_core.plane import tables as plane_tables
from crkafka_core.region import region as region_room
from crkafka_core.spark import tables
from crkafka_core.spark import tables as spark_tables
from dagster_project import resources, writing
from dagster_project.names import KEEPING_UP, key_of
from dagster_project.sensors.tables import RANGE_END, RANGE_START
from tests.dagster.conftest import LandedSeat, Seat
from tests.plane.bronze import allowed
from tests.rigs.until import until

pytestmark = pytest.mark.dagster
TYPED: list[Any] = [[{"name": "typed", "path": "tables/typed", "shape": "shop.rows:typed"}]]
RAW: list[Any] = [[{"name": "bronze", "format": "delta", "path": "tables/bronze"}]]


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(_: resources.SparkSessionResource) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(resources.SparkSessionResource, "_make", made)
    monkeypatch.setattr(writing, "PAUSE_S", 0.05)


def said(seat: LandedSeat) -> list[str]:
    """What the runs so far have logged in our words, in order."""
    entries = [e for run in reversed(seat.instance.get_runs()) for e in seat.instance.all_logs(run.run_id)]
    return [e.user_message for e in entries if not e.is_dagster_event]


def acknowledged(seat: LandedSeat, name: str) -> int:
    return seat.region.plane.read(lambda reader, row: plane_tables.of(reader, name)).acknowledged


@pytest.mark.parametrize("tables", TYPED)
def test_a_run_that_meets_the_host_at_its_table_waits_and_ends_well_without_spark(
    landed: LandedSeat, no_spark: None
) -> None:
    landed.landing.land(10)
    landed.publish()
    plane = landed.region.plane
    permit = plane.do(lambda tx: permits.permit_commit(tx, "typed", holder="host:1", token="t"))
    assert permit is not None

    def write() -> None:
        until(lambda: any("waits" in text for text in said(landed)))
        plane.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=20))

    host = threading.Thread(target=write)
    host.start()
    unresolved = dg.define_asset_job("write", dg.AssetSelection.assets(landed.names.table("typed")).without_checks())
    job = dg.Definitions.merge(landed.defs, dg.Definitions(jobs=[unresolved])).resolve_job_def("write")
    tags = {RANGE_START: key_of(1), RANGE_END: key_of(1), KEEPING_UP: "orders/typed"}
    assert job.execute_in_process(instance=landed.instance, tags=tags).success
    host.join()
    assert said(landed) == [
        "table typed is written by host:1: this run waits for it",
        "table typed has got all up to checkpoint 1 meanwhile: the host writes it",
    ]


@pytest.mark.parametrize("tables", TYPED)
def test_a_run_that_is_overtaken_after_it_has_looked_tries_again_when_the_table_is_free(
    landed: LandedSeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As between the look and the permit, where Spark's start of a minute is."""
    landed.landing.land(10)
    plane, took = landed.region.plane, list[permits.Permit]()

    def make(_: resources.SparkSessionResource) -> object:
        permit = plane.do(lambda tx: permits.permit_commit(tx, "typed", holder="host:1", token="t"))
        assert permit is not None
        took.append(permit)
        return object()

    real = spark_tables.advance

    def advance(spark: Any, region: Any, name: str, **more: Any) -> Any:
        try:
            return real(spark, region, name, **more)
        finally:
            if acknowledged(landed, name) == 0:
                plane.do(lambda tx: permits.finish_commit(tx, took[0], version="1", rows=20))

    monkeypatch.setattr(writing, "PAUSE_S", 0.05)
    monkeypatch.setattr(resources.SparkSessionResource, "_make", make)
    monkeypatch.setattr(spark_tables, "advance", advance)
    assert landed.run("replay", {"rewrite": {"after": 0, "upto": 1}}).success
    assert acknowledged(landed, "typed") == 1
    assert said(landed)[-1] == "table typed has got all up to checkpoint 1 meanwhile: the host writes it"


@pytest.mark.parametrize("tables", RAW)
def test_a_raw_delta_table_is_replayed_without_spark_and_the_run_tells_its_rows(
    landed: LandedSeat, no_spark: None, tmp_path: Path
) -> None:
    landed.landing.land(5), landed.landing.land(10)
    for _ in range(2):
        assert landed.run("replay", {"rewrite": {"after": 0, "upto": 2}}).success
    assert DeltaTable(str(tmp_path / "tables/bronze")).to_pyarrow_table().num_rows == 30
    assert said(landed) == [
        "writing what follows checkpoint 0 up to 2 into bronze",
        "30 rows written into bronze: advanced from checkpoint 0 to 2",
        "writing 30 records of 2 checkpoints again into bronze",
        "30 rows of 2 checkpoints written into bronze",
    ]


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
