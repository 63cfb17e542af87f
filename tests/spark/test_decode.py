"""Typed records, and dead letters that can be replayed (fault 46)."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from crkafka_core.decode.decoders import Avro, Json, Protobuf
from crkafka_core.model.errors import ConfigError
from crkafka_core.spark.decode import decode, original_records
from crkafka_core.spark.schema import RECORDS

pytestmark = pytest.mark.spark

ORDER = StructType(
    [StructField("id", LongType()), StructField("who", StringType()), StructField("price", DoubleType())]
)
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": "string"}, {"name": "price", "type": "double"}],
}


def records(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    rows = [(None, value, "orders", 0, i, None, 0, None) for i, value in enumerate(values)]
    return spark.createDataFrame(rows, RECORDS)


def split(
    spark: SparkSession, values: list[bytes | None], decoder: Any
) -> tuple[dict[int, tuple[Any, ...]], dict[int, str]]:
    result = decode(records(spark, values), decoder, ORDER)
    good = {r["offset"]: (r["id"], r["who"], r["price"]) for r in result.good.collect()}
    dead = result.dead.collect()
    assert all(bytes(r["value"] or b"") == (values[r["offset"]] or b"") for r in dead)
    return good, {r["offset"]: r["reason"] for r in dead}


def avro(order: dict[str, Any], schema: Any = AVRO) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), order)
    return out.getvalue()


def test_records_without_headers_and_with_none_stay_what_they_are(spark: SparkSession) -> None:
    """Null lists are not given to Python: Spark would go through all of them after each row (docs/clients.md C-P16)."""
    headers = [None, [], [("a", b"1"), ("a", None)], None]
    rows = [
        (None, b"{}" if i % 3 else b"?", "orders", 0, i, None, 0, row_headers) for i, row_headers in enumerate(headers)
    ]
    result = decode(spark.createDataFrame(rows, RECORDS), Json(), ORDER, keep=("offset", "headers"))
    assert result.good.columns == ["offset", "headers", "tombstone", "id", "who", "price"]
    assert result.dead.columns == [*RECORDS.fieldNames(), "reason"]
    headers_by_offset = {
        r["offset"]: r["headers"] and [(h["key"], h["value"] and bytes(h["value"])) for h in r["headers"]]
        for r in [*result.good.collect(), *result.dead.collect()]
    }
    assert headers_by_offset == dict(enumerate(headers))


def test_tombstones_keys_and_counts(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [
            (b'{"k": 1}', b'{"id": 1}', "orders", 0, 0, None, 0, None),
            (b'{"k": 2}', None, "orders", 0, 1, None, 0, None),
            (None, b"{}", "orders", 0, 2, None, 0, None),
            (b"x", b"{}", "orders", 0, 3, None, 0, None),
        ],
        RECORDS,
    )
    key = StructType([StructField("k", LongType())])
    result = decode(rows, Json(), ORDER, key=(Json(), key), keep=("offset",))
    assert result.good.columns == ["offset", "key", "tombstone", "id", "who", "price"]
    assert [(r.offset, r.key and r.key.k, r.tombstone, r.id) for r in result.good.collect()] == [
        (0, 1, False, 1),
        (1, 2, True, None),
        (2, None, False, None),
    ]
    assert result.counts.get == {"rows": 4, "good": 3, "bad": 1, "tombstones": 1}
    assert [(r.offset, r.reason[:4]) for r in result.dead.collect()] == [(3, "key:")]
    assert [r.offset for r in decode(rows, Json(), ORDER, tombstones=False, keyed=True).dead.collect()] == [1, 2]


def test_bad_records_are_skipped_and_counted_or_stop_the_write(spark: SparkSession) -> None:
    rows = records(spark, [b'{"id": 1}', b"x", b'{"id": 3}'])
    skipped = decode(rows, Json(), ORDER, on_bad_record="skip")
    assert [r.id for r in skipped.good.collect()] == [1, 3]
    assert skipped.counts.get["bad"] == 1 and skipped.dead.count() == 0
    stopped = decode(rows, Json(), ORDER, on_bad_record="stop")
    with pytest.raises(Exception, match=r"Record orders\[0\]@1 cannot be decoded"):
        stopped.good.collect()
    with pytest.raises(ConfigError, match="dead_letter, stop or skip"):
        decode(rows, Json(), ORDER, on_bad_record="ignore")  # type: ignore[arg-type]


def test_protobuf_by_its_descriptors(spark: SparkSession) -> None:
    """They reach the tasks; the wire format of a registry, and Avro's: tests/decode."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate([("id", 3), ("who", 9), ("price", 1)], 1):
        message.field.add(name=name, number=number, type=kind, label=1)  # type: ignore[arg-type]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    body = order(id=1, who="a", price=2.5).SerializeToString()
    descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    good, dead = split(spark, [body, b"\xff\xff"], Protobuf(descriptors, "shop.Order"))
    assert (good, set(dead)) == ({0: (1, "a", 2.5)}, {1})


def test_dead_letters_are_replayed_with_a_better_decoder(spark: SparkSession) -> None:
    right = avro({"id": 1, "who": "a", "price": 2.5})
    first = decode(records(spark, [right, b'{"id": 2}']), Json(), ORDER)
    again = decode(original_records(first.dead), Avro(schema=json.dumps(AVRO)), ORDER)
    assert [(r["offset"], r["id"]) for r in again.good.collect()] == [(0, 1)]
    assert again.dead.count() == 0
