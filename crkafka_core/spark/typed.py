"""The built-in shape of typed tables in Spark: the rule of `decode.typed`, carried out by tasks (SPEC K6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from crkafka_core.config import RegionConfig
from crkafka_core.config.json_columns import PREFIX
from crkafka_core.config.typed import OnBadRecord, RegistryConfig, TypedConfig
from crkafka_core.decode.typed import KAFKA, Typing, source
from crkafka_core.model.errors import ConfigError
from crkafka_core.spark.decode import Decoded, decode
from crkafka_core.spark.tasks import Then


@dataclass(frozen=True)
class TypedShape:
    """Its schema is read again for each pass, so that it may go on while the region runs."""

    name: str
    typed: TypedConfig
    registry: RegistryConfig | None
    on_bad_record: OnBadRecord
    keyed: bool
    """The table has one row for each of Kafka's keys, and none for a record without."""

    def now(self) -> Typing:
        """By the schema as it is now."""
        decoder, kind = source(self.typed, self.registry, self.name)
        return Typing(decoder, kind, self.on_bad_record, self.keyed)


def frames(typing: Typing, read: Callable[[Then], DataFrame]) -> Decoded:
    """Decoded by the tasks that read the records; written by Spark."""
    return decode(
        read,
        typing.decoder,
        _struct(pa.schema(typing.kind)),
        keep=KAFKA,
        prefix=PREFIX,
        on_bad_record=typing.on_bad_record,
        keyed=typing.keyed,
    )


def _struct(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def shape(config: RegionConfig, name: str) -> TypedShape:
    """The shape of the typed table of this name."""
    table = config.table(name)
    if table is None or table.typed is None:
        raise ConfigError(
            f"Table {name} of region {config.region} is declared as a typed one, and the configuration here does not say by which schema.",
            hint="Write it with the configuration that has its `typed:` (restart a running host), or `crkafka tables undeclare` it.",
        )
    return TypedShape(name, table.typed, config.registry, table.on_bad_record or "dead_letter", bool(table.keys))
