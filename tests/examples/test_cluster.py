"""examples/cluster: two nights on a real standalone Spark, with a real PostgreSQL and a server of S3's protocol."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from crkafka_core.config import RegionConfig
from crkafka_core.dev.jars import DELTA, S3A
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.sample import produce_orders
from examples.cluster import nightly
from tests.rigs.spark_cluster import SparkCluster

FILE = Path(nightly.__file__).parent / "region.yaml"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path / "cluster", workers=2, cores=4) as made:
        yield made


def test_the_file_is_a_good_configuration() -> None:
    config = RegionConfig.load(FILE)
    assert config.host.spark == "spark://master:7077"
    assert not [word for word in FILE.read_text().split() if word in ("geheim", "password:")]


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.postgres
@pytest.mark.soak
@pytest.mark.timeout(500)
def test_each_night_brings_in_what_came_since(
    cluster: SparkCluster,
    kafka: KafkaCluster,
    new_topic: Callable[..., str],
    tmp_path: Path,
    postgres_url: str,
    bucket: str,
    s3_options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CRKAFKA_DB_PASSWORD", "geheim")
    for name in ("endpoint", "access_key", "secret_key"):
        monkeypatch.setenv(f"LAKE_{name.upper()}", s3_options[name])
    keys = yaml.safe_load(FILE.read_text().replace("s3://lake/", f"s3://{bucket}/"))
    keys["kafka"]["bootstrap.servers"] = kafka.bootstrap
    keys |= {"control_plane": postgres_url, "topics": [topic := new_topic()]}
    keys["host"]["spark"] = cluster.master
    keys["host"]["conf"] |= {
        "spark.jars": ",".join(map(str, [*DELTA.jars(), *S3A.jars()])),
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    (region := tmp_path / "region.yaml").write_text(yaml.safe_dump(keys))
    following = produce_orders(kafka.bootstrap, topic, 400)
    assert night(region) == "records in bronze: 400\n"
    produce_orders(kafka.bootstrap, topic, 100, first=following)
    assert night(region) == "records in bronze: 500\n"


def night(region: Path) -> str:
    """The program as a scheduler starts it: its Java loads the jars that its own region names."""
    done = subprocess.run([sys.executable, nightly.__file__, str(region)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout
