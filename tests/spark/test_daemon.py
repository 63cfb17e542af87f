"""The Python processes of a session's tasks: where their code comes from, and what they have before their task begins."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

from crkafka_core.spark.daemon import without_archives


def test_archives_of_an_installed_pyspark_leave_the_path() -> None:
    inside = "/env/site-packages/pyspark/python/lib/pyspark.zip"
    elsewhere = "/opt/spark/python/lib/pyspark.zip"
    assert without_archives(["", inside, elsewhere, "/env/site-packages"]) == ["", elsewhere, "/env/site-packages"]
    assert without_archives([inside, "/other"]) == [inside, "/other"], "nobody else on the path has the code"


def test_archives_leave_the_path_also_where_the_environment_is_a_link(tmp_path: Path) -> None:
    """Spark resolves its home; Python keeps the path by which it was started."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    inside = str(tmp_path / "real" / "pyspark" / "python" / "lib" / "pyspark.zip")
    assert without_archives([inside, str(tmp_path / "link")]) == [str(tmp_path / "link")]


def test_tasks_begin_with_compiled_code_and_what_members_import(spark: SparkSession) -> None:
    def look(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        loaded = [
            sys.modules["pyspark"].__file__,
            str("crkafka_core.spark.member_task" in sys.modules),
            str("checkpoints_db" in sys.modules),
        ]
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"found": [",".join(loaded)]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(look, "found string").collect()
    assert row["found"].split(",") == [pyspark.__file__, "True", "True"]
