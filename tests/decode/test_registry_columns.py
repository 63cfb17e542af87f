"""Columns and decoders by a schema registry: of Avro, Protobuf and JSON; what no columns can be made of is refused in time (SPEC K6)."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2 as pb

from crkafka_core.config import json_columns
from crkafka_core.config import json_columns as columns
from crkafka_core.config.typed import TypedConfig
from crkafka_core.decode import registry_columns, typed
from crkafka_core.decode.batch import Columns
from crkafka_core.decode.decoders import Avro, Undecodable
from crkafka_core.decode.registry import Registry, RegistryAway
from crkafka_core.model.errors import ConfigError
from tests.decode.in_bulk import batch_of, same_both_ways
from tests.rigs.schema_registry import FakeRegistry


def shop(*messages: str, **fields: int) -> pb.FileDescriptorProto:
    """A file with these messages, all with the same fields; each name with the type of its number."""
    file = pb.FileDescriptorProto(package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"])
    for name in messages:
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            type_of_field = ".google.protobuf.Timestamp" if kind == 11 else None
            message.field.add(name=field, number=number, type=kind, type_name=type_of_field, label=1)  # type: ignore[arg-type]
    return file


def says(registry: FakeRegistry, number: int, file: pb.FileDescriptorProto, subject: str = "") -> None:
    """The registry has the file under this id, and as the latest of a subject."""
    text = base64.b64encode(file.SerializeToString()).decode()
    answer = [(200, {"schema": text, "schemaType": "PROTOBUF"})]
    registry.answers[f"/schemas/ids/{number}?format=serialized"] = answer
    if subject:
        registry.answers[f"/subjects/{subject}/versions/latest?format=serialized"] = answer


def test_K6_protobuf_of_a_registry_gives_columns_and_refuses_another_message(registry: FakeRegistry) -> None:
    """By the schema of its id: there the message may stand elsewhere, and another one where it stood."""
    says(registry, 1, shop("Order", "Other", id=5, at=11, size=4), "orders-value")
    says(registry, 2, shop("Other", "Order", id=5, at=11, size=4))
    registry.answers["/schemas/ids/3?format=serialized"] = [(200, {"schema": "{}", "schemaType": "JSON"})]
    registry.answers["/schemas/ids/4?format=serialized"] = [(404, {"error_code": 40403})]
    asked = Registry(registry.url)
    decoder, decoded_columns = registry_columns.protobuf(
        asked, asked.version("orders-value", "latest", serialized=True)
    )
    assert [(f["name"], f["type"]) for f in decoded_columns["fields"]] == [
        ("id", "long"),
        ("at", "timestamp"),
        ("size", "decimal(20,0)"),
    ]
    body, kind = b"\x08\x07\x12\x02\x08\x05", typed.of_columns(decoded_columns)

    def value(number: int, indexes: bytes) -> bytes:
        return b"\0\0\0\0" + bytes([number]) + indexes + body

    values = [value(1, b"\0"), value(1, b"\x02\0"), value(2, b"\x02\x02"), value(1, b"\x02\x02"), value(2, b"\0")]
    values += [value(3, b"\0"), value(4, b"\0"), value(1, b"\x02\x08"), b"\0\0\0\0", value(1, b"\0")[:-1]]
    assert same_both_ways(decoder, kind, [*values]) == 3
    rows, reasons = Columns("value", decoder, kind).decode(batch_of([*values]))
    assert [row and (row["id"], row["at"].timestamp(), row["size"]) for row in rows.to_pylist()] == [
        *[(7, 5.0, 0)] * 3,
        *[None] * 7,
    ]
    assert reasons[3:8] == [
        "a message shop.Other by schema 1, not shop.Order",
        "a message shop.Other by schema 2, not shop.Order",
        "the schema of its id is JSON, not Protobuf",
        "the schema registry knows no schema 4",
        "a message [4] by schema 1, not shop.Order",
    ]
    del registry.answers["/schemas/ids/1?format=serialized"]
    registry.answers["/schemas/ids/1?format=serialized"] = [(503, {})]
    with pytest.raises(RegistryAway):
        Columns("value", type(decoder)(**{**vars(decoder), "patience": 0.1}), kind).decode(batch_of([*values]))


def test_K6_json_schema_of_a_registry_gives_columns_and_values_have_its_frame(registry: FakeRegistry) -> None:
    schema = {
        "type": "object",
        "required": ["id"],
        "properties": {"id": {"type": "integer"}, "who": {"type": "string"}},
    }
    answer = {"schema": json.dumps(schema), "schemaType": "JSON", "version": 3}
    registry.answers["/subjects/orders-value/versions/latest"] = [(200, answer)]
    config, asked = TypedConfig.model_validate({"json": "registry", "subject": "orders-value"}), Registry(registry.url)
    decoder, kind = typed.of_schema(asked, config, asked.of_table(config))
    assert kind == pa.struct([pa.field("id", pa.int64(), False), pa.field("who", pa.string())])
    framed = [b"\0\0\0\0\x07" + json.dumps({"id": i, "who": "ü"}).encode() for i in range(100)]
    assert same_both_ways(decoder, kind, [*framed]) == 100
    others = [b'{"id": 1}', b"\0\0\0\0\x07no", b"\1\0\0\0\x07{}", b"\0\0", b"\0\0\0\0\x07{}", None]
    same_both_ways(decoder, kind, [*framed, *others])
    reasons = Columns("value", decoder, kind).decode(batch_of([*others]))[1]
    assert [reason and reason[:12] for reason in reasons] == [
        "not in the s",
        "no JSON, fro",
        "not in the s",
        "not in the s",
        "column id: t",
        None,
    ]


def doubling(levels: int, record: str, last: str) -> str:
    """Avro: a record with two fields of another one, which has two fields of the next."""
    text = last
    for level in range(levels):
        inner = f"R{level - 1}" if level else last
        text = record % (level, text, inner)
    return text


def test_a_type_that_is_used_twice_in_one_that_is_used_twice_is_refused_in_time(registry: FakeRegistry) -> None:
    begun, asked = time.process_time(), Registry(registry.url)
    record = '{"type": "record", "name": "R%d", "fields": [{"name": "a", "type": %s}, {"name": "b", "type": "%s"}]}'
    avro = doubling(25, record, '"int"').replace('""int""', '"int"')
    registry.answers["/subjects/avro/versions/1"] = [(200, {"schema": avro})]
    with pytest.raises(ConfigError, match="more than 10,000 columns"):
        registry_columns.avro(asked, asked.version("avro", 1))
    of_json = {f"R{i}": {"properties": {n: {"$ref": f"#/$defs/R{i + 1}"} for n in "ab"}} for i in range(25)}
    of_json["R25"] = {"properties": {"n": {"type": "integer"}}}
    with pytest.raises(json_columns.NoColumns, match="more than 10,000 columns"):
        json_columns.columns({"$ref": "#/$defs/R0", "$defs": of_json})
    file = pb.FileDescriptorProto(name="r.proto", syntax="proto3")
    for i in range(25):
        fields = [
            pb.FieldDescriptorProto(name=n, number=k, label=1, type=11, type_name=f".R{i + 1}")
            for k, n in enumerate("ab", 1)
        ]
        file.message_type.append(pb.DescriptorProto(name=f"R{i}", field=fields))
    file.message_type.add(name="R25")
    says(registry, 9, file, "proto")
    with pytest.raises(ConfigError, match="more than 10,000 columns"):
        registry_columns.protobuf(asked, asked.version("proto", "latest", serialized=True))
    assert time.process_time() - begun < 2


@pytest.mark.parametrize("inside", ['"null"', '{"type": "array", "items": "null"}'])
def test_a_writers_schema_that_grows_so_is_the_reason_of_its_records(registry: FakeRegistry, inside: str) -> None:
    """Of some 2 kB, a record of no byte had thirty million fields."""
    record = '{"type": "record", "name": "R%d", "fields": [{"name": "a", "type": %s}, {"name": "b", "type": "%s"}]}'
    text = doubling(25, record, inside).replace(f'"{inside}"', inside)
    registry.answers["/schemas/ids/1"] = [(200, {"schema": text})]
    begun = time.process_time()
    opened = Avro(registry=registry.url).open(pa.struct([("a", pa.int64())]))
    for _ in range(20):
        with pytest.raises(Undecodable, match="more than 10,000 fields"):
            opened(b"\0\0\0\0\1", "orders")
    assert time.process_time() - begun < 2


def test_a_schema_that_many_refer_to_is_asked_for_once(registry: FakeRegistry) -> None:
    for level in range(12):
        names = [f"S{level + 1}"] * 2 if level < 11 else []
        references = [{"name": name, "subject": name, "version": 1} for name in names]
        fields = [{"name": f"f{i}", "type": name} for i, name in enumerate(names)] or [{"name": "n", "type": "int"}]
        text = json.dumps({"type": "record", "name": f"S{level}", "fields": fields})
        registry.answers[f"/subjects/S{level}/versions/1"] = [(200, {"schema": text, "references": references})]
    asked = Registry(registry.url)
    registry_columns.avro(asked, asked.version("S0", 1))
    assert len(registry.asked) == 12


def test_K6_what_the_registry_has_not_got_is_said(registry: FakeRegistry) -> None:
    registry.answers["/subjects/none/versions/latest"] = [(404, {"error_code": 40401})]
    with pytest.raises(ConfigError, match="has no subject none, version latest"):
        Registry(registry.url).version("none", "latest")
    registry.answers["/subjects/text/versions/1?format=serialized"] = [
        (200, {"schema": "syntax = …", "schemaType": "PROTOBUF"})
    ]
    with pytest.raises(ConfigError, match="Protobuf as source text alone"):
        registry_columns.protobuf(Registry(registry.url), Registry(registry.url).version("text", 1, serialized=True))
    registry.answers["/subjects/json/versions/1"] = [(200, {"schema": "{}", "schemaType": "JSON"})]
    with pytest.raises(ConfigError, match="is JSON, not AVRO"):
        registry_columns.avro(Registry(registry.url), Registry(registry.url).version("json", 1))


def test_K6_avro_schemas_that_refer_to_others_are_made_whole(registry: FakeRegistry) -> None:
    money = {
        "type": "record",
        "name": "Money",
        "namespace": "bank",
        "fields": [{"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}],
    }
    order = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "paid", "type": "bank.Money"},
            {"name": "due", "type": ["null", "bank.Money"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
            {"name": "tags", "type": {"type": "map", "values": "string"}},
        ],
    }
    reference = {"name": "bank.Money", "subject": "money", "version": 1}
    registry.answers["/subjects/o/versions/1"] = [(200, {"schema": json.dumps(order), "references": [reference]})]
    registry.answers["/subjects/money/versions/1"] = [(200, {"schema": json.dumps(money)})]
    decoder, decoded_columns = registry_columns.avro(Registry(registry.url), Registry(registry.url).version("o", 1))
    assert fastavro.parse_schema(json.loads(decoder.reader or ""))["name"] == "shop.Order"
    kinds = {f["name"]: (f["type"], f["nullable"]) for f in decoded_columns["fields"]}
    assert kinds["paid"][0]["fields"][0]["type"] == "decimal(38,2)" and not kinds["paid"][1] and kinds["due"][1]
    assert (kinds["at"][0], kinds["kind"][0], kinds["tags"][0]["valueType"]) == ("timestamp", "string", "string")


@pytest.mark.parametrize(
    ("kind", "refusal"),
    [
        (["string", "int"], "union of several types"),
        ("shop.None", "type shop.None does not exist"),
        ("shop.Order", "holds itself"),
    ],
)
def test_K6_avro_of_which_no_columns_can_be_made_is_refused(registry: FakeRegistry, kind: Any, refusal: str) -> None:
    order = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "x", "type": kind}]}
    registry.answers["/subjects/o/versions/1"] = [(200, {"schema": json.dumps(order)})]
    with pytest.raises(ConfigError, match=refusal):
        registry_columns.avro(Registry(registry.url), Registry(registry.url).version("o", 1))


@pytest.mark.parametrize("levels", [61, 170, 5_000])
def test_K6_avro_and_protobuf_nested_too_deep_are_refused(registry: FakeRegistry, levels: int) -> None:
    """They ended in a RecursionError, or in the words of Arrow with the first write."""
    record = '{"type": "record", "name": "T%d", "fields": [{"name": "x", "type": '
    text = "".join(record % i for i in range(levels)) + '"int"' + "}]}" * levels
    registry.answers["/subjects/avro/versions/1"] = [(200, {"schema": text})]
    with pytest.raises(ConfigError, match="its columns are nested deeper than 60 levels"):
        registry_columns.avro(Registry(registry.url), Registry(registry.url).version("avro", 1))
    file = pb.FileDescriptorProto(name="deep.proto", syntax="proto3")
    for i in range(levels):
        type_of_field = {"type": 11, "type_name": f"T{i + 1}"} if i + 1 < levels else {"type": 5}
        field = pb.FieldDescriptorProto(name="x", number=1, label=1, **type_of_field)
        file.message_type.append(pb.DescriptorProto(name=f"T{i}", field=[field]))
    answer = {"schema": base64.b64encode(file.SerializeToString()).decode(), "schemaType": "PROTOBUF"}
    registry.answers["/subjects/proto/versions/1?format=serialized"] = [(200, answer)]
    with pytest.raises(ConfigError, match="its columns are nested deeper than 60 levels"):
        registry_columns.protobuf(Registry(registry.url), Registry(registry.url).version("proto", 1, serialized=True))


KINDS = ("long", "double", "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz", "decimal(38,2)")


def test_types_are_those_of_spark_there_and_back() -> None:
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
    from pyspark.sql.types import StructType

    inner = columns.struct({kind[:7] + str(i): (kind, i % 2 == 0) for i, kind in enumerate(KINDS)})
    fields = {"one": (inner, False), "list": (columns.array(inner), True), "map": (columns.mapping("long"), True)}
    whole = columns.struct(fields | {"deep": (columns.array(columns.mapping(columns.array("string"))), False)})
    arrow_fields = typed.of_columns(whole)
    spark = StructType.fromJson(whole)
    assert pa.schema(arrow_fields) == to_arrow_schema(spark)
    assert from_arrow_schema(pa.schema(arrow_fields), prefer_timestamp_ntz=True) == spark


def test_decoding_imports_neither_spark_nor_dagster() -> None:
    code = (
        "import sys, crkafka_core.decode.typed, crkafka_core.decode.batch; "
        "print([m for m in ('pyspark', 'dagster', 'pandas', 'confluent_kafka', 'sqlalchemy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
