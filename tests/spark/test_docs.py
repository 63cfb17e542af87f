"""The samples of docs/spark.md run, in their order, against a real Kafka; what it says is refused is refused (SPEC K1-K7)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from checkpoints_db import initialise
from crkafka_core.config import RegionConfig
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.rows import Checkpoint
from crkafka_core.region import Region

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
REST = {"region": "orders", "kafka": {"bootstrap.servers": "b:1", "group.id": "g"}, "topics": ["t"]}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def refused() -> list[tuple[str, str]]:
    """(what the error says, the configuration) of the samples that are refused."""
    matches = [re.match(r"# refused: (.*)\n", block) for block in blocks("yaml")]
    return [(m.group(1), m.string) for m in matches if m]


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_samples_run_in_their_order(
    spark: SparkSession,
    kafka: KafkaCluster,
    new_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = new_topic()
    text = (
        blocks("yaml")[0].replace("localhost:9092", kafka.bootstrap).replace("topics: [orders]", f"topics: [{topic}]")
    )
    assert topic in text
    (tmp_path / "region.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    config = RegionConfig.load(tmp_path / "region.yaml")
    (tmp_path / "var").mkdir()
    initialise(config.control_plane)
    producer, cut = Producer({"bootstrap.servers": kafka.bootstrap}), Region.cut

    def cut_with_rows(region: Region) -> Checkpoint:
        """A reader of the page has records that come in; each cut of it has some."""
        for number in range(100):
            value = json.dumps({"id": number if number % 10 else f"no. {number}", "who": "somebody"})
            producer.produce(topic, value, partition=number % 4)
        producer.flush(30)
        while not (done := cut(region)).rows:
            pass
        return done

    monkeypatch.setattr(Region, "cut", cut_with_rows)
    names: dict[str, object] = {}
    for number, block in enumerate(blocks("python")):
        # What Spark itself opens: its JVM began in another folder.
        text = block.replace('"var/', f'"{tmp_path}/var/').replace('"config": "', f'"config": "{tmp_path}/')
        exec(compile(text, f"docs/spark.md, sample {number + 1}", "exec"), names)
    assert "again" in names  # up to the last one


@pytest.mark.parametrize("block", [b for b in blocks("yaml") if not b.startswith("# refused")])
def test_the_configurations_are_good(block: str, tmp_path: Path) -> None:
    assert RegionConfig.of(base=tmp_path, **yaml.safe_load(block)).region == "orders"


@pytest.mark.parametrize(("refusal", "block"), refused())
def test_K5_what_other_machines_cannot_reach_is_refused(refusal: str, block: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=refusal):
        RegionConfig.of(base=tmp_path, **{**REST, "storage": "s3://b/p", **yaml.safe_load(block)})


@pytest.mark.parametrize("host", re.findall(r"\| `(\{spark: .*?\}|processes)`", PAGE))
def test_the_line_of_the_host_is_all_that_changes(host: str, tmp_path: Path) -> None:
    keys = yaml.safe_load(next(b for b in blocks("yaml") if "postgresql" in b))
    config = RegionConfig.of(base=tmp_path, **{**keys, "host": yaml.safe_load(host)})
    assert (config.host.spark is None) == (host == "processes")


def test_links_and_anchors_lead_somewhere() -> None:
    anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"(?m)^#+ (.*)$", PAGE)}
    assert {t.removeprefix("#") for t in re.findall(r"\]\((#[^)]+)\)", PAGE)} <= anchors
