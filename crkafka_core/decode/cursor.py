"""Reads many binary records in parallel: one step of numpy reads the next value of each.

An unexpected record fails: its cursor is at its end from then on, and values read from it are meaningless.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = np.ndarray[Any, Any]
"""An array with one element for each record."""

_PAD = 16
"""Bytes after the last record, so that its last number can be read as ten bytes at once."""
_LARGEST = 2**31 - 1 - _PAD
"""Most bytes of all records: Arrow's offsets are `int32`."""
_TOPS = np.uint64(0x8080808080808080)
_LOW = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONE = np.uint64(1)
_FOLDS = [
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
]
"""Masks and shifts that join groups of seven bits: in pairs, pairs of pairs, and so on."""


class Cursor:
    """Position and end of each record; records are in the order of their bytes."""

    def __init__(self, data: Numbers, at: Numbers, end: Numbers) -> None:
        self.data, self.at, self.end = data, at, end
        self.failed = np.zeros(len(at), bool)

    @classmethod
    def over(cls, values: pa.Array) -> Cursor:
        """A cursor over an array of bytes without nulls."""
        if values.type != pa.binary():
            values = values.cast(pa.binary())
        _, where, what = values.buffers()
        offsets = np.frombuffer(where, np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
        first, size = int(offsets[0]), int(offsets[-1] - offsets[0])
        if size > _LARGEST:
            raise pa.ArrowInvalid("more bytes than one array can have")
        data = np.zeros(size + _PAD, np.uint8)
        if size:
            data[:size] = np.frombuffer(what, np.uint8, size, first)
        offsets -= first
        return cls(data, offsets[:-1], offsets[1:])

    def part(self, rows: Numbers) -> Cursor:
        """A cursor over some records, by their sorted indexes; `back` copies its positions to this one."""
        return self if len(rows) == len(self.at) else Cursor(self.data, self.at[rows], self.end[rows])

    def back(self, rows: Numbers, part: Cursor) -> None:
        if part is not self:
            self.at = self.at.copy()
            self.at[rows] = part.at
            self.failed[rows] |= part.failed
            self.fail(self.failed)

    def fail(self, which: Numbers) -> None:
        if which.any():
            self.failed |= which
            self.at = np.where(which, self.end, self.at)

    def step(self, sizes: Any) -> None:
        """Advance by so many bytes. Reads may pass a record's end, which fails here."""
        self.at = self.at + sizes
        self.fail(self.at > self.end)

    def varint(self, longest: int = 10) -> Numbers:
        """Numbers with seven bits in each byte, the lowest first, as `uint64`; those of more than `longest` bytes fail."""
        first = self.data[self.at]
        if (first < 0x80).all():
            self.step(1)
            return first.astype(np.uint64)
        words = self._peek(np.uint64, "<")
        stops = ~words & _TOPS
        below = (stops & (~stops + _ONE)) - _ONE  # all bits below the first bit that marks a last byte
        size = (np.bitwise_count(below) >> 3).astype(np.int64) + 1
        numbers = words & below & _LOW
        for low, high, shift in _FOLDS:
            numbers = (numbers & low) | ((numbers & high) >> shift)
        if (size > 8).any():
            self._longest(np.flatnonzero(size > 8), numbers, size)
        self.fail(size > longest)
        self.step(size)
        return numbers

    def _longest(self, rows: Numbers, numbers: Numbers, size: Numbers) -> None:
        """Complete numbers of nine and ten bytes; the size of one with more than 64 bits becomes 11."""
        ninth, tenth = (self.data[self.at[rows] + i].astype(np.uint64) for i in (8, 9))
        more = ninth >= 0x80
        numbers[rows] |= ((ninth & np.uint64(0x7F)) << np.uint64(56)) | np.where(more, tenth << np.uint64(63), 0)
        size[rows] = np.where(more, np.where(tenth > 1, 11, 10), 9)

    def zigzag(self) -> Numbers:
        return unzigzag(self.varint())

    def fixed(self, kind: Any) -> Numbers:
        """Little-endian numbers of a type with four or eight bytes."""
        numbers = self._peek(kind, "<")
        self.step(numbers.itemsize)
        return numbers

    def _peek(self, kind: Any, order: Literal["<", ">"], ahead: int = 0) -> Numbers:
        kind_of_order = np.dtype(kind).newbyteorder(order)
        every = np.ndarray((len(self.data) - 7,), kind_of_order, self.data.data, strides=(1,))  # one at each byte
        return every[self.at + ahead if ahead else self.at].astype(kind, copy=False)

    def schema_id(self) -> Numbers:
        """Schema ids of the registry's wire format: a zero byte, and four bytes of id."""
        zero, number = self.data[self.at], self._peek(np.int32, ">", 1)
        self.step(5)
        self.fail((zero != 0) | (number < 0))
        return number

    def big(self, sizes: Numbers) -> Numbers:
        """Signed big-endian numbers of so many bytes; those of more than eight fail."""
        self.fail(sizes > 8)
        numbers = self._peek(np.int64, ">")
        start, end = self.bytes(sizes)
        return np.where(end > start, numbers >> (8 * np.clip(8 - sizes, 0, 7)), 0)

    def bytes(self, sizes: Numbers) -> tuple[Numbers, Numbers]:
        """Start and end of so many bytes; empty for failed records."""
        start = self.at
        self.fail((sizes < 0) | (sizes > self.end - start))
        start = np.where(self.failed, self.at, start)
        self.at = np.where(self.failed, self.at, start + sizes)
        return start, self.at


def unzigzag(numbers: Numbers) -> Numbers:
    return ((numbers >> _ONE) ^ (~(numbers & _ONE) + _ONE)).view(np.int64)


def blobs(data: Numbers, start: Numbers, end: Numbers) -> pa.Array:
    """The bytes from each start to its end: every second value of an array of these and of the bytes between them."""
    if not len(start):
        return pa.array([], pa.binary())
    offsets = np.empty(2 * len(start), np.int32)
    offsets[0::2], offsets[1::2] = start, end
    every = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return every.take(pa.array(np.arange(0, len(offsets), 2)))


def placed(pieces: Sequence[pa.Array], rows: Sequence[Numbers], count: int, kind: pa.DataType) -> pa.Array:
    """`count` values: the pieces at their rows, null at all others. A later piece replaces an earlier one at the same row."""
    if not pieces:
        return pa.nulls(count, kind)
    if len(pieces) == 1 and len(rows[0]) == count:
        return pieces[0]
    place = np.full(count, -1, np.int64)
    place[np.concatenate(rows)] = np.arange(sum(map(len, rows)))
    return pa.concat_arrays(pieces).take(pa.array(place, mask=place < 0))


def without(values: pa.Array, which: Numbers) -> pa.Array:
    """The values, with null where `which` is true."""
    if not which.any():
        return values
    return pc.if_else(pa.array(~which), values, pa.scalar(None, values.type))
