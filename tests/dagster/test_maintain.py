"""The job that compacts tables: without Spark where it can, and no row changes (SPEC K6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from crkafka_core.lake import audit, road
from crkafka_core.plane import tables as plane
from tests.dagster.conftest import LandedSeat, shown

pytestmark = pytest.mark.dagster


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
