"""`crkafka tables mend`: what others have written into tables is found and undone by a person (SPEC K6)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from checkpoints_db import initialise, open_store
from crkafka_core.cli.main import run
from crkafka_core.spark import tables
from tests.rigs.landing import Landing

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(600)]


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    """Two tables of three checkpoints; the configuration lies beside them."""
    url = f"sqlite:///{tmp_path}/crkafka.db"
    initialise(url)
    declared = [{"name": f, "format": f, "path": str(tmp_path / f)} for f in ("delta", "iceberg")]
    made = Landing(
        open_store(url), tmp_path, partitions=2, control_plane=url, tables=declared, host={"spark": "local[4]"}
    )
    (tmp_path / "region.yaml").write_text(yaml.safe_dump(json.loads(made.config.to_json())))
    for _ in range(3):
        made.land(5)
    return made


def mend(folder: Path, *arguments: str) -> int:
    return run(["-c", str(folder / "region.yaml"), "tables", "mend", *arguments])


def test_rows_of_somebody_else_are_told_then_mended(
    spark: SparkSession, landing: Landing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("delta", "iceberg"):
        tables.advance(spark, landing.region, name)
    tables.rewrite(spark, landing.region, "iceberg", [1, 2, 3])
    assert mend(tmp_path, "--look") == 0
    assert capsys.readouterr().out == "delta: as it should be\niceberg: as it should be\n"
    path = str(tmp_path / "delta")
    second = spark.read.format("delta").load(path).where("offset >= 5 AND offset < 10")
    second.write.format("delta").mode("append").save(path)
    assert mend(tmp_path, "--look") == 1
    assert (
        "delta: other rows than were merged of checkpoints 2, 1 commit of another program\n" in capsys.readouterr().out
    )
    assert mend(tmp_path) == 0
    assert "; mended" in capsys.readouterr().out
    assert mend(tmp_path, "delta", "--look") == 0
    assert tables.read_table(spark, landing.region, "iceberg").count() == 30
