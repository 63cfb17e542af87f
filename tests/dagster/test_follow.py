"""The resident run that brings users' assets each checkpoint once it is merged, and the sensor that keeps it (SPEC A2, A7)."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from crkafka_core.plane import leases
from dagster_project import consistent_region
from dagster_project.names import key_of
from tests.dagster import reconstructed
from tests.dagster.conftest import LandedSeat, Seat

pytestmark = pytest.mark.dagster

DEFINITIONS = """
from pathlib import Path

import dagster as dg

from crkafka_core.config import RegionConfig
from dagster_project import consistent_region
from dagster_project import consistent_region
from dagster_project.names import Names
from dagster_project.partitions import definition

names = Names("orders")


@dg.asset(partitions_def=definition(names), deps=[names.records], backfill_policy=dg.BackfillPolicy.single_run())
def revenue() -> None:
    assert not Path({broken!r}).exists()


defs = dg.Definitions.merge(
    dg.Definitions(assets=[revenue]), consistent_region(RegionConfig.from_json({config!r}), follow=["revenue"])
)
"""


@pytest.fixture
def code(landed: LandedSeat, tmp_path: Path) -> Path:
    """A code location with an asset that the region's job follows with; `broken` makes it fail."""
    file = tmp_path / "definitions.py"
    file.write_text(DEFINITIONS.format(config=landed.config.to_json(), broken=str(tmp_path / "broken")))
    return file


def run(code: Path, job: str, instance: dg.DagsterInstance, **more: object) -> dg.JobExecutionResult:
    return reconstructed.of_file(code, f"orders_{job}", instance, **more)


def follow(code: Path, seat: LandedSeat) -> None:
    assert run(code, "follow_merges", seat.instance, run_config={"ops": {"follow": {"config": {"seconds": 0}}}}).success


def brought(seat: Seat) -> list[str]:
    return sorted(seat.instance.get_materialized_partitions(dg.AssetKey("revenue")))


def test_what_is_merged_is_published_and_brought_by_one_run_and_not_told_again(landed: LandedSeat, code: Path) -> None:
    landed.landing.land(1)
    landed.publish()
    follow(code, landed)
    assert brought(landed) == []  # a new asset begins with what comes
    assert run(code, "followed", landed.instance, tags={"dagster/partition": key_of(1)}).success
    landed.landing.land(1), landed.landing.land(0), landed.landing.land(2)
    follow(code, landed)
    assert landed.partitions() == brought(landed) == [key_of(1), key_of(2), key_of(4)]
    (last, _) = landed.instance.get_runs(dg.RunsFilter(job_name="orders_followed"))
    assert last.tags["dagster/asset_partition_range_end"] == key_of(4)
    landed.publish()
    told = dg.AssetRecordsFilter(asset_key=landed.names.records)
    records = landed.instance.fetch_materializations(told, limit=10).records
    assert [r.partition_key for r in records] == [key_of(4), key_of(2), key_of(1)]


def test_a_run_that_fails_keeps_nothing_back_and_its_checkpoints_come_with_the_next_follower(
    landed: LandedSeat, code: Path
) -> None:
    landed.landing.land(1)
    landed.publish()
    assert run(code, "followed", landed.instance, tags={"dagster/partition": key_of(1)}).success
    (broken := code.parent / "broken").touch()
    landed.landing.land(1)
    follow(code, landed)
    assert landed.partitions() == [key_of(1), key_of(2)] and brought(landed) == [key_of(1)]
    broken.unlink()
    landed.landing.land(1)
    follow(code, landed)
    assert brought(landed) == [key_of(1), key_of(2), key_of(3)]


def test_nothing_is_appended_before_what_precedes_it_is_published(landed: LandedSeat, code: Path) -> None:
    """SPEC A3: Dagster's ranges follow the order of insertion; the publishing sensor mends what a person has deleted."""
    landed.landing.land(1, times=2)
    landed.publish()
    assert run(code, "followed", landed.instance, tags={"dagster/partition": key_of(2)}).success
    landed.instance.delete_dynamic_partition(landed.names.partitions, key_of(2))
    landed.landing.land(1)
    follow(code, landed)
    assert landed.partitions() == [key_of(1)] and brought(landed) == [key_of(2)]
    landed.cursor = None
    landed.publish()
    landed.landing.land(1)
    landed.region.plane.do(lambda tx: tx.set_region(uid="another"))  # made anew: partitions of the old one leave first
    follow(code, landed)
    assert landed.partitions() == [key_of(1), key_of(2), key_of(3)]


def test_a_region_that_runs_has_a_run_that_follows_its_merges(seat: Seat) -> None:
    @dg.asset
    def revenue() -> None: ...

    seat.defs = dg.Definitions.merge(
        dg.Definitions(assets=[revenue]), consistent_region(seat.config, follow=["revenue"])
    )
    assert seat.tick("follow").skip_message == "IDLE: nothing to do"
    seat.region.start(by="test")
    assert len(seat.tick("follow").run_requests) == 1
    seat.region.plane.do(lambda tx: leases.take(tx, "follower", holder="a run", token="t", length=60))
    assert seat.tick("follow").skip_message == "BIRTH: a run follows the merges"
