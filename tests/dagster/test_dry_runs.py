"""What retire and replay would do is told with numbers, and nothing is done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Segment, TableCommit
from crkafka_core.plane import permits
from dagster_project import resources
from tests.dagster.conftest import LandedSeat, failure

pytestmark = pytest.mark.dagster

BRONZE: list[Any] = [[{"name": "bronze", "format": "delta", "path": "lake.shop.bronze"}]]


def retain(seat: LandedSeat, checkpoints: int) -> None:
    seat.region.plane.do(lambda tx: tx.set_region(limits_json=json.dumps({"retain": checkpoints})))


def test_a_dry_run_of_retire_tells_what_would_be_deleted_and_deletes_nothing(
    landed: LandedSeat, capfd: pytest.CaptureFixture[str]
) -> None:
    for rows in (10, 20, 30, 40):
        landed.landing.land(rows)
    retain(landed, 2)

    def kept() -> tuple[list[CheckpointStatus], int]:
        return landed.region.plane.read(
            lambda r, _: ([c.status for c in r.select(Checkpoint, order=("id",))], r.count(Segment))
        )

    before = kept()
    files = sorted(Path(landed.config.storage).rglob("*.parquet"))
    assert landed.run("retire_checkpoints", {"retire": {"dry_run": True}}).success
    said = "".join(capfd.readouterr())
    assert "The segments of 2 checkpoints, 1 to 2, would be deleted: 60 rows in 4 files of " in said
    assert kept() == before and sorted(Path(landed.config.storage).rglob("*.parquet")) == files and files


@pytest.mark.parametrize("tables", BRONZE)
def test_a_dry_run_of_retire_tells_who_holds_it_back(landed: LandedSeat, capfd: pytest.CaptureFixture[str]) -> None:
    landed.landing.land(10, times=3)
    retain(landed, 1)
    assert landed.run("retire_checkpoints", {"retire": {"dry_run": True}}).success
    said = "".join(capfd.readouterr())
    assert "0 checkpoints would be deleted" in said and "Held back: table bronze has acknowledged 0" in said


@pytest.mark.parametrize("tables", BRONZE)
def test_a_dry_run_of_replay_tells_the_rows_and_where_they_are_read_and_starts_no_spark(
    landed: LandedSeat, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def started(_: resources.SparkSessionResource) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(resources.SparkSessionResource, "session", started)
    for rows in (1_000, 2_000, 3_000):
        landed.landing.land(rows)
    permit = landed.region.plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="h", token="t"))
    assert permit is not None
    landed.region.plane.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=12_000))
    landed.landing.retire(1)
    wanted = {"after": 0, "upto": 2, "dry_run": True}
    assert landed.run("replay", {"rewrite": wanted}).success
    assert (
        "6,000 records of 2 checkpoints would be read again for bronze: 4,000 from segments, 2,000 from Kafka"
        in "".join(capfd.readouterr())
    )
    assert landed.region.plane.read(lambda r, _: r.count(TableCommit)) == 1
    said = failure(landed.run("replay", {"rewrite": {**wanted, "tables": ["silver"]}}, raise_on_error=False))
    assert said == "Region orders declares no table silver. Declared: bronze."
