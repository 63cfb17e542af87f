"""examples/each_topic: a topic that comes while the region runs has its table with its first checkpoint."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml
from deltalake import DeltaTable

import examples.each_topic as source
from checkpoints_db import initialise
from crkafka_core.config import RegionConfig
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.sample import produce_orders
from crkafka_core.region import Region
from crkafka_core.region.caught_up import consume
from crkafka_core.region.feeder import feeding
from crkafka_core.testing.pytest_services import unique


@pytest.mark.kafka
@pytest.mark.timeout(150)
def test_a_new_topic_has_its_table_while_the_host_runs(kafka: KafkaCluster, tmp_path: Path) -> None:
    prefix = unique("shop").replace("-", "")
    text = (Path(source.__file__).parent / "region.yaml").read_text().replace("shop", prefix)
    keys = yaml.safe_load(text.replace("localhost:9092", kafka.bootstrap))
    config = RegionConfig.of(base=tmp_path, **keys)
    (tmp_path / "var").mkdir()
    initialise(config.control_plane)
    kafka.topics.create(f"{prefix}.orders", 2)
    produce_orders(kafka.bootstrap, f"{prefix}.orders", 300)
    with Region.open(config) as region:
        region.init()
        with region.hosted(), feeding(region):
            consume(region)
            for name in ("refunds", "internal.audit"):
                kafka.topics.create(f"{prefix}.{name}", 2)
                produce_orders(kafka.bootstrap, f"{prefix}.{name}", 200)
            end = time.monotonic() + 60
            while rows(tmp_path, f"{prefix}.refunds") < 200:
                assert time.monotonic() < end
                consume(region)
            assert rows(tmp_path, f"{prefix}.orders") == 300
    assert sorted(p.name for p in (tmp_path / "var" / "lake").iterdir()) == [f"{prefix}.orders", f"{prefix}.refunds"]


def rows(folder: Path, topic: str) -> int:
    table = folder / "var" / "lake" / topic
    return int(DeltaTable(table).to_pyarrow_table().num_rows) if any(table.glob("_delta_log/*.json")) else 0
