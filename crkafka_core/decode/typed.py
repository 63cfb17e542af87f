"""Makes the rows of typed tables: columns by a schema, Kafka's own beside them, bad records apart with a reason (SPEC K6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.config import json_columns
from crkafka_core.config.json_columns import PREFIX
from crkafka_core.config.shapes import DEAD, GOOD
from crkafka_core.config.typed import OnBadRecord, TypedConfig
from crkafka_core.decode.batch import REASON, VALUE, Columns, decode_batch, refuse_record
from crkafka_core.decode.decoders import Decoder, Json
from crkafka_core.decode.fitting import nullable
from crkafka_core.decode.registry import Registry, Schema
from crkafka_core.decode.registry_columns import avro, json_schema, protobuf
from crkafka_core.model.errors import ConfigError
from crkafka_core.segments.batch import SCHEMA

KAFKA = ("key", "topic", "partition", "offset", "timestamp", "headers")
TOMBSTONE = "tombstone"
_PLAIN = {"long": pa.int64(), "double": pa.float64(), "boolean": pa.bool_(), "string": pa.string()}
_PLAIN |= {"binary": pa.binary(), "date": pa.date32()}
_PLAIN |= {"timestamp": pa.timestamp("us", tz="UTC"), "timestamp_ntz": pa.timestamp("us")}
"""Spark's name of a type → Arrow's."""


@dataclass(frozen=True)
class Typing:
    """Converts records to rows of the typed table and of its dead letters, by one version of the schema."""

    decoder: Decoder
    kind: pa.StructType
    """The decoded columns; required ones are not nullable."""
    on_bad_record: OnBadRecord
    keyed: bool
    """Whether the table has one row for each of Kafka's keys; a record without a key is bad then."""

    def schemas(self) -> Mapping[str, pa.Schema]:
        """Columns of the typed table and of its dead letters. Skipped records are dead letters here too, to be counted."""
        kept = [pa.field(PREFIX + name, SCHEMA.field(name).type) for name in KAFKA]
        typed = pa.schema([*kept, pa.field(PREFIX + TOMBSTONE, pa.bool_()), *nullable(self.kind)])
        return {GOOD: typed, DEAD: SCHEMA.append(pa.field(REASON, pa.string()))}

    def open(self) -> Callable[[pa.RecordBatch], Mapping[str, pa.RecordBatch]]:
        """The conversion of records, for one process."""
        values, stop = Columns("value", self.decoder, self.kind), self.on_bad_record == "stop"
        schemas = self.schemas()

        def run(records: pa.RecordBatch) -> Mapping[str, pa.RecordBatch]:
            decoded = decode_batch(records, values, None, tombstones=True, stop=stop, keyed=self.keyed)
            return {name: _batch(take(decoded), schemas[name]) for name, take in ((GOOD, good), (DEAD, bad))}

        return run

    def set_aside(self, records: pa.RecordBatch, reason: str) -> Mapping[str, pa.RecordBatch]:
        """Dead letters of records that are bad for a reason beyond decoding."""
        if self.on_bad_record == "stop":
            raise refuse_record(records, reason)
        reasons = pa.array([reason] * records.num_rows, pa.string())
        return {DEAD: records.append_column(pa.field(REASON, pa.string()), reasons)}


def _batch(columns: Mapping[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def good(decoded: pa.RecordBatch) -> Mapping[str, pa.Array]:
    """The decoded rows of a batch by column; other columns of the batch, such as the checkpoint's number, are kept."""
    reasons = decoded.column(REASON)
    rows = decoded if reasons.null_count == len(reasons) else decoded.filter(pc.is_null(reasons))
    columns = {name: rows.column(name) for name in rows.schema.names if name not in (*SCHEMA.names, VALUE, REASON)}
    columns |= {PREFIX + name: rows.column(name) for name in KAFKA}
    columns[PREFIX + TOMBSTONE] = pc.is_null(rows.column("value"))
    values = rows.column(VALUE)
    return columns | {values.type.field(i).name: column for i, column in enumerate(values.flatten())}


def bad(decoded: pa.RecordBatch) -> Mapping[str, pa.Array]:
    """The undecodable records of a batch, with their reasons."""
    rows = decoded.filter(pc.is_valid(decoded.column(REASON)))
    return {name: rows.column(name) for name in rows.schema.names if name != VALUE}


def of_file(typed: TypedConfig, name: str) -> tuple[Decoder, pa.StructType]:
    """Decoder and columns by a file with a JSON Schema."""
    try:
        return Json(), of_columns(json_columns.load(str(typed.json_file)))
    except json_columns.NoColumns as error:
        raise ConfigError(
            f"Table {name} is typed by a schema that cannot be used: {error}.",
            hint="Nothing was written; correct the file.",
        ) from None


def of_schema(asked: Registry, typed: TypedConfig, schema: Schema) -> tuple[Decoder, pa.StructType]:
    """Decoder and columns by a schema of a registry."""
    columns_of = json_schema if typed.json_file else avro if typed.avro else protobuf
    decoder, columns = columns_of(asked, schema)
    return decoder, of_columns(columns)


def of_columns(kind: Any) -> pa.DataType:
    """The Arrow type of a column or a struct of columns in the JSON form of Spark's types, with the same nullability."""
    if isinstance(kind, str):
        if kind in _PLAIN:
            return _PLAIN[kind]
        precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    if kind["type"] == "struct":
        return pa.struct([pa.field(f["name"], of_columns(f["type"]), f["nullable"]) for f in kind["fields"]])
    if kind["type"] == "array":
        return pa.list_(pa.field("element", of_columns(kind["elementType"]), kind["containsNull"]))
    item = pa.field("value", of_columns(kind["valueType"]), kind["valueContainsNull"])
    return pa.map_(of_columns(kind["keyType"]), item)
