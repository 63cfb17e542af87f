"""Many binary records read side by side: one step of numpy reads the next value of each.

A record that is not what was expected has failed: it is at its end from then on, and what is read of it means nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = np.ndarray[Any, Any]
"""One for each record."""

_PAD = 16
"""Bytes after the last record, so that its last number can be read as eight bytes, and two more, at once."""
_LARGEST = 2**31 - 1 - _PAD
"""Bytes of all records together: Arrow counts them in an `int32`."""
_TOPS = np.uint64(0x8080808080808080)
_LOW = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONE = np.uint64(1)
_FOLDS = [
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
]
"""How groups of seven bits come together: in pairs, then in pairs of pairs."""


class Cursor:
    """Where each record is read next, and where it ends; records are in the order of their bytes."""

    def __init__(self, data: Numbers, at: Numbers, end: Numbers) -> None:
        self.data, self.at, self.end = data, at, end
        self.failed = np.zeros(len(at), bool)

    @classmethod
    def over(cls, values: pa.Array) -> Cursor:
        """Of an array of bytes, in which nothing is null."""
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
        """Some of the records, by their numbers in order; `back` takes over how far it has come."""
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
        """Past what was read. Reading itself may go past the end: then this finds it."""
        self.at = self.at + sizes
        self.fail(self.at > self.end)

    def varint(self, longest: int = 10) -> Numbers:
        """Numbers of seven bits a byte, the lowest first, as `uint64`; longer ones than this many bytes fail."""
        first = self.data[self.at]
        if (first < 0x80).all():
            self.step(1)
            return first.astype(np.uint64)
        words = self._peek(np.uint64, "<")
        stops = ~words & _TOPS
        below = (stops & (~stops + _ONE)) - _ONE  # all bits below the first one that says that its byte is the last
        size = (np.bitwise_count(below) >> 3).astype(np.int64) + 1
        found = words & below & _LOW
        for low, high, shift in _FOLDS:
            found = (found & low) | ((found & high) >> shift)
        if (size > 8).any():
            self._longest(np.flatnonzero(size > 8), found, size)
        self.fail(size > longest)
        self.step(size)
        return found

    def _longest(self, rows: Numbers, found: Numbers, size: Numbers) -> None:
        """Completes numbers of nine and ten bytes; one with more bits than 64 is given the size 11."""
        ninth, tenth = (self.data[self.at[rows] + i].astype(np.uint64) for i in (8, 9))
        more = ninth >= 0x80
        found[rows] |= ((ninth & np.uint64(0x7F)) << np.uint64(56)) | np.where(more, tenth << np.uint64(63), 0)
        size[rows] = np.where(more, np.where(tenth > 1, 11, 10), 9)

    def zigzag(self) -> Numbers:
        return unzigzag(self.varint())

    def fixed(self, kind: Any) -> Numbers:
        """Numbers of a type of four or eight bytes, little-endian."""
        found = self._peek(kind, "<")
        self.step(found.itemsize)
        return found

    def _peek(self, kind: Any, order: Literal["<", ">"], ahead: int = 0) -> Numbers:
        every = np.ndarray(
            (len(self.data) - 7,), np.dtype(kind).newbyteorder(order), self.data.data, strides=(1,)
        )  # one begins at each byte
        return every[self.at + ahead if ahead else self.at].astype(kind, copy=False)

    def schema_id(self) -> Numbers:
        """Of a schema registry's wire format: a zero byte, four bytes of id."""
        zero, number = self.data[self.at], self._peek(np.int32, ">", 1)
        self.step(5)
        self.fail((zero != 0) | (number < 0))
        return number

    def big(self, sizes: Numbers) -> Numbers:
        """Signed numbers of so many bytes, the highest first; those of more than eight fail."""
        self.fail(sizes > 8)
        found = self._peek(np.int64, ">")
        start, end = self.bytes(sizes)
        return np.where(end > start, found >> (8 * np.clip(8 - sizes, 0, 7)), 0)

    def bytes(self, sizes: Numbers) -> tuple[Numbers, Numbers]:
        """From where to where as many bytes are; nothing of those that failed."""
        start = self.at
        self.fail((sizes < 0) | (sizes > self.end - start))
        start = np.where(self.failed, self.at, start)
        self.at = np.where(self.failed, self.at, start + sizes)
        return start, self.at


def unzigzag(numbers: Numbers) -> Numbers:
    return ((numbers >> _ONE) ^ (~(numbers & _ONE) + _ONE)).view(np.int64)


def blobs(data: Numbers, start: Numbers, end: Numbers) -> pa.Array:
    """The bytes from each start to its end. Each second value of an array of what is inside and what is between."""
    if not len(start):
        return pa.array([], pa.binary())
    offsets = np.empty(2 * len(start), np.int32)
    offsets[0::2], offsets[1::2] = start, end
    every = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return every.take(pa.array(np.arange(0, len(offsets), 2)))


def placed(pieces: Sequence[pa.Array], rows: Sequence[Numbers], of: int, kind: pa.DataType) -> pa.Array:
    """So many values, these at these rows, and null at all others. Of two at one row the later one is there."""
    if not pieces:
        return pa.nulls(of, kind)
    if len(pieces) == 1 and len(rows[0]) == of:
        return pieces[0]
    place = np.full(of, -1, np.int64)
    place[np.concatenate(rows)] = np.arange(sum(map(len, rows)))
    return pa.concat_arrays(pieces).take(pa.array(place, mask=place < 0))


def without(values: pa.Array, which: Numbers) -> pa.Array:
    """Null there."""
    if not which.any():
        return values
    return pc.if_else(pa.array(~which), values, pa.scalar(None, values.type))
