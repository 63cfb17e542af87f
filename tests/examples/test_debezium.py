"""examples/debezium: change events, with and without their schema, become one row for each row of the database."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
import yaml

import examples.debezium as source
from crkafka_core.config import RegionConfig
from crkafka_core.dev.jars import DELTA
from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import Batch
from crkafka_core.spark import session, tables
from tests.rigs.landing import Landing, records
from tests.rigs.memory import MemoryStore

FOLDER = Path(source.__file__).parent
ANN, BEN = {"id": 1, "name": "Ann", "email": "a@x"}, {"id": 2, "name": "Ben", "email": "b@x"}
MOVED = {**ANN, "email": "ann@y"}


def event(op: str, before: Any, after: Any, *, schema: bool = False) -> bytes:
    payload = {"before": before, "after": after, "op": op, "ts_ms": 1_700_000_000_000, "source": {"table": "customers"}}
    return json.dumps({"schema": {"type": "struct"}, "payload": payload} if schema else payload).encode()


EVENTS = [
    event("r", None, ANN),
    event("c", None, BEN, schema=True),
    event("u", ANN, MOVED),
    event("d", BEN, None, schema=True),
    None,
    event("c", None, {**BEN, "name": "Benno"}),
]


def changes(tp: TP, start: int, stop: int) -> Batch:
    batch = records(tp, start, stop)
    at = batch.records.schema.get_field_index("value")
    values = pa.array(EVENTS[start:stop], pa.binary())
    return replace(batch, records=batch.records.set_column(at, batch.records.schema.field(at), values))


def test_the_file_declares_both_tables() -> None:
    declared = RegionConfig.load(FOLDER / "region.yaml").tables
    assert [(t.name, t.mode, t.keys) for t in declared] == [
        ("changes", "append", None),
        ("customers", "upsert", ("id",)),
    ]


def test_the_first_change_of_the_readme_goes_where_the_region_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []

    class Producer:
        def __init__(self, properties: dict[str, str]) -> None:
            sent.append(properties["bootstrap.servers"])

        def produce(self, topic: str, value: str, key: str) -> None:
            sent.extend([topic, json.loads(value)["payload"]["after"], json.loads(key)])

        def flush(self) -> None:
            pass

    monkeypatch.setattr("confluent_kafka.Producer", Producer)
    readme, config = (FOLDER / "README.md").read_text(), RegionConfig.load(FOLDER / "region.yaml")
    exec(readme.partition("<<'END'\n")[2].partition("END\n")[0], {})
    assert config.topics is not None and f"--topic {config.topics[0]}:" in readme
    assert sent == [config.kafka["bootstrap.servers"], config.topics[0], {**ANN, "email": "ann@example.org"}, {"id": 1}]


@pytest.mark.spark
@pytest.mark.soak
def test_the_table_is_what_the_database_was_at_each_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    (declared,) = [
        t for t in yaml.safe_load((FOLDER / "region.yaml").read_text())["tables"] if t["name"] == "customers"
    ]
    table = {**declared, "path": str(tmp_path / "customers")}
    landing = Landing(MemoryStore(), tmp_path, partitions=1, tables=[table], batch_of=changes)
    builder = SparkSession.builder.master("local[2]")
    for key, value in {
        **session.conf(["delta"]),
        "spark.jars": ",".join(map(str, DELTA.jars())),
        "spark.ui.enabled": "false",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        was = []
        for rows in (2, 2, 2):
            landing.land(rows)
            tables.advance(spark, landing.region, "customers")
            was.append(now(tmp_path))
        assert was == [
            {1: ("Ann", "a@x"), 2: ("Ben", "b@x")},
            {1: ("Ann", "ann@y")},
            {1: ("Ann", "ann@y"), 2: ("Benno", "b@x")},
        ]
        landing.rewind(1)
        tables.fence_all(spark, landing.region)
        assert now(tmp_path) == was[0]
    finally:
        spark.stop()


def now(folder: Path) -> dict[int, tuple[str, str]]:
    rows = polars.scan_delta(str(folder / "customers")).collect().to_dicts()
    assert len({r["id"] for r in rows}) == len(rows)
    return {r["id"]: (r["name"], r["email"]) for r in rows}
