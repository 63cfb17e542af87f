"""A table's columns follow its schema where they can; where they cannot, an older version is read and an alarm names both (SPEC K6)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from crkafka_core.config.sections import TableConfig
from crkafka_core.config.typed import RegistryConfig
from crkafka_core.decode.typed import Typing
from crkafka_core.lake.columns import followed
from crkafka_core.lake.made import choose
from crkafka_core.model.errors import ConfigError
from tests.rigs.schema_registry import FakeRegistry

THERE = pa.schema(
    [("id", pa.int32()), ("who", pa.string()), ("to", pa.struct([("city", pa.string()), ("n", pa.float32())]))]
)


def test_columns_are_added_and_widened_and_none_goes() -> None:
    wanted = pa.schema(
        [
            pa.field("to", pa.struct([pa.field("zip", pa.string(), False), ("n", pa.float64())])),
            pa.field("vip", pa.bool_(), False),
            ("id", pa.int64()),
        ]
    )
    assert followed("t", THERE, wanted) == pa.schema(
        [
            ("id", pa.int64()),
            ("who", pa.string()),
            ("to", pa.struct([("city", pa.string()), ("n", pa.float64()), ("zip", pa.string())])),
            ("vip", pa.bool_()),
        ]
    )
    assert followed("t", followed("t", THERE, wanted), THERE) == followed("t", THERE, wanted), "what is wide stays wide"
    many = pa.schema([("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.decimal128(9, 2)))])
    wider = pa.schema([("l", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.decimal128(20, 2)))])
    assert followed("t", many, wider) == wider
    for narrow, wide in ((THERE, pa.schema([("id", pa.int64())])), (many, wider)):
        with pytest.raises(ConfigError, match="is int32 and would become int64"):
            followed("t", narrow, wide, widens=False)
    assert followed("t", wider, many, widens=False) == wider


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("who", pa.int64(), "column who is string and would become int64"),
        ("id", pa.float64(), "column id is int32 and would become double"),
        ("who", THERE.field("to").type, "column who is string and would become struct"),
        ("to", pa.struct([("city", pa.date32())]), "column to.city is string and would become date32"),
        ("Who", pa.string(), "column Who is who in the table"),
    ],
)
def test_a_column_that_would_change_its_kind_is_named(name: str, kind: pa.DataType, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        followed("t", THERE, pa.schema([(name, kind)]))


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    fake = FakeRegistry()
    yield fake
    fake.close()


def test_an_incompatible_version_is_not_followed_and_an_alarm_names_both(registry: FakeRegistry) -> None:
    def says(version: int, **fields: Any) -> None:
        named = [{"name": name, "type": ["null", kind], "default": None} for name, kind in fields.items()]
        schema = {"type": "record", "name": "Order", "fields": named}
        answer = [(200, {"schema": json.dumps(schema), "version": version})]
        registry.answers[f"/subjects/orders-value/versions/{version}"] = answer
        registry.answers["/subjects/orders-value/versions/latest"] = answer

    typed: dict[str, Any] = {"avro": "registry", "subject": "orders-value"}
    table = TableConfig.model_validate({"name": "typed", "format": "delta", "path": "/t", "typed": typed})
    where = RegistryConfig(url=registry.url)
    says(1, id="long")
    first, alarm = choose(table, where, None)
    assert (first.schemas()["good"].names[-1], alarm) == ("id", "")
    says(2, id="long", who="string")
    second, alarm = choose(table, where, first.schemas()["good"])
    assert (second.schemas()["good"].names[-1], alarm) == ("who", "")
    says(4, id="string", who="string")  # version 3 was deleted
    third, alarm = choose(table, where, second.schemas()["good"])
    assert isinstance(third, Typing)
    assert third.schemas() == second.schemas()
    assert [(f.name, f.type) for f in third.kind] == [("id", pa.int64()), ("who", pa.string())]
    assert alarm == (
        "Version 4 of orders-value does not fit table typed: Table typed cannot follow its schema: column id is int64 and "
        "would become string. Records are read by version 2; what it does not read is a dead letter."
    )
    fixed = table.model_copy(update={"typed": table.typed and table.typed.model_copy(update={"version": 4})})
    with pytest.raises(ConfigError, match="column id is int64 and would become string"):
        choose(fixed, where, second.schemas()["good"])
    says(5, id="long", who="string", vip="boolean")
    assert choose(table, where, third.schemas()["good"])[0].schemas()["good"].names[-1] == "vip"
