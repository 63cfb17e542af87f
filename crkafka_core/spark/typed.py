"""The built-in shape of typed tables: columns by a schema, Kafka's own beside them, bad records as the declaration says (SPEC K6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from crkafka_core.config import RegionConfig, json_columns
from crkafka_core.config.json_columns import PREFIX
from crkafka_core.config.typed import RegistryConfig, TypedConfig
from crkafka_core.model.errors import ConfigError
from crkafka_core.spark import registry_columns
from crkafka_core.spark.decode import TOMBSTONE, Decoded, OnBadRecord, decode, decoding
from crkafka_core.spark.decoders import Decoder, Json
from crkafka_core.spark.names import CHECKPOINT, REASON, VALUE
from crkafka_core.spark.registry import Registry
from crkafka_core.spark.schema import with_checkpoint
from crkafka_core.spark.tasks import Then

KAFKA = ("key", "topic", "partition", "offset", "timestamp", "headers")


@dataclass(frozen=True)
class TypedShape:
    """Its schema is read anew for each pass, so that it may go on while the region runs."""

    name: str
    typed: TypedConfig
    registry: RegistryConfig | None
    on_bad_record: OnBadRecord
    keyed: bool
    """The table has one row for each of Kafka's keys, and none for a record without."""

    def now(self) -> Typing:
        """By the schema as it is now."""
        decoder, schema = source(self.typed, self.registry, self.name)
        return Typing(decoder, schema, self.on_bad_record, self.keyed)


@dataclass(frozen=True)
class Typing:
    """How the records of one pass become rows of the typed table, and of the one of dead letters."""

    decoder: Decoder
    schema: StructType
    on_bad_record: OnBadRecord
    keyed: bool

    def frames(self, read: Callable[[Then], DataFrame]) -> Decoded:
        """Decoded by the tasks that read them; written by Spark."""
        return decode(
            read,
            self.decoder,
            self.schema,
            keep=KAFKA,
            prefix=PREFIX,
            on_bad_record=self.on_bad_record,
            keyed=self.keyed,
        )

    def decoding(self) -> Then:
        """For tasks that write the rows themselves: see `good` and `bad`."""
        return decoding(self.decoder, self.schema, stop=self.on_bad_record == "stop", keyed=self.keyed)

    def good_columns(self) -> StructType:
        """Of the rows that `good` gives."""
        known = with_checkpoint()
        kept = [StructField(PREFIX + name, known[name].dataType) for name in KAFKA]
        mark = StructField(PREFIX + TOMBSTONE, BooleanType())
        return StructType([known[CHECKPOINT], *kept, mark, *self.schema.toNullable().fields])

    def bad_columns(self) -> StructType:
        """Of the rows that `bad` gives."""
        known = with_checkpoint()
        others = [each for each in known.fields if each.name != CHECKPOINT]
        return StructType([known[CHECKPOINT], *others, StructField(REASON, StringType())])


def good(decoded: pa.RecordBatch) -> Mapping[str, pa.Array]:
    """The rows of a batch that could be decoded, by the typed table's columns."""
    rows = decoded.filter(pc.is_null(decoded.column(REASON)))
    found = {PREFIX + name: rows.column(name) for name in KAFKA}
    found |= {CHECKPOINT: rows.column(CHECKPOINT), PREFIX + TOMBSTONE: pc.is_null(rows.column("value"))}
    values = rows.column(VALUE)
    return found | {values.type.field(i).name: column for i, column in enumerate(values.flatten())}


def bad(decoded: pa.RecordBatch) -> Mapping[str, pa.Array]:
    """Those that could not, as records, and why."""
    rows = decoded.filter(pc.is_valid(decoded.column(REASON)))
    return {name: rows.column(name) for name in rows.schema.names if name != VALUE}


def shape(config: RegionConfig, name: str) -> TypedShape:
    """The shape of the typed table of this name."""
    table = config.table(name)
    if table is None or table.typed is None:
        raise ConfigError(
            f"Table {name} of region {config.region} is declared as a typed one, and the configuration here does not say by which schema.",
            hint="Write it with the configuration that has its `typed:` (a host that runs is started anew), or `crkafka undeclare` it.",
        )
    return TypedShape(name, table.typed, config.registry, table.on_bad_record or "dead_letter", bool(table.keys))


def source(typed: TypedConfig, registry: RegistryConfig | None, name: str) -> tuple[Decoder, StructType]:
    """The decoder and its columns, by the schema as it is now."""
    if typed.json_file is not None:
        try:
            return Json(), StructType.fromJson(json_columns.load(typed.json_file))
        except json_columns.NoColumns as error:
            raise ConfigError(
                f"Table {name} is typed by a schema that cannot be used: {error}.",
                hint="Nothing was written; mend the file.",
            ) from None
    assert registry is not None  # checked where the configuration is read
    asked = Registry(registry.url, registry.user, registry.headers)
    decoder: Decoder
    found = asked.of_table(typed)
    if typed.avro is not None:
        decoder, columns = registry_columns.avro(asked, found)
    else:
        decoder, columns = registry_columns.protobuf(asked, found)
    return decoder, StructType.fromJson(columns)
