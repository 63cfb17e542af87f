"""examples/demo: its orders are what its schema reads, all but those that are spoiled, and the oracle finds their numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crkafka_core.config import RegionConfig
from crkafka_core.verify.ledger import SEQ_AT
from examples.demo import project
from examples.demo.orders import SPOILED, Orders


@pytest.fixture
def orders() -> Orders:
    return Orders("127.0.0.1:9", properties={"log_level": 0})


def test_its_region_has_a_typed_table_with_dead_letters_beside_the_raw_one(tmp_path: Path) -> None:
    config = RegionConfig.load(project.make(tmp_path, "127.0.0.1:9"))
    assert [t.name for t in config.tables] == ["orders_bronze", "orders_typed", "orders_typed_dead"]


def test_each_order_has_its_number_where_the_oracle_looks(orders: Orders) -> None:
    values = [orders.value(seq, "orders") for seq in range(3 * SPOILED)]
    assert [int(value[SEQ_AT]) for value in values] == list(range(len(values)))
    assert [json.loads(value)["code"] for value in values] == [f"{seq:012d}" for seq in range(len(values))]


def test_the_price_of_every_five_hundredth_is_a_word(orders: Orders) -> None:
    kinds = {name: part["type"] for name, part in json.loads(project.SCHEMA)["properties"].items()}
    python = {"string": str, "integer": int}
    refused = [
        seq
        for seq in range(3 * SPOILED)
        if any(
            type(value) is not python[kinds[name]] for name, value in json.loads(orders.value(seq, "orders")).items()
        )
    ]
    assert refused == [SPOILED - 1, 2 * SPOILED - 1, 3 * SPOILED - 1]
    assert all(orders.spoiled(seq) for seq in refused)
