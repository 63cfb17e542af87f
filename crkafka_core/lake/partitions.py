"""Partition values of rows, by transforms of columns as Iceberg names and defines them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as is_type

from crkafka_core.lake.port import Part, needed
from crkafka_core.model.errors import ConfigError

_NAMED = {"identity": "", "truncate": "_trunc"}
_MICROS = {"day": 86_400_000_000, "hour": 3_600_000_000}


def field_name(part: Part) -> str:
    """As Spark names it: `timestamp_day`, `key_bucket`, `name_trunc`; an identity has its column's name."""
    return part.column + _NAMED.get(part.transform, f"_{part.transform}")


def value_type(part: Part, kind: pa.DataType) -> pa.DataType:
    """Of a field's values: a date for days; for years, months and hours their number since 1970. ConfigError: no such transform of it."""
    timely = is_type.is_timestamp(kind) or (is_type.is_date32(kind) and part.transform != "hour")
    plain = not (is_type.is_nested(kind) or is_type.is_floating(kind))
    match part.transform:
        case "identity" if plain:
            return kind
        case "day" if timely:
            return pa.date32()
        case "year" | "month" | "hour" if timely:
            return pa.int32()
        case "bucket" if part.width > 0 and plain and not is_type.is_boolean(kind):
            return pa.int32()
        case "truncate" if part.width > 0 and (is_type.is_integer(kind) or is_type.is_string(kind)):
            return kind
    raise ConfigError(
        f"partition_by: {part.transform} of column {part.column} ({kind}) is not possible.",
        hint="identity, bucket[N] and truncate[N] are of plain columns; year, month, day and hour of times and dates.",
    )


def parted(rows: pa.RecordBatch, parts: Sequence[Part]) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Rows by the values of their partition fields, in the order of `parts`."""
    if not parts:
        yield (), rows
        return
    codes = np.zeros(rows.num_rows, np.int64)
    values: list[list[Any]] = []
    for part in parts:
        encoded = _values(rows.column(part.column), part).dictionary_encode(null_encoding="encode")
        values.append(encoded.dictionary.to_pylist())
        codes = codes * len(values[-1]) + encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    grouped = rows if len(starts) == 1 else rows.take(pa.array(order))
    for start, stop in zip(starts, [*starts[1:], rows.num_rows], strict=False):  # no rows: no parts
        code, key = int(codes[order[start]]), []
        for each in reversed(values):
            code, at = divmod(code, len(each))
            key.append(each[at])
        yield tuple(reversed(key)), grouped.slice(start, stop - start)


def _values(column: pa.Array, part: Part) -> pa.Array:
    kind = value_type(part, column.type)
    match part.transform:
        case "year":
            return _since_1970(column)[0].cast(kind)
        case "month":
            years, months = _since_1970(column)
            return pc.add(pc.multiply(years, 12), months).cast(kind)
        case "day" | "hour" if is_type.is_timestamp(column.type):
            micros = np.asarray(column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).fill_null(0))
            return pa.array((micros // _MICROS[part.transform]).astype(np.int32), mask=_nulls(column)).cast(kind)
        case "truncate" if is_type.is_string(kind):
            return pc.utf8_slice_codeunits(column, 0, part.width)
        case "truncate":
            numbers = np.asarray(column.fill_null(0))
            return pa.array(numbers - numbers % part.width, kind, mask=_nulls(column))
        case "bucket":
            return _buckets(column, part.width)
    return column


def _nulls(column: pa.Array) -> Any:
    return column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None


def _since_1970(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Years, and months of the year from 0; in UTC."""
    plain = column.cast(pa.timestamp("us")) if is_type.is_timestamp(column.type) else column
    return pc.subtract(pc.year(plain), 1970), pc.subtract(pc.month(plain), 1)


def _buckets(column: pa.Array, width: int) -> pa.Array:
    """By the hash that Iceberg's specification gives: Murmur3 of a number's eight bytes, of a text, or of a decimal's digits."""
    mmh3 = needed("mmh3", "partition_by: bucket", "iceberg")
    if is_type.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    elif is_type.is_date32(column.type):
        column = column.cast(pa.int32())
    encoded = column.dictionary_encode()
    hashes = [mmh3.hash(_bytes(value), signed=False) & 0x7FFFFFFF for value in encoded.dictionary.to_pylist()]
    return pa.array([each % width for each in hashes], pa.int32()).take(encoded.indices)


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, Decimal):
        unscaled = int(value.scaleb(-int(value.as_tuple().exponent)))
        return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
    return value if isinstance(value, bytes) else struct.pack("<q", value)
