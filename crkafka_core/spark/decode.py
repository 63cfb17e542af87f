"""Typed records from raw ones: JSON, Avro and Protobuf, with what cannot be decoded kept beside it (fault 46).

`decode` adds nothing and loses nothing: each row lands either in `good`, with the decoded columns, or in `dead`, with topic,
partition, offset, reason and the raw bytes, from which `replay` makes rows to decode again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from crkafka_core.model.errors import ConfigError
from crkafka_core.spark import shipping
from crkafka_core.spark.decoders import Decoder
from crkafka_core.spark.schema import CHECKPOINT, RECORDS

if TYPE_CHECKING:
    import pyarrow as pa

REASON = "reason"
_DECODED = "crkafka_decoded"


@dataclass(frozen=True)
class Decoded:
    """Two frames over the same read; cache the source, or write both from one, if reading twice is dear."""

    good: DataFrame
    """The columns of the source without key, value and headers, and the decoded ones."""
    dead: DataFrame
    """The columns of the source, and why: a dead-letter table."""


def decode(
    rows: DataFrame,
    decoder: Decoder,
    schema: StructType,
    *,
    keep: Sequence[str] = ("topic", "partition", "offset", "timestamp"),
) -> Decoded:
    """Decode the column `value` into `schema`; `keep` names the columns that stay beside it.

    A null value (a tombstone) is a dead letter with that reason, unless the decoder says otherwise.
    """
    kept = [*keep, *([CHECKPOINT] if CHECKPOINT in rows.columns and CHECKPOINT not in keep else [])]
    clash = sorted(set(kept) & set(schema.fieldNames()))
    if clash:
        raise ConfigError(
            f"The decoded rows have a column {clash[0]!r}, which the record has too.",
            hint="Leave it out of `keep`, or rename it.",
        )
    tried = _tried(rows, decoder, schema)
    good = tried.where(F.col(REASON).isNull()).select(*kept, f"{_DECODED}.*")
    dead = tried.where(F.col(REASON).isNotNull()).select(*rows.columns, REASON)
    return Decoded(good, dead)


def replay(dead: DataFrame) -> DataFrame:
    """Rows of a dead-letter table as records again, to decode with a better decoder."""
    wanted = [*RECORDS.fieldNames(), *([CHECKPOINT] if CHECKPOINT in dead.columns else [])]
    return dead.select(*(c for c in wanted if c in dead.columns))


def _tried(rows: DataFrame, decoder: Decoder, schema: StructType) -> DataFrame:
    shipping.ship(rows.sparkSession)
    out = StructType([*rows.schema.fields, StructField(_DECODED, schema), StructField(REASON, StringType())])

    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        # Types of the decoded columns as Spark has them; the worker checks that they fit.
        from pyspark.sql.pandas.types import to_arrow_type

        from crkafka_core.spark.decoders import decode_batch

        kind = to_arrow_type(schema)
        opened = decoder.open()
        for batch in batches:
            yield decode_batch(batch, opened, kind, _DECODED, REASON)

    return rows.mapInArrow(run, out)


__all__ = ["REASON", "Decoded", "decode", "replay"]
