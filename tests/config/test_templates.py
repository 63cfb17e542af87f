"""`each: topic` makes tables of topics: their names, which topics they are for, and what is refused (SPEC K6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crkafka_core.config import RegionConfig, template
from crkafka_core.config.changes import changes
from crkafka_core.config.problem import BadConfiguration
from crkafka_core.config.shapes import topic_of

EACH = {"each": "topic", "name": "{topic}", "path": "lake/{topic}"}


def region(folder: Path, *tables: dict[str, Any], **keys: Any) -> RegionConfig:
    given = {"pattern": "^.*"} if "topics" not in keys else {}
    return RegionConfig.of(
        base=folder,
        region="shop",
        control_plane="sqlite:///var/crkafka.db",
        storage="var/segments",
        kafka={"bootstrap.servers": "localhost:1", "group.id": "shop"},
        tables=list(tables),
        **given,
        **keys,
    )


def names(config: RegionConfig, topic: str) -> list[str]:
    return [table.name for of in config.of_topic(topic) for table in of.own]


def test_K6_a_template_gives_each_topic_a_table_that_its_row_finds_again(tmp_path: Path) -> None:
    config = region(tmp_path, {"name": "all", "path": "all"}, {**EACH, "partition_by": ["partition"]})
    assert [table.name for table in config.tables] == ["all"]
    for topic, name in {"shop.orders-v1": "shop_orders_v1", "2024": "_2024", "orders": "orders"}.items():
        ((table,),) = (of.own for of in config.of_topic(topic))
        assert (table.name, table.path, table.topics) == (name, str(tmp_path / "lake" / topic), (topic,))
        assert topic_of(table.shape or "") == topic
        assert config.table(name, table.shape or "") == table
        assert config.without_spark(table)


def test_K6_a_template_survives_the_control_plane_and_its_changes_are_told(tmp_path: Path) -> None:
    config, other = region(tmp_path, EACH), region(tmp_path, {**EACH, "except": "^tmp"})
    read = RegionConfig.from_json(config.to_json())
    assert read == config and read.templates == config.templates
    assert [str(change) for change in changes(config, other)] != []
    assert RegionConfig.from_json(other.to_json()).of_topic("tmp.a") == []


@pytest.mark.parametrize(
    ("keys", "with_table"),
    [
        ({"topics": r"^shop\."}, {"shop.a", "shop.b"}),
        ({"topics": ["shop.a", "x"]}, {"shop.a", "x"}),
        ({"except": ["shop.b", "^x"]}, {"shop.a"}),
        ({"topics": r"^shop\.", "except": r"^.*b$"}, {"shop.a"}),
    ],
)
def test_K6_topics_and_except_narrow_a_template(tmp_path: Path, keys: dict[str, Any], with_table: set[str]) -> None:
    config = region(tmp_path, {**EACH, **keys})
    assert {topic for topic in ("shop.a", "shop.b", "x") if config.of_topic(topic)} == with_table


def test_K6_a_typed_template_gives_each_topic_its_subject_and_its_dead_letters(tmp_path: Path) -> None:
    typed = {**EACH, "name": "t_{topic}", "typed": {"avro": "registry"}, "format": "iceberg"}
    config = region(tmp_path, typed, registry={"url": "http://localhost:1"})
    ((good, dead),) = (of.own for of in config.of_topic("a.b"))
    assert (good.name, dead.name, dead.output) == ("t_a_b", "t_a_b_dead", "dead")
    assert good.typed is not None and good.typed.subject == "a.b-value"
    assert (good.path, dead.path) == (str(tmp_path / "lake/a.b"), str(tmp_path / "lake/t_a_b_dead"))
    assert good.shape == dead.shape and config.table("t_a_b", good.shape or "") == good


def test_K6_in_a_catalog_the_name_is_one_of_the_catalog(tmp_path: Path) -> None:
    conf = {"spark.sql.catalog.lake.type": "hadoop", "spark.sql.catalog.lake.warehouse": str(tmp_path / "warehouse")}
    each = {**EACH, "format": "iceberg", "path": "lake.bronze.{topic}"}
    config = region(tmp_path, each, host={"processes": True, "conf": conf})
    assert [table.path for of in config.of_topic("a.b-c") for table in of.own] == ["lake.bronze.a_b_c"]
    assert config.clashes(["Orders", "a", "b"]) == []
    (folded,) = config.clashes(["Orders", "orders"])  # Glue, for one, has names in small letters
    assert "the table of topic orders would be" in folded


@pytest.mark.parametrize(
    ("table", "keys", "text"),
    [
        ({"name": "one"}, {}, "write {topic} in both"),
        ({"path": "lake/one"}, {}, "write {topic} in both"),
        ({"each": None}, {}, "write each: topic"),
        ({"each": "partition"}, {}, "must be topic, or a value of the record"),
        ({"each": None, "name": "a", "topics": "^a"}, {}, "a pattern goes with each: topic"),
        ({"topics": "^a+?"}, {}, "which Kafka's client or broker reads otherwise"),
        ({"shape": "a:b"}, {}, "declared one by one"),
        ({"kept_fresh": False}, {}, "declared one by one"),
        ({"path": "var/{topic}"}, {}, "where the storage is too"),
        ({"typed": {"avro": "registry"}}, {}, "names none"),
        ({"path": "lake.bronze.{topic}"}, {}, "would be written by Spark"),
        ({}, {"topics": ["a.b", "a_b"]}, "another table's name or place; write it under `except`"),
        ({"topics": ["c"]}, {"topics": ["a.b"]}, "which the region does not read"),
    ],
)
def test_K6_a_template_that_cannot_work_is_refused(
    tmp_path: Path, table: dict[str, Any], keys: dict[str, Any], text: str
) -> None:
    with pytest.raises(BadConfiguration) as refused:
        region(tmp_path, {**EACH, **table}, **keys)
    assert text in str(refused.value)


def test_K6_clashes_of_known_topics_are_told(tmp_path: Path) -> None:
    config = region(tmp_path, EACH, {"name": "orders", "path": "elsewhere"})
    assert config.clashes(["a", "b"]) == []
    told = config.clashes(["a.b", "a_b", "orders", "x" * 200])
    assert [text.partition(";")[0].partition(" would")[0] for text in told] == [
        "the table of topic a_b",
        "the table of topic orders",
        f"no name of a table has room for topic {'x' * 200}",
    ]


@pytest.mark.parametrize(
    "other", [{"each": "topic", "name": "sub_{topic}", "path": "lake/{topic}/sub"}, {"name": "whole", "path": "lake"}]
)
def test_K6_tables_of_topics_do_not_lie_in_others(tmp_path: Path, other: dict[str, Any]) -> None:
    with pytest.raises(BadConfiguration, match="lie in one another"):
        region(tmp_path, EACH, other)


def test_K6_a_topic_whose_table_would_lie_in_that_of_another_is_told(tmp_path: Path) -> None:
    config = region(tmp_path, EACH, {**EACH, "name": "raw_{topic}", "path": "lake/raw/{topic}"})
    assert {text.partition(" would")[0] for text in config.clashes(["orders", "raw"])} == {"the table of topic raw"}


def test_K6_a_table_of_some_topics_has_records_as_they_are_and_is_written_without_spark(tmp_path: Path) -> None:
    config = region(tmp_path, {"name": "some", "path": "some", "topics": ["a"]})
    assert config.without_spark(config.tables[0])
    assert RegionConfig.from_json(config.to_json()) == config


BY_VALUE = {"each": {"header": "ce-type"}, "name": "{value}", "path": "lake/{value}"}


def test_K6_a_template_by_value_gives_a_value_its_table_and_the_others_their_dead_letters(tmp_path: Path) -> None:
    config = region(tmp_path, {**BY_VALUE, "partition_by": ["partition"]}, {"name": "all", "path": "all"})
    (dead, *_), (given,) = config.tables[::-1], config.templates
    assert (dead.name, dead.path, dead.topics) == ("dead_letters", str(tmp_path / "lake" / "dead_letters"), None)
    assert config.template_of(dead.shape or "") == given and config.template_of("crkafka.values:x") is None
    table = template.of_value(given, "shop/order-v1")
    assert (table.name, table.path) == ("shop_order_v1", str(tmp_path / "lake" / "shop_order_v1"))
    row = config.table(table.name, table.shape or "")
    assert row is not None and (row.name, row.partition_by) == (table.name, ("partition",))
    assert config.without_spark(table)
    read = RegionConfig.from_json(config.to_json())
    assert (read.tables, read.templates) == (config.tables, config.templates)


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"each": {"header": "a", "field": "b"}}, "must be topic, or a value of the record"),
        ({"each": {"headers": "a"}}, "must be topic, or a value of the record"),
        ({"each": {"field": ""}}, "must be topic, or a value of the record"),
        ({"each": {"field": 7}}, "must be topic, or a value of the record"),
        ({"name": "{topic}"}, "write {value} in both, and no {topic}"),
        ({"path": "lake/one"}, "write {value} in both, and no {topic}"),
        ({"topics": "^a"}, "name topics one by one"),
        ({"except": ["a"]}, "leave except out"),
        ({"typed": {"avro": "registry"}}, "are for other tables"),
        ({"most_tables": 0}, "at least 1"),
        ({"each": "topic", "name": "{topic}", "path": "{topic}", "most_tables": 9}, "is for each: {header: NAME}"),
        ({"each": None, "name": "a", "path": "a", "shape": "crkafka.values:b"}, "a shape of crkafka's own"),
        ({"path": "var/{value}"}, "where the storage is too"),
        ({"dead_letters": "all"}, "two tables are called 'all'"),
    ],
)
def test_K6_a_template_by_value_that_cannot_work_is_refused(tmp_path: Path, table: dict[str, Any], text: str) -> None:
    with pytest.raises(BadConfiguration) as refused:
        region(tmp_path, {"name": "all", "path": "all"}, {**BY_VALUE, **table})
    assert text in str(refused.value)
