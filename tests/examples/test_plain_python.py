"""examples/plain_python brings in what came since the run before, once; examples/README.md has each example and its tests."""

from __future__ import annotations

import re
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


ROOT = Path(__file__).resolve().parents[2]
LIST = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
SOAK = re.compile(r"^(@|pytestmark = )pytest\.mark\.soak", re.MULTILINE)
ROWS = {name: line for line in LIST.splitlines() for name in re.findall(r"^\| \[(\w+)\]", line)}


def test_each_example_is_in_the_list() -> None:
    assert sorted(ROWS) == sorted(p.name for p in (ROOT / "examples").iterdir() if (p / "__init__.py").is_file())


def test_the_tests_that_it_names_are_there_and_run_where_it_says() -> None:
    for line in ROWS.values():
        (file,) = {ROOT / name for name in re.findall(r"`(tests/[\w/.]+)`", line)}
        assert file.is_file(), line
        assert ("`make soak`" in line) == bool(SOAK.search(file.read_text(encoding="utf-8"))), line
