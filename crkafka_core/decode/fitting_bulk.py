"""Converts many values at once to a column's type, as `fitting` converts one. Values that it would refuse or change fail here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as of

from crkafka_core.decode.cursor import Cursor, Numbers, without
from crkafka_core.decode.fitting import nullable

Fit = Callable[[Cursor, Numbers], pa.Array]
"""Converts numbers to a column; records whose numbers do not fit fail."""

MOST = 64
"""Most items of a list in bulk: each takes a round."""
MOST_VALUES = 4096
"""Most values of a record in a plan, a list as one; a type counts at each use, and each value costs time in every batch."""
FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds of the beginning of the year 1 and the end of 9999."""
FIRST_DAY, LAST_DAY = -719_162, 2_932_896


class NoBulk(Exception):
    """A type that is not decoded in bulk, but may be one by one."""


def whole(kind: pa.DataType) -> Fit:
    """Conversion of `int64` or `uint64`."""
    if of.is_integer(kind):
        return lambda cursor, values: _within(cursor, values, kind)
    if of.is_float64(kind):
        return lambda _, values: pa.array(values.astype(np.float64))
    if of.is_timestamp(kind):
        return moments(kind, 1000)
    if of.is_decimal128(kind) and kind.scale == 0:
        return decimals(kind)
    raise NoBulk(kind)


def _within(cursor: Cursor, values: Numbers, kind: pa.DataType) -> pa.Array:
    room, has = np.iinfo(kind.to_pandas_dtype()), np.iinfo(values.dtype)
    if room.min > has.min:
        cursor.fail(values < room.min)
    if room.max < has.max:
        cursor.fail(values > room.max)
    return pa.array(values.astype(room.dtype))


def moments(kind: pa.DataType, micros: int) -> Fit:
    """Conversion of times in units of `micros` microseconds."""
    if not of.is_timestamp(kind) or kind.unit != "us":
        raise NoBulk(kind)

    def fit(cursor: Cursor, values: Numbers) -> pa.Array:
        wrong = (values < -(-FIRST // micros)) | (values > LAST // micros)
        cursor.fail(wrong)
        return pa.array(np.where(wrong, 0, values).astype(np.int64) * micros).cast(kind)

    return fit


def days(kind: pa.DataType) -> Fit:
    if not of.is_date32(kind):
        raise NoBulk(kind)

    def fit(cursor: Cursor, values: Numbers) -> pa.Array:
        cursor.fail((values < FIRST_DAY) | (values > LAST_DAY))
        return pa.array(values.astype(np.int32)).cast(kind)

    return fit


def clock(kind: pa.DataType, micros: int) -> Fit:
    """Conversion to a time of the day in Python's form, without a zero fraction."""
    if not of.is_string(kind):
        raise NoBulk(kind)

    def fit(cursor: Cursor, values: Numbers) -> pa.Array:
        wrong = (values < 0) | (values >= 86_400_000_000 // micros)
        cursor.fail(wrong)
        texts = pa.array(np.where(wrong, 0, values) * micros).cast(pa.time64("us")).cast(kind)
        return pc.replace_substring_regex(texts, r"\.000000$", "")

    return fit


def decimals(kind: pa.DataType, precision: int = 38) -> Fit:
    """Conversion of unscaled numbers to decimals with the column's scale."""
    if not of.is_decimal128(kind):
        raise NoBulk(kind)
    end = 10 ** min(kind.precision, precision)

    def fit(cursor: Cursor, values: Numbers) -> pa.Array:
        if end <= np.iinfo(values.dtype).max:
            wrong = (values >= end) | (values <= -end)
            cursor.fail(wrong)
            values = np.where(wrong, 0, values).astype(values.dtype)
        halves = np.empty((len(values), 2), np.int64)
        halves[:, 0], halves[:, 1] = values.view(np.int64), (values < 0) * -1
        if np.little_endian:
            return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(halves)])
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(halves[:, ::-1].copy())])

    return fit


def fractions(kind: pa.DataType, single: bool) -> Fit:
    """Conversion of `float32`, if `single`, or `float64`."""
    if of.is_float64(kind) or (single and of.is_float32(kind)):
        return lambda _, values: pa.array(values).cast(kind)
    raise NoBulk(kind)


def truths(kind: pa.DataType) -> Fit:
    if not of.is_boolean(kind):
        raise NoBulk(kind)

    def fit(cursor: Cursor, values: Numbers) -> pa.Array:
        cursor.fail(values > 1)
        return pa.array(values == 1)

    return fit


def symbols(kind: pa.DataType, names: list[str], numbers: Numbers) -> Fit:
    """Conversion of numbers to names; `numbers` are sorted."""
    if not of.is_string(kind) or not names:
        raise NoBulk(kind)
    texts = pa.array(names, kind)

    def fit(cursor: Cursor, values: Numbers) -> pa.Array:
        place = np.minimum(np.searchsorted(numbers, values), len(numbers) - 1)
        cursor.fail(numbers[place] != values)
        return texts.take(pa.array(place))

    return fit


def texts(cursor: Cursor, values: pa.Array, kind: pa.DataType, text: bool) -> pa.Array:
    """A column from bytes. `text`: they must be UTF-8, also in a binary column."""
    if of.is_binary(kind) and not text:
        return values
    try:
        valid = values.cast(pa.string())
    except pa.ArrowInvalid:
        wrong = no_texts(values)
        cursor.fail(wrong)
        valid = without(values, wrong).cast(pa.string())
    return valid if of.is_string(kind) else valid.cast(kind)


def no_texts(values: pa.Array) -> Numbers:
    """Which of the bytes are not UTF-8."""
    wrong = np.zeros(len(values), bool)
    for at, each in enumerate(values.to_pylist()):
        try:
            each.decode()
        except UnicodeDecodeError:
            wrong[at] = True
    return wrong


def struct(cursor: Cursor, kind: pa.StructType, columns: dict[str, pa.Array], failed: bool = False) -> pa.Array:
    """Structs from columns by name; a missing one is null. `failed`: failed records are null."""
    rows, arrays = len(cursor.at), []
    for each in kind:
        column = columns[each.name] if each.name in columns else pa.nulls(rows, nullable(each.type))
        if not each.nullable and column.null_count:
            cursor.fail(column.is_null().to_numpy(zero_copy_only=False))
        arrays.append(column)
    mask = pa.array(cursor.failed) if failed and cursor.failed.any() else None
    return pa.StructArray.from_arrays(arrays, fields=list(nullable(kind)), mask=mask)


def lists(cursor: Cursor, kind: pa.ListType, items: pa.Array, rows: Numbers) -> pa.Array:
    """Lists from items and the row of each; items of a row are in order."""
    kind = nullable(kind)
    ends = np.cumsum(np.bincount(rows, minlength=len(cursor.at)))
    values = items.take(pa.array(np.argsort(rows, kind="stable")))
    return pa.ListArray.from_arrays(pa.array(np.concatenate(([0], ends)).astype(np.int32)), values, type=kind)
