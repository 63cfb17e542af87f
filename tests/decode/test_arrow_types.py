"""Declared columns have the Arrow types that Spark gives them, and the room of decoding imports no Spark."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa

from crkafka_core.config import json_columns as columns
from crkafka_core.decode import typed

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
