"""The built-in shape of typed tables: columns by a schema, Kafka's own beside them, bad records as the declaration says (SPEC K6)."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from crkafka_core.config import RegionConfig, json_columns
from crkafka_core.config.json_columns import PREFIX
from crkafka_core.config.typed import RegistryConfig, TypedConfig
from crkafka_core.model.errors import ConfigError
from crkafka_core.spark import registry_columns
from crkafka_core.spark.decode import Decoded, decode
from crkafka_core.spark.decoders import Decoder, Json
from crkafka_core.spark.registry import Registry

KAFKA = ("key", "topic", "partition", "offset", "timestamp", "headers")


def shape(config: RegionConfig, name: str) -> Callable[[DataFrame], Decoded]:
    """The shape of the typed table of this name. Its schema is read anew for each pass, so that it may go on while the region runs."""
    table = config.table(name)
    if table is None or table.typed is None:
        raise ConfigError(
            f"Table {name} of region {config.region} is declared as a typed one, and the configuration here does not say by which schema.",
            hint="Write it with the configuration that has its `typed:`, or `crkafka undeclare` it.",
        )
    typed, policy = table.typed, table.on_bad_record or "dead_letter"

    def decoded(rows: DataFrame) -> Decoded:
        decoder, schema = source(typed, config.registry, name)
        return decode(rows, decoder, schema, keep=KAFKA, prefix=PREFIX, on_bad_record=policy)

    return decoded


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
