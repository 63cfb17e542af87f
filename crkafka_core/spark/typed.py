"""The built-in shape of typed tables: columns by a schema, Kafka's own beside them, bad records as the declaration says (SPEC K6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from crkafka_core.config import RegionConfig, json_columns
from crkafka_core.config.json_columns import PREFIX
from crkafka_core.config.typed import RegistryConfig, TypedConfig
from crkafka_core.model.errors import ConfigError
from crkafka_core.spark import registry_columns
from crkafka_core.spark.decode import Decoded, OnBadRecord, decode
from crkafka_core.spark.decoders import Decoder, Json
from crkafka_core.spark.registry import Registry
from crkafka_core.spark.tasks import Then

KAFKA = ("key", "topic", "partition", "offset", "timestamp", "headers")


@dataclass(frozen=True)
class TypedShape:
    """Its schema is read anew for each pass, so that it may go on while the region runs."""

    name: str
    typed: TypedConfig
    registry: RegistryConfig | None
    on_bad_record: OnBadRecord

    def read(self, read: Callable[[Then], DataFrame]) -> Decoded:
        """Decoded by the tasks that read them."""
        decoder, schema = source(self.typed, self.registry, self.name)
        return decode(read, decoder, schema, keep=KAFKA, prefix=PREFIX, on_bad_record=self.on_bad_record)


def shape(config: RegionConfig, name: str) -> TypedShape:
    """The shape of the typed table of this name."""
    table = config.table(name)
    if table is None or table.typed is None:
        raise ConfigError(
            f"Table {name} of region {config.region} is declared as a typed one, and the configuration here does not say by which schema.",
            hint="Write it with the configuration that has its `typed:`, or `crkafka undeclare` it.",
        )
    return TypedShape(name, table.typed, config.registry, table.on_bad_record or "dead_letter")


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
    assert registry is not None and typed.subject is not None  # checked where the configuration is read
    asked = Registry(registry.url, registry.user, registry.headers)
    decoder: Decoder
    found = asked.version(typed.subject, typed.version or "latest", serialized=typed.protobuf is not None)
    if typed.avro is not None:
        decoder, columns = registry_columns.avro(asked, found)
    else:
        decoder, columns = registry_columns.protobuf(asked, found)
    return decoder, StructType.fromJson(columns)
