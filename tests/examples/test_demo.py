"""examples/demo: its orders are what its schema reads, all but those that are spoiled, and the oracle finds their numbers."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from crkafka_core.config import RegionConfig
from crkafka_core.plane import events, permits
from crkafka_core.verify.ledger import SEQ_AT
from examples.demo import __main__ as demo
from examples.demo import project
from examples.demo.narrator import Narrator
from examples.demo.orders import SPOILED, Orders
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore


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


def test_it_counts_what_landed_by_thousands_and_names_one_checkpoint_as_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    landing = Landing(
        MemoryStore(),
        tmp_path,
        partitions=1,
        members=1,
        tables=[{"name": "bronze", "format": "delta", "path": "bronze"}],
    )
    narrator = Narrator()
    for rows in (1_500, 1):
        number = landing.land(rows)
        landing.region.plane.do(lambda tx, number=number: events.log(tx, "merged", "by 2 members", checkpoint=number))
        permit = landing.region.plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="h", token="t"))
        assert permit is not None
        landing.region.plane.do(
            lambda tx, permit=permit, rows=rows: permits.finish_commit(tx, permit, version="1", rows=rows)
        )
        narrator.turn(landing.region)  # type: ignore[arg-type]
    said = capsys.readouterr().out
    assert "bronze grew: 1,500 rows of checkpoint 1\n" in said and "bronze grew: 1 row of checkpoint 2\n" in said
    assert "1, by 2 members; 1,500 rows in all" in said and "2, by 2 members; 1,501 rows in all" in said


def test_further_interrupts_while_it_ends_are_no_traceback_and_dagster_is_ended() -> None:
    region: Any = Mock()
    dagster: Any = Mock()
    region.stop.side_effect = KeyboardInterrupt
    dagster.stop.side_effect = lambda: signal.raise_signal(signal.SIGINT)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    try:
        demo._close(region, dagster)
    finally:
        signal.signal(signal.SIGINT, before[0]), signal.signal(signal.SIGTERM, before[1])
    dagster.stop.assert_called_once_with()
