"""Many values at once, made what a column takes as `fitting` makes one. What it would refuse or change, fails and is left to it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as of

from crkafka_core.decode.cursor import Cursor, Numbers, without
from crkafka_core.decode.fitting import nullable

Fit = Callable[[Cursor, Numbers], pa.Array]
"""Makes numbers a column; those that do not fit fail."""

MOST = 64
"""Items of a list that are read in bulk: they are read in as many rounds."""
MOST_VALUES = 4096
"""Values of one record for which there is a plan, lists as one: a type counts wherever it is used, and each costs time in every batch."""
FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds: of the beginning of the year 1, and of the end of 9999."""
FIRST_DAY, LAST_DAY = -719_162, 2_932_896


class NoBulk(Exception):
    """Not to be decoded in bulk; one by one it may be."""


def whole(kind: pa.DataType) -> Fit:
    """Of `int64` or `uint64`."""
    if of.is_integer(kind):
        return lambda cursor, found: _within(cursor, found, kind)
    if of.is_float64(kind):
        return lambda _, found: pa.array(found.astype(np.float64))
    if of.is_timestamp(kind):
        return moments(kind, 1000)
    if of.is_decimal128(kind) and kind.scale == 0:
        return decimals(kind)
    raise NoBulk(kind)


def _within(cursor: Cursor, found: Numbers, kind: pa.DataType) -> pa.Array:
    room, has = np.iinfo(kind.to_pandas_dtype()), np.iinfo(found.dtype)
    if room.min > has.min:
        cursor.fail(found < room.min)
    if room.max < has.max:
        cursor.fail(found > room.max)
    return pa.array(found.astype(room.dtype))


def moments(kind: pa.DataType, micros: int) -> Fit:
    """Of numbers of so many microseconds each."""
    if not of.is_timestamp(kind) or kind.unit != "us":
        raise NoBulk(kind)

    def fit(cursor: Cursor, found: Numbers) -> pa.Array:
        wrong = (found < -(-FIRST // micros)) | (found > LAST // micros)
        cursor.fail(wrong)
        return pa.array(np.where(wrong, 0, found).astype(np.int64) * micros).cast(kind)

    return fit


def days(kind: pa.DataType) -> Fit:
    if not of.is_date32(kind):
        raise NoBulk(kind)

    def fit(cursor: Cursor, found: Numbers) -> pa.Array:
        cursor.fail((found < FIRST_DAY) | (found > LAST_DAY))
        return pa.array(found.astype(np.int32)).cast(kind)

    return fit


def clock(kind: pa.DataType, micros: int) -> Fit:
    """A time of the day as Python writes it: without a fraction where there is none."""
    if not of.is_string(kind):
        raise NoBulk(kind)

    def fit(cursor: Cursor, found: Numbers) -> pa.Array:
        wrong = (found < 0) | (found >= 86_400_000_000 // micros)
        cursor.fail(wrong)
        texts = pa.array(np.where(wrong, 0, found) * micros).cast(pa.time64("us")).cast(kind)
        return pc.replace_substring_regex(texts, r"\.000000$", "")

    return fit


def decimals(kind: pa.DataType, precision: int = 38) -> Fit:
    """Of numbers without their point, which is where the column has it."""
    if not of.is_decimal128(kind):
        raise NoBulk(kind)
    end = 10 ** min(kind.precision, precision)

    def fit(cursor: Cursor, found: Numbers) -> pa.Array:
        if end <= np.iinfo(found.dtype).max:
            wrong = (found >= end) | (found <= -end)
            cursor.fail(wrong)
            found = np.where(wrong, 0, found).astype(found.dtype)
        halves = np.empty((len(found), 2), np.int64)
        halves[:, 0], halves[:, 1] = found.view(np.int64), (found < 0) * -1
        if np.little_endian:
            return pa.Array.from_buffers(kind, len(found), [None, pa.py_buffer(halves)])
        return pa.Array.from_buffers(kind, len(found), [None, pa.py_buffer(halves[:, ::-1].copy())])

    return fit


def fractions(kind: pa.DataType, single: bool) -> Fit:
    """Of `float32`, if `single`, or `float64`."""
    if of.is_float64(kind) or (single and of.is_float32(kind)):
        return lambda _, found: pa.array(found).cast(kind)
    raise NoBulk(kind)


def truths(kind: pa.DataType) -> Fit:
    if not of.is_boolean(kind):
        raise NoBulk(kind)

    def fit(cursor: Cursor, found: Numbers) -> pa.Array:
        cursor.fail(found > 1)
        return pa.array(found == 1)

    return fit


def symbols(kind: pa.DataType, names: list[str], numbers: Numbers) -> Fit:
    """Of names, each by its number; the numbers are in order."""
    if not of.is_string(kind) or not names:
        raise NoBulk(kind)
    texts = pa.array(names, kind)

    def fit(cursor: Cursor, found: Numbers) -> pa.Array:
        place = np.minimum(np.searchsorted(numbers, found), len(numbers) - 1)
        cursor.fail(numbers[place] != found)
        return texts.take(pa.array(place))

    return fit


def texts(cursor: Cursor, found: pa.Array, kind: pa.DataType, text: bool) -> pa.Array:
    """Of bytes. `text`: they have to be UTF-8 in any case."""
    if of.is_binary(kind) and not text:
        return found
    try:
        valid = found.cast(pa.string())
    except pa.ArrowInvalid:
        wrong = np.array([not is_text(each) for each in found.to_pylist()], bool)
        cursor.fail(wrong)
        valid = without(found, wrong).cast(pa.string())
    return valid if of.is_string(kind) else valid.cast(kind)


def is_text(given: bytes) -> bool:
    """Whether bytes are UTF-8."""
    try:
        given.decode()
        return True
    except UnicodeDecodeError:
        return False


def struct(cursor: Cursor, kind: pa.StructType, columns: dict[str, pa.Array], failed: bool = False) -> pa.Array:
    """Columns by name; one that is not there is null. `failed`: records that failed are null."""
    rows, arrays = len(cursor.at), []
    for each in kind:
        found = columns[each.name] if each.name in columns else pa.nulls(rows, nullable(each.type))
        if not each.nullable and found.null_count:
            cursor.fail(found.is_null().to_numpy(zero_copy_only=False))
        arrays.append(found)
    mask = pa.array(cursor.failed) if failed and cursor.failed.any() else None
    return pa.StructArray.from_arrays(arrays, fields=list(nullable(kind)), mask=mask)


def lists(cursor: Cursor, kind: pa.ListType, items: pa.Array, rows: Numbers) -> pa.Array:
    """Of items, each with the row that it is of; those of one row are in order."""
    kind = nullable(kind)
    ends = np.cumsum(np.bincount(rows, minlength=len(cursor.at)))
    values = items.take(pa.array(np.argsort(rows, kind="stable")))
    return pa.ListArray.from_arrays(pa.array(np.concatenate(([0], ends)).astype(np.int32)), values, type=kind)
