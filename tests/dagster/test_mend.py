"""The job that undoes what others have committed: what the check finds, it mends, without Spark where it can (SPEC K6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable, write_deltalake

from crkafka_core.lake import audit, road
from crkafka_core.plane import tables as plane
from dagster_project import resources
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
