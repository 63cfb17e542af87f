"""Columns of tables: those that crkafka gives them (SPEC K2, C8), their types, and how they go on when a schema does (pure)."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
from pyarrow import types as is_type

from crkafka_core.config.json_columns import PREFIX
from crkafka_core.config.region_config import RegionConfig
from crkafka_core.config.shapes import GOOD, arrow_of, name_of, on_frames
from crkafka_core.lake.port import CHECKPOINT, KEYS, Part
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.rows import Table
from crkafka_core.segments.batch import SEGMENT

RAW = pa.schema([field.with_nullable(True) for field in SEGMENT])
"""Of a table without a shape."""
NUMBER = pa.schema([pa.field(CHECKPOINT, pa.int64())])
"""Of a table of a shape that has had no rows yet: a fence has made it."""
Place = tuple[str, str, str]
PLACE: Place = ("topic", "partition", "offset")
DELETED = "crkafka_deleted"
"""Of a shape with keys: true where a record deletes its key. It does not become a column."""
TOMBSTONE = PREFIX + "tombstone"
"""Of a typed table: true where a record has no value, so that it deletes its key."""


def place_of(table: Table) -> Place | None:
    """The columns with a row's topic, partition and offset; prefixed in a typed table, which may have such names itself. None: none."""
    topic, partition, offset = PLACE
    if arrow_of(table.shape) or on_frames(table.shape):
        return None
    if name_of(table.shape) and table.output in ("", GOOD):
        return PREFIX + topic, PREFIX + partition, PREFIX + offset
    return PLACE


def place_in(columns: Collection[str], table: Table) -> list[str]:
    return [name for name in place_of(table) or PLACE if name in columns]


def parts_of(config: RegionConfig, table: Table) -> tuple[Part, ...]:
    declared = config.table(table.name, table.shape)
    fields = declared.partition_fields if declared is not None else ()
    return tuple(Part(field.column, field.transform, field.width) for field in fields)


def keys_of(config: RegionConfig, table: Table) -> tuple[str, ...]:
    """The columns by which a table has one row for each key; none: it has a row for each record."""
    declared = config.table(table.name, table.shape)
    return () if declared is None else declared.keys or ()


def properties_of(config: RegionConfig, table: Table) -> dict[str, str]:
    return {KEYS: ",".join(keys)} if (keys := keys_of(config, table)) else {}


# Types

_PLAIN = (
    (is_type.is_timestamp, lambda kind: pa.timestamp("us", "UTC" if kind.tz else None)),
    (is_type.is_decimal, lambda kind: pa.decimal128(kind.precision, kind.scale)),
    (is_type.is_large_string, pa.string()),
    (is_type.is_string_view, pa.string()),
    (is_type.is_large_binary, pa.binary()),
    (is_type.is_binary_view, pa.binary()),
    (is_type.is_date, pa.date32()),
    (is_type.is_time, pa.time64("us")),
    (is_type.is_float16, pa.float32()),
    (is_type.is_uint8, pa.int16()),
    (is_type.is_uint16, pa.int32()),
    (is_type.is_uint32, pa.int64()),
)
"""Many of Arrow's types are one type of a table's format."""
_LISTS = (is_type.is_list, is_type.is_large_list, is_type.is_fixed_size_list, is_type.is_list_view)


class NoPlace(Exception):
    """A type whose values no table holds without loss. The text gives the reason."""


def stored(kind: pa.DataType) -> pa.DataType:
    """The type for the same values that tables have. Raises `NoPlace`."""
    if isinstance(kind, pa.BaseExtensionType):
        return stored(kind.storage_type)
    if is_type.is_dictionary(kind) or is_type.is_run_end_encoded(kind):
        return stored(kind.value_type)
    if is_type.is_struct(kind):
        return pa.struct([_stored_field(each) for each in kind])
    if is_type.is_map(kind):
        return pa.map_(_stored_field(kind.key_field), _stored_field(kind.item_field))
    if any(test(kind) for test in _LISTS):
        return pa.list_(_stored_field(kind.value_field))
    if (is_type.is_timestamp(kind) or is_type.is_time(kind)) and kind.unit == "ns":
        raise NoPlace("tables have times to the microsecond")
    if kind == pa.uint64():
        raise NoPlace("tables have no whole numbers above 9223372036854775807; cast it to int64 or to a decimal")
    if is_type.is_decimal(kind) and not (0 <= kind.scale <= kind.precision <= 38):
        raise NoPlace("tables have decimals of up to 38 digits, with a scale of 0 or more")
    if is_type.is_null(kind):
        raise NoPlace("no type; cast it to one")
    plain = next((plain for test, plain in _PLAIN if test(kind)), kind)
    return plain if isinstance(plain, pa.DataType) else plain(kind)


def _stored_field(field: pa.Field) -> pa.Field:
    return field.with_type(stored(field.type))


def conformed(rows: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """The rows with all of a table's columns, in its order; what they lack, also inside of structs, is null."""
    if rows.schema.equals(columns):
        return rows
    fields = list[pa.Field]()
    for field in rows.schema:
        try:
            fields.append(_stored_field(field))
        except NoPlace:
            fields.append(field)
    given = pa.Table.from_batches([rows.cast(pa.schema(fields))])
    together = pa.concat_tables([columns.empty_table(), given], promote_options="permissive")
    return together.select(columns.names).cast(columns).combine_chunks().to_batches()[0]


# Evolution: columns are added, types are widened, nothing else changes

_WIDER = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


class _Incompatible(Exception):
    """A column would change its kind; the text names it."""


def followed(table: str, present: pa.Schema, wanted: pa.Schema, *, widens: bool = True) -> pa.Schema:
    """The table's columns from now on, in the order that it has, new ones at the end; what is wanted no more stays, and is null.

    `widens`: whether the table's format lets a column get a wider type.
    """
    try:
        return pa.schema(_followed_fields(list(present), list(wanted), "", widens))
    except _Incompatible as error:
        raise ConfigError(
            f"Table {table} cannot follow its schema: {error}.",
            hint="Let the column be as it was, or declare a table of another name and path.",
        ) from None


def _followed_fields(present: list[pa.Field], wanted: list[pa.Field], path: str, widens: bool) -> list[pa.Field]:
    new = {field.name: field for field in wanted}
    known = {field.name.lower(): field.name for field in present}
    for name in new:
        if known.get(name.lower(), name) != name:
            raise _Incompatible(
                f"column {path}{name} is {path}{known[name.lower()]} in the table, which readers take for one"
            )
    kept = [
        f.with_type(_wider(f.type, new.pop(f.name).type, f"{path}{f.name}", widens)) if f.name in new else f
        for f in present
    ]
    return kept + [field.with_nullable(True) for field in new.values()]


def _wider(now: pa.DataType, wanted: pa.DataType, path: str, widens: bool) -> pa.DataType:
    """The type that holds all values of both."""
    if is_type.is_struct(now) and is_type.is_struct(wanted):
        return pa.struct(_followed_fields(list(now), list(wanted), f"{path}.", widens))
    if is_type.is_list(now) and is_type.is_list(wanted):
        return pa.list_(now.value_field.with_type(_wider(now.value_type, wanted.value_type, f"{path}[]", widens)))
    if is_type.is_map(now) and is_type.is_map(wanted) and now.key_type == wanted.key_type:
        item = _wider(now.item_type, wanted.item_type, f"{path}{{}}", widens)
        return pa.map_(now.key_field, now.item_field.with_type(item))
    wider = now if now == wanted else None
    if now in _WIDER and wanted in _WIDER:
        wider = max(now, wanted, key=_WIDER.index)
    elif is_type.is_floating(now) and is_type.is_floating(wanted):
        wider = max(now, wanted, key=lambda kind: kind.bit_width)
    elif is_type.is_decimal(now) and is_type.is_decimal(wanted) and now.scale == wanted.scale:
        wider = max(now, wanted, key=lambda kind: kind.precision)
    if wider is None or (wider != now and not widens):
        named = ("struct" if is_type.is_struct(kind) else str(kind) for kind in (now, wanted))
        raise _Incompatible(f"column {path} is {' and would become '.join(named)}")
    return wider
