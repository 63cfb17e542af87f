"""Arrow's types as tables have them: many of Arrow's types are one type of a table's format, and some have no place in any (pure)."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as of

_UNSIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}


class NoPlace(Exception):
    """A type whose values no table holds without loss. The text gives the reason."""


def stored(kind: pa.DataType) -> pa.DataType:
    """The type for the same values that tables have. Raises `NoPlace`."""
    if isinstance(kind, pa.BaseExtensionType):
        return stored(kind.storage_type)
    if of.is_dictionary(kind) or of.is_run_end_encoded(kind):
        return stored(kind.value_type)
    if of.is_struct(kind):
        return pa.struct([_field(each) for each in kind])
    if of.is_map(kind):
        return pa.map_(_field(kind.key_field), _field(kind.item_field))
    if any(test(kind) for test in (of.is_list, of.is_large_list, of.is_fixed_size_list, of.is_list_view)):
        return pa.list_(_field(kind.value_field))
    return _plain(kind)


def _field(each: pa.Field) -> pa.Field:
    return each.with_type(stored(each.type))


def _plain(kind: pa.DataType) -> pa.DataType:
    if (of.is_timestamp(kind) or of.is_time(kind)) and kind.unit == "ns":
        raise NoPlace("tables have times to the microsecond")
    if kind == pa.uint64():
        raise NoPlace("tables have no whole numbers above 9223372036854775807; cast it to int64 or to a decimal")
    if of.is_decimal(kind) and not (0 <= kind.scale <= kind.precision <= 38):
        raise NoPlace("tables have decimals of up to 38 digits, with a scale of 0 or more")
    if of.is_null(kind):
        raise NoPlace("no type; cast it to one")
    if of.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if of.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale)
    tests = (
        (of.is_large_string, pa.string()),
        (of.is_string_view, pa.string()),
        (of.is_large_binary, pa.binary()),
        (of.is_binary_view, pa.binary()),
        (of.is_date, pa.date32()),
        (of.is_time, pa.time64("us")),
        (of.is_float16, pa.float32()),
    )
    return next((plain for test, plain in tests if test(kind)), _UNSIGNED.get(kind, kind))


def as_stored(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with columns of the types that tables have; a type that has no place stays."""
    return rows.cast(pa.schema([_lenient(each) for each in rows.schema]))


def _lenient(each: pa.Field) -> pa.Field:
    try:
        return _field(each)
    except NoPlace:
        return each
