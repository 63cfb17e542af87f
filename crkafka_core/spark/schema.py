"""Columns of a checkpoint's rows: those of Spark's own Kafka source, and the checkpoint's number (SPEC K2)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from crkafka_core.model.errors import ConfigError
from crkafka_core.segments.batch import CHECKPOINT as CHECKPOINT
from crkafka_core.segments.batch import SCHEMA, SEGMENT

RECORDS: StructType = from_arrow_schema(SCHEMA)
"""Columns of `format("kafka")` with `includeHeaders`, with the same nullability."""
ROWS: StructType = from_arrow_schema(SEGMENT).toNullable()
"""The same, and the checkpoint's number at the end."""


def columns_of(names: Sequence[str] | None) -> StructType:
    """The named columns, in this order; None: all."""
    if names is None:
        return ROWS
    wrong = [name for name in names if name not in ROWS.fieldNames()]
    if wrong or not names:
        raise ConfigError(
            f"Records have no column {wrong[0]!r}." if wrong else "No column is named.",
            hint=f"There are: {', '.join(RECORDS.fieldNames())}.",
        )
    return StructType([ROWS[name] for name in names])
