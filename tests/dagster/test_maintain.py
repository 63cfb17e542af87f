"""The job that compacts tables of adopted segments: without Spark, and no row changes (SPEC K6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from crkafka_core.plane import tables as plane
from crkafka_core.tables import adopt, audit
from tests.dagster.conftest import LandedSeat

pytestmark = pytest.mark.dagster


@pytest.fixture
def tables(tmp_path: Path) -> list[dict[str, Any]]:
    return [
        {"name": name, "format": format, "path": str(tmp_path / name)}
        for name, format in (("raw", "delta"), ("plain", "parquet"))
    ]


def test_the_job_compacts_what_adopts_segments_and_says_what_it_did(landed: LandedSeat, tmp_path: Path) -> None:
    for _ in range(4):
        landed.landing.land(5)
    adopt.advance(landed.region, "raw")
    with pytest.raises(dg.Failure, match="is written by Spark: it is compacted by its format's own means"):
        landed.run("maintain_tables", {"maintain": {"tables": ["plain"]}})
    landed.region.plane.do(lambda tx: plane.undeclare(tx, "plain"))
    landed.landing.retire(1, 2, 3)
    done = landed.run("maintain_tables")
    assert done.output_for_node("maintain") == 6
    assert len(DeltaTable(str(tmp_path / "raw")).file_uris()) == 3
    assert audit.look(landed.region, "raw").clean
