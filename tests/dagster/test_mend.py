"""Jobs that mend: what others have committed is undone (SPEC K6), what jobs leave in Dagster is removed (SPEC A3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.tags import PARTITION_NAME_TAG
from deltalake import DeltaTable, write_deltalake

from crkafka_core.lake import audit, road
from crkafka_core.plane import tables as plane
from dagster_project import consistent_region, resources
from dagster_project.names import RANGE_END, RANGE_START, key_of
from tests.dagster.conftest import LandedSeat, shown

pytestmark = pytest.mark.dagster

TWO: list[Any] = [[{"name": name, "format": "delta", "path": f"tables/{name}"} for name in ("away", "bronze")]]
RAW: list[Any] = [[{"name": "bronze", "format": "delta", "path": "tables/bronze"}]]


@pytest.mark.parametrize("tables", RAW)
def test_what_somebody_has_written_into_a_raw_delta_table_is_found_and_undone_without_spark(
    landed: LandedSeat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where members are hosted elsewhere and tables are raw, the code location has no Java."""

    def started(_: resources.SparkSessionResource) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(resources.SparkSessionResource, "session", started)
    landed.landing.land(5), landed.landing.land(10)
    road.advance(landed.region, "bronze")
    bronze = str(tmp_path / "tables/bronze")

    def outcome() -> tuple[bool, str | None]:
        run = landed.defs.resolve_job_def("orders_check_data").execute_in_process(instance=landed.instance)
        (check,) = (e for e in run.get_asset_check_evaluations() if e.check_name == "nothing_foreign")
        return check.passed, check.description

    write_deltalake(bronze, DeltaTable(bronze).to_pyarrow_table().slice(0, 3), mode="append")
    passed, said = outcome()
    assert not passed and said is not None and "1 commit of another program" in said and "mend_tables" in said
    assert shown(landed.run("mend_tables"), "mend") == {"mended": "bronze"}
    assert DeltaTable(bronze).to_pyarrow_table().num_rows == 30
    assert outcome() == (True, None)
    assert shown(landed.run("mend_tables"), "mend") == {"mended": "none"}


@pytest.mark.parametrize("tables", TWO)
def test_a_table_that_is_refused_fails_the_run_after_the_others_had_their_turn(
    landed: LandedSeat, tmp_path: Path
) -> None:
    landed.landing.land(5)
    for name in ("away", "bronze"):
        road.advance(landed.region, name)
    (tmp_path / "tables/away").rename(tmp_path / "elsewhere")
    bronze = str(tmp_path / "tables/bronze")
    write_deltalake(bronze, DeltaTable(bronze).to_pyarrow_table().slice(0, 3), mode="append")
    with pytest.raises(dg.Failure, match="Table away at"):
        landed.run("mend_tables")
    assert DeltaTable(bronze).to_pyarrow_table().num_rows == 10


@pytest.fixture
def tables(tmp_path: Path) -> list[dict[str, Any]]:
    return [
        {"name": "raw", "format": "delta", "path": str(tmp_path / "raw")},
        {"name": "plain", "format": "delta", "path": "lake.shop.plain"},
    ]


def test_the_job_compacts_without_spark_what_needs_none_and_says_what_it_did(
    landed: LandedSeat, tmp_path: Path
) -> None:
    landed.landing.land(5, times=4)
    road.advance(landed.region, "raw")
    assert shown(landed.run("maintain_tables", {"maintain": {"tables": ["plain"]}}), "maintain")["files"] == 0
    landed.region.plane.do(lambda tx: plane.undeclare(tx, "plain"))  # it holds back retirement
    landed.landing.retire(1, 2, 3)
    done = landed.run("maintain_tables", {"maintain": {"tables": ["raw"]}})
    assert shown(done, "maintain")["files"] == 6
    assert len(DeltaTable(str(tmp_path / "raw")).file_uris()) == 3
    assert audit.look(landed.region, "raw").clean


def test_old_runs_that_materialize_nothing_are_removed_and_nothing_else(landed: LandedSeat) -> None:
    landed.landing.land(1)
    landed.publish()

    def run(job: str, status: dg.DagsterRunStatus, tags: dict[str, str] | None = None) -> str:
        made = landed.defs.resolve_job_def(f"orders_{job}")
        return landed.instance.create_run_for_job(made, status=status, tags=tags or {"crkafka/region": "orders"}).run_id

    ended, failed, going = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.STARTED
    old = [run("cut", ended) for _ in range(3)]
    of_a_schedule = run("maintain_tables", ended)
    kept = [
        run("cut", failed),
        run("cut", going),
        run("maintain_tables", ended),
        run("replay", ended),
        run("replay", ended),
    ]
    other = run("cut", ended, {"crkafka/region": "another"})  # of another code location, with a job of this name
    newest = run("observe_group", ended)
    nothing = landed.run("prune_runs", {"prune": {"days": 1e9, "failures": 1e9}})
    assert shown(nothing, "prune")["runs"] == 0
    assert landed.run("prune_runs", {"prune": {"days": 0, "limit": 2}}).success
    there = {r.run_id for r in landed.instance.get_runs()}
    assert len(there & set(old)) == 1 and {*kept, other, newest} <= there
    assert landed.run("prune_runs", {"prune": {"days": 0}}).success
    there = {r.run_id for r in landed.instance.get_runs()}
    assert not there & {*old, of_a_schedule} and {*kept, other, newest} <= there
    assert len(landed.instance.fetch_materializations(landed.names.records, limit=10).records) == 1
    assert landed.run("prune_runs", {"prune": {"days": 0, "failures": 0}}).success
    assert kept[0] not in {r.run_id for r in landed.instance.get_runs()}


def test_the_runs_of_a_region_of_this_name_with_a_prefix_are_left_alone(landed: LandedSeat) -> None:
    def ran(defs: dg.Definitions) -> str:
        job = defs.resolve_job_def("orders_cut")
        return landed.instance.create_run_for_job(job, status=dg.DagsterRunStatus.SUCCESS, tags=dict(job.tags)).run_id

    other = consistent_region(landed.config, key_prefix=["eu"])
    old, theirs, newest, later = (ran(defs) for defs in (landed.defs, other, landed.defs, other))
    assert landed.run("prune_runs", {"prune": {"days": 0}}).success
    kept = {r.run_id for r in landed.instance.get_runs()}
    assert {newest, theirs, later} <= kept and old not in kept


@pytest.mark.parametrize("tables", [[{"name": "bronze", "format": "delta", "path": "lake.shop.bronze"}]])
@pytest.mark.parametrize("keys", [{"ui_history": 2}])
def test_a_run_that_wrote_a_table_stays_while_one_of_its_partitions_is_there(landed: LandedSeat) -> None:
    job = landed.defs.resolve_job_def("orders_write_tables")

    def wrote(first: int, last: int) -> str:
        tags = {RANGE_START: key_of(first), RANGE_END: key_of(last), "crkafka/region": "orders"}
        return landed.instance.create_run_for_job(job, status=dg.DagsterRunStatus.SUCCESS, tags=tags).run_id

    def wrote_one(checkpoint: int) -> str:
        """As a person's run of one partition is, from the job's page."""
        tags = {PARTITION_NAME_TAG: key_of(checkpoint), "crkafka/region": "orders"}
        return landed.instance.create_run_for_job(job, status=dg.DagsterRunStatus.SUCCESS, tags=tags).run_id

    landed.landing.land(1, times=2)
    landed.publish()
    gone, gone_too = wrote(1, 2), wrote_one(1)
    landed.landing.land(1)
    landed.publish()
    half, there, single = wrote(2, 3), wrote(3, 3), wrote_one(3)
    landed.landing.land(1)
    landed.publish()
    newest = wrote(4, 4)
    assert landed.run("prune_runs", {"prune": {"days": 0}}).success
    kept = {r.run_id for r in landed.instance.get_runs()}
    assert not {gone, gone_too} & kept and {half, there, single, newest} <= kept
