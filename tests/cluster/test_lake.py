"""What many machines share: a control plane in PostgreSQL, segments and tables in S3, members on a cluster (SPEC K1, K2, K5, K6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from crkafka_core.dev.jars import DELTA, S3A
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.segments.storage import Storage
from crkafka_core.spark import frames, source, tables
from tests.cluster.conftest import on
from tests.rigs.spark_cluster import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres, pytest.mark.soak, pytest.mark.timeout(400)]

SECRETS = ("access_key", "secret_key")


def test_region_whose_control_plane_is_postgresql_and_whose_storage_is_s3(
    cluster: SparkCluster,
    kafka: KafkaCluster,
    tmp_path: Path,
    postgres_url: str,
    bucket: str,
    s3_options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in SECRETS:  # this process knows them, and the executors by its settings
        monkeypatch.setenv(f"LAKE_{name}", s3_options[name])
    references = {name: f"${{env:LAKE_{name}}}" for name in SECRETS}
    with on(
        cluster.master,
        kafka,
        tmp_path,
        members=2,
        rate=500,
        url=postgres_url,
        storage=f"s3://{bucket}/segments",
        storage_options={**s3_options, **references},
        tables=[{"name": "delta", "path": f"s3://{bucket}/tables/delta"}],
        conf={
            "spark.jars": ",".join(map(str, [*DELTA.jars(), *S3A.jars()])),
            **{f"spark.executorEnv.LAKE_{n}": r for n, r in references.items()},
        },
    ) as s:
        first = s.until(lambda: (cut := s.cut_soon()).rows and cut, "a cut with rows")
        tables.advance(s.spark, s.region, "delta")
        second = s.until(lambda: (cut := s.cut_soon()).rows and cut, "another cut with rows")
        assert frames.checkpoints(s.spark, s.region, ids=[second.id]).count() == second.rows
        s.region.reset(first.id, wait=True)  # the host makes the fences
        verdict = s.finish_and_verify()
        counted = frames.checkpoints(s.spark, s.region).groupBy("crkafka_checkpoint").count().collect()
        assert sum(r["count"] for r in counted) == verdict.rows == s.ledger.rows()
        source.register(s.spark)
        options = {"region": s.config.region, "controlPlane": postgres_url, "storage": s.config.storage}
        options |= {f"storage.{key}": value for key, value in s.config.storage_options.items()}
        assert s.spark.read.format("crkafka").options(**options).load().count() == verdict.rows
        tables.advance(s.spark, s.region, "delta")
        landed = tables.read_table(s.spark, s.region, "delta")
        assert landed.select("topic", "partition", "offset").distinct().count() == landed.count() == verdict.rows
        assert tables.look(s.spark, s.region, "delta").clean
        tables.rewrite(s.spark, s.region, "delta", [first.id])
        assert tables.look(s.spark, s.region, "delta").clean
        s.region.stop()
        assert s.host.join(30)
        shown = str(s.region.plane.read(lambda _, row: row)) + str(s.region.config)
        assert s3_options["secret_key"] not in shown
        there = {f.path.split("/")[0] for f in Storage.open(f"s3://{bucket}", s3_options).list("")}
        assert there == {"segments", "tables"}  # and nothing of it on a disk of this machine
        assert not list(tmp_path.rglob("*.parquet"))
