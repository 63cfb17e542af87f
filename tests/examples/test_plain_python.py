"""examples/plain_python: each run brings in what came since the one before, once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.sample import orders, produce_orders
from examples.plain_python.copy_orders import cents, configuration, copy


@pytest.mark.kafka
@pytest.mark.timeout(150)
def test_each_run_brings_in_what_came_since(kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path) -> None:
    config = configuration(kafka.bootstrap, topic := new_topic(), tmp_path)
    following = produce_orders(kafka.bootstrap, topic, 300)
    assert copy(config).to_pyarrow_table().num_rows == 300
    produce_orders(kafka.bootstrap, topic, 200, first=following)
    table = copy(config)
    assert table.to_pyarrow_table(columns=["offset"]).num_rows == 500
    assert cents(table) == sum(order.cents for order in orders(500))
