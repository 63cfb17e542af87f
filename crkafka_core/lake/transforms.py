"""Partition values of rows: the transforms of `partition_by`, as Iceberg defines them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.lake.port import CannotCommit, Part

_MICROSECONDS = {"day": 86_400_000_000, "hour": 3_600_000_000}


def values(part: Part, column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The partition value of each row, null where the column is. Years, months and hours are counted from 1970; a day is a date."""
    if part.transform == "identity":
        return column
    if (made := _TRANSFORMS.get(part.transform)) is None:
        raise CannotCommit(f"There is no transform {part.transform} to partition {part.column} by.")
    try:
        return made(column, part.width)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, TypeError) as error:
        raise CannotCommit(
            f"Column {part.column} is {column.type}, which {part.transform} does not take.", hint="Mend partition_by."
        ) from error


def _years(column: Any, _: int) -> Any:
    return pc.subtract(pc.year(_dates(column)), 1970).cast(pa.int32())


def _months(column: Any, _: int) -> Any:
    dates = _dates(column)
    years = pc.subtract(pc.year(dates), 1970)
    return pc.add(pc.multiply(years, 12), pc.subtract(pc.month(dates), 1)).cast(pa.int32())


def _days(column: Any, _: int) -> Any:
    return _dates(column)


def _hours(column: Any, _: int) -> Any:
    return _floor(_microseconds(column), _MICROSECONDS["hour"]).cast(pa.int32())


def _dates(column: Any) -> Any:
    """In UTC, and before 1970 too."""
    if pa.types.is_date(column.type):
        return column.cast(pa.date32())
    return _floor(_microseconds(column), _MICROSECONDS["day"]).cast(pa.int32()).cast(pa.date32())


def _microseconds(column: Any) -> Any:
    if not pa.types.is_timestamp(column.type):
        raise TypeError(column.type)
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())


def _floor(numbers: Any, width: int) -> Any:
    """Division that rounds down, where Arrow's rounds to zero."""
    rest = pc.subtract(numbers, pc.multiply(pc.divide(numbers, width), width))
    return pc.subtract(pc.divide(numbers, width), pc.if_else(pc.less(rest, 0), 1, 0))


def _truncated(column: Any, width: int) -> Any:
    kind = column.type
    if pa.types.is_integer(kind):
        return pc.multiply(_floor(column.cast(pa.int64()), width), width).cast(kind)
    if pa.types.is_decimal(kind):
        return _by_value(column, lambda value: _truncated_decimal(value, width, kind.scale), kind)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pc.binary_slice(column, 0, width)
    return pc.utf8_slice_codeunits(column, 0, width)


def _truncated_decimal(value: Decimal, width: int, scale: int) -> Decimal:
    unscaled = int(value.scaleb(scale))
    return Decimal(unscaled - unscaled % width).scaleb(-scale)


def _buckets(column: Any, width: int) -> Any:
    hash_of, kind = _hash(), column.type
    encode = _encoder(kind)
    return _by_value(column, lambda value: (hash_of(encode(value)) & 0x7FFFFFFF) % width, pa.int32())


def _encoder(kind: pa.DataType) -> Callable[[Any], bytes]:
    """The bytes of a value that are hashed."""
    t = pa.types
    if t.is_string(kind) or t.is_large_string(kind):
        return lambda value: str(value).encode()
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind):
        return bytes
    if t.is_decimal(kind):
        return lambda value: _two_complement(int(value.scaleb(kind.scale)))
    return lambda value: struct.pack("<q", value)


def _two_complement(value: int) -> bytes:
    return value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)


def _by_value(column: Any, of: Callable[[Any], Any], kind: pa.DataType) -> Any:
    """Each value that occurs is looked at once."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    encoded = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    return pa.array(list(map(of, _plain(encoded.dictionary))), kind).take(encoded.indices)


def _plain(found: pa.Array) -> Iterator[Any]:
    """Times and dates as the numbers that Iceberg stores."""
    kind = found.type
    if pa.types.is_timestamp(kind):
        found = _microseconds(found)
    elif pa.types.is_date(kind):
        found = found.cast(pa.date32()).cast(pa.int32())
    elif pa.types.is_time(kind):
        found = found.cast(pa.time64("us")).cast(pa.int64())
    elif pa.types.is_integer(kind):
        return iter(np.asarray(found).tolist())
    return iter(found.to_pylist())


def _hash() -> Callable[[bytes], int]:
    try:
        from mmh3 import hash as murmur
    except ImportError as error:
        raise CannotCommit(
            "Buckets are made with mmh3, which is not installed.", hint="pip install 'crkafka[iceberg]'"
        ) from error
    return murmur


_TRANSFORMS: dict[str, Callable[[Any, int], Any]] = {
    "year": _years,
    "month": _months,
    "day": _days,
    "hour": _hours,
    "truncate": _truncated,
    "bucket": _buckets,
}
