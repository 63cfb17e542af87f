"""Columns that crkafka gives to tables: those of Kafka's records, the checkpoint's number, and a record's position (SPEC K2, C8)."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from crkafka_core.config.json_columns import PREFIX
from crkafka_core.config.region_config import RegionConfig
from crkafka_core.config.shapes import GOOD, arrow_of, name_of, on_frames
from crkafka_core.lake.kinds import as_stored
from crkafka_core.lake.port import CHECKPOINT, KEYS, Part
from crkafka_core.model.rows import Table
from crkafka_core.segments.batch import SEGMENT

RAW = pa.schema([field.with_nullable(True) for field in SEGMENT])
"""Of a table without a shape."""
NUMBER = pa.schema([pa.field(CHECKPOINT, pa.int64())])
"""Of a table of a shape that has had no rows yet: a fence has made it."""
Place = tuple[str, str, str]
PLACE: Place = ("topic", "partition", "offset")


def place_of(table: Table) -> Place | None:
    """The columns with a row's topic, partition and offset; prefixed in a typed table, which may have such names itself. None: none."""
    topic, partition, offset = PLACE
    if arrow_of(table.shape) or on_frames(table.shape):
        return None
    if name_of(table.shape) and table.output in ("", GOOD):
        return PREFIX + topic, PREFIX + partition, PREFIX + offset
    return PLACE


def place_in(columns: Collection[str], table: Table) -> list[str]:
    """Those of the columns that have a record's topic, partition and offset."""
    return [name for name in place_of(table) or PLACE if name in columns]


def parts_of(config: RegionConfig, table: Table) -> tuple[Part, ...]:
    """By which a table is partitioned, as configured."""
    declared = config.table(table.name, table.shape)
    fields = declared.partition_fields if declared is not None else ()
    return tuple(Part(field.column, field.transform, field.width) for field in fields)


DELETED = "crkafka_deleted"
"""Of a shape with keys: true where a record deletes its key. It does not become a column."""
TOMBSTONE = PREFIX + "tombstone"
"""Of a typed table: true where a record has no value, so that it deletes its key."""


def keys_of(config: RegionConfig, table: Table) -> tuple[str, ...]:
    """The columns by which a table has one row for each key; none: it has a row for each record."""
    declared = config.table(table.name, table.shape)
    return () if declared is None else declared.keys or ()


def properties_of(config: RegionConfig, table: Table) -> dict[str, str]:
    """With which a table is made."""
    return {KEYS: ",".join(keys)} if (keys := keys_of(config, table)) else {}


def conformed(rows: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """The rows with all of a table's columns, in its order; what they lack, also inside of structs, is null."""
    if rows.schema.equals(columns):
        return rows
    given = pa.Table.from_batches([as_stored(rows)])
    together = pa.concat_tables([columns.empty_table(), given], promote_options="permissive")
    return together.select(columns.names).cast(columns).combine_chunks().to_batches()[0]
