"""Typed tables in a configuration: one entry, its table of dead letters, and what is refused (SPEC K6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crkafka_core.config import BadConfiguration, RegionConfig, json_columns
from crkafka_core.config.sections import TableConfig

REST: dict[str, Any] = {
    "region": "orders",
    "control_plane": "sqlite:///c.db",
    "storage": "s",
    "kafka": {"bootstrap.servers": "b:1", "group.id": "g"},
    "topics": ["orders"],
}
ORDER = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "$defs": {"line": {"type": "object", "properties": {"cents": {"type": ["number", "null"]}}}},
}


def made(folder: Path, table: dict[str, Any], **keys: Any) -> RegionConfig:
    (folder / "order.json").write_text(json.dumps(ORDER))
    return RegionConfig.of(
        base=folder, **{**REST, "tables": [{"name": "t", "format": "delta", "path": "lake/t", **table}], **keys}
    )


def test_K6_one_entry_declares_the_typed_table_and_its_dead_letters(tmp_path: Path) -> None:
    config = made(tmp_path, {"typed": {"json": "order.json"}})
    typed, dead = config.tables
    assert (typed.name, typed.shape, typed.output) == ("t", "crkafka.typed:t", None)
    assert typed.typed is not None and typed.typed.json_file == str(tmp_path / "order.json")
    assert (dead.name, dead.format, dead.path) == ("t_dead", "delta", f"{tmp_path}/lake/t_dead")
    assert (dead.shape, dead.output) == ("crkafka.typed:t", "dead")
    assert RegionConfig.from_json(config.to_json()) == config
    made(tmp_path, {}, registry={"url": "http://r", "user": "${env:U}:${env:P}"})
    (tmp_path / "order.json").unlink()  # where members run it need not be
    assert RegionConfig.from_json(config.to_json()) == config


def test_K6_the_table_of_dead_letters_has_another_name_or_is_none(tmp_path: Path) -> None:
    named = {"typed": {"json": "order.json"}, "dead_letters": "failed", "format": "iceberg", "path": "lake.shop.t"}
    assert [(t.name, t.path) for t in made(tmp_path, named).tables][1][0] == "failed"
    for policy in ("stop", "skip"):
        assert len(made(tmp_path, {"typed": {"json": "order.json"}, "on_bad_record": policy}).tables) == 1


def test_K6_the_subject_is_that_of_the_topic(tmp_path: Path) -> None:
    def subject(typed: dict[str, Any], **keys: Any) -> str | None:
        table = {"typed": typed, **({"topics": keys.pop("only")} if "only" in keys else {})}
        found = made(tmp_path, table, registry={"url": "http://registry"}, **keys).tables[0].typed
        return None if found is None else found.subject

    assert subject({"avro": "registry"}) == "orders-value"
    assert subject({"protobuf": "registry", "subject": "shop.Order", "version": 3}) == "shop.Order"
    assert subject({"avro": "registry"}, topics=["orders", "refunds"], only=["refunds"]) == "refunds-value"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"typed": {"json": "none.json"}}, r"typed by a schema that cannot be used: there is no file .*none\.json"),
        ({"typed": {"json": "text.txt"}}, r"text\.txt is not JSON"),
        ({"typed": {"json": "list.json"}}, r"list\.json: it is no JSON Schema of an object: it has no `properties`"),
        (
            {"typed": {"avro": "registry"}},
            r"typed by a registry, and the region names none; write registry: \{url: https://…\}",
        ),
        ({"typed": {"jsn": "order.json"}}, r"typed\.jsn: unknown key\. Did you mean \"json\"\?"),
        ({"typed": {"json": "order.json", "avro": "registry"}}, "names one of"),
        ({"typed": {"json": "order.json", "version": 2}}, "subject and version are of a schema in a registry"),
        ({"typed": {"avro": "order.avsc"}}, "must be one of registry"),
        ({"typed": "order.json"}, r"write \{json: schema\.json\}"),
        ({"typed": {"json": "order.json"}, "on_bad_record": "drop"}, "must be one of dead_letter, stop, skip"),
        ({"typed": {"json": "order.json"}, "shape": "shop.shapes:typed"}, "is typed and names a shape"),
        (
            {"typed": {"json": "order.json"}, "on_bad_record": "skip", "dead_letters": "d"},
            "on_bad_record: skip keeps none",
        ),
        ({"on_bad_record": "skip"}, "has on_bad_record, which is for typed tables"),
        ({"shape": "crkafka.typed:other"}, "is part of the typed table other, which is not declared"),
        (
            {"typed": {"json": "order.json"}, "topics": ["refunds"]},
            "takes the topic refunds, which the region does not read",
        ),
    ],
)
def test_K6_what_cannot_be_meant_is_refused_in_one_sentence(tmp_path: Path, table: dict[str, Any], said: str) -> None:
    (tmp_path / "text.txt").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(BadConfiguration, match=said):
        made(tmp_path, table)


def test_K6_of_several_topics_the_subject_has_to_be_said(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"write topics: \[ONE\], or subject"):
        made(tmp_path, {"typed": {"avro": "registry"}}, registry={"url": "http://r"}, topics=["a", "b"])


@pytest.mark.parametrize(
    ("registry", "said"),
    [
        ({}, "url: is missing"),
        ({"url": "http://r", "user": "me:secret"}, "user holds a password"),
        ({"url": "http://me:secret@r"}, "secret written in clear"),
    ],
)
def test_K6_a_registry_without_url_or_with_a_secret_is_refused(tmp_path: Path, registry: Any, said: str) -> None:
    with pytest.raises(BadConfiguration, match=said) as refused:
        made(tmp_path, {"typed": {"avro": "registry"}}, registry=registry)
    assert "secret@" not in str(refused.value) and "me:secret" not in str(refused.value)


def test_K6_columns_are_as_wide_as_their_kind_goes() -> None:
    found = {f["name"]: (f["type"], f["nullable"]) for f in json_columns.columns(ORDER)["fields"]}
    assert found["id"] == ("long", False) and found["at"] == ("timestamp", True) and found["note"] == ("string", True)
    assert found["tags"][0]["valueType"] == "string"
    assert found["lines"][0]["elementType"]["fields"][0]["type"] == "double"


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"x": {}}, "`x` has no type that a column can have"),
        ({"x": {"type": ["string", "integer"]}}, "`x` has the types string, integer"),
        ({"x": {"type": "object"}}, "`x` is an object without a schema"),
        ({"x": {"$ref": "#"}}, "only references inside of the file"),
        ({"x": {"$ref": "#/$defs/x"}}, r"refers to #/\$defs/x, which is not there"),
        ({"x": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}, "is one of several types"),
        ({"a": {"type": "string"}, "A": {"type": "string"}}, "which Spark takes for one"),
        ({"a b": {"type": "string"}}, "is not a name for a column"),
        ({"kafka_offset": {"type": "integer"}}, "called as columns of ours are"),
        ({"x": 5}, "`x` has no schema"),
    ],
)
def test_K6_a_schema_of_which_no_columns_can_be_made_says_where(field: dict[str, Any], said: str) -> None:
    with pytest.raises(json_columns.NoColumns, match=said):
        json_columns.columns({"type": "object", "properties": field})


def test_K6_a_schema_that_holds_itself_is_refused() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}}
    with pytest.raises(json_columns.NoColumns, match="holds itself"):
        json_columns.columns({"properties": {"root": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": tree}})


@pytest.mark.parametrize("levels", [61, 170, 100_000])
@pytest.mark.parametrize("kind", ["object", "array", "map"])
def test_K6_a_schema_that_is_nested_too_deep_is_refused_and_not_by_a_traceback(
    tmp_path: Path, levels: int, kind: str
) -> None:
    """It was taken, and the table's first write ended in a RecursionError, or in the words of Arrow."""
    before, after = {
        "object": ('{"type": "object", "properties": {"x": ', "}}"),
        "array": ('{"type": "array", "items": ', "}"),
        "map": ('{"type": "object", "additionalProperties": ', "}"),
    }[kind]
    inside = before * (levels - 1) + '{"type": "string"}' + after * (levels - 1)
    (tmp_path / "deep.json").write_text('{"type": "object", "properties": {"x": ' + inside + "}}")
    with pytest.raises(BadConfiguration, match=r"deep\.json: its columns are nested deeper than 60 levels"):
        made(tmp_path, {"typed": {"json": "deep.json"}})


def test_K6_a_typed_table_is_kept_by_kafkas_key_and_its_dead_letters_are_not(tmp_path: Path) -> None:
    typed, dead = made(tmp_path, {"typed": {"json": "order.json"}, "mode": "upsert"}).tables
    assert [(t.mode, t.keys) for t in (typed, dead)] == [("upsert", ("kafka_key",)), ("append", None)]
    typed, dead = made(tmp_path, {"typed": {"json": "order.json"}, "partition_by": ["kafka_topic"]}).tables
    assert (typed.partition_by, dead.partition_by) == (("kafka_topic",), None)
    typed, dead = made(tmp_path, {"typed": {"json": "order.json"}, "path": "main.bronze.t"}).tables
    assert (typed.path, dead.path) == ("main.bronze.t", "main.bronze.t_dead")
    shaped = {
        "name": "s",
        "format": "delta",
        "path": "s",
        "shape": "a:b",
        "mode": "upsert",
        "keys": ["id"],
        "output": "good",
    }
    assert TableConfig(**shaped).output is None  # written after the others of its shape
    with pytest.raises(BadConfiguration, match="only Kafka's own key tells what it deletes"):
        made(tmp_path, {"typed": {"json": "order.json"}, "mode": "upsert", "keys": ["id"]})
