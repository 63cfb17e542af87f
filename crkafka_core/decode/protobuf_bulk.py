"""Decodes many plain Protobuf messages at once by numpy; the others are left to Protobuf's parser, one by one.

Those are messages with a repeated occurrence of a field, two fields of a `oneof`, an unnamed enum number, or numbers in overlong forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as of

from crkafka_core.decode import cursor as reading
from crkafka_core.decode import fitting_bulk as fits
from crkafka_core.decode.cursor import Cursor, Numbers
from crkafka_core.decode.fitting_bulk import NoBulk
from crkafka_core.decode.registry import Schema

Make = Callable[[Cursor, Numbers, Numbers], pa.Array]
"""Makes a column from values: numbers, or starts and ends of bytes."""

TIMESTAMP = "google.protobuf.Timestamp"
Indexes = tuple[int, ...]
"""Of a message in its file, from the outermost inwards."""
NONE: Indexes = ()
"""The indexes of no message."""
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
"""Wire types, the lowest three bits of a tag."""
_DEEP = 90
"""Most levels of nested messages; parsers refuse more than 100."""
_SHORT = 5
"""Most bytes of a tag or a length."""


def bulk(
    message: Any, kind: pa.DataType, times: bool, frame: Callable[[Cursor], None] | None
) -> Callable[[pa.Array], pa.Array] | None:
    """The decoder of messages with this descriptor, to structs, or null for a failed one. `frame` skips a message's frame."""
    try:
        if _values(message, {}) > fits.MOST_VALUES:
            return None
        read = _Message(message, kind, times, ())
    except (NoBulk, RecursionError):
        return None

    def decode(values: pa.Array) -> pa.Array:
        cursor = Cursor.over(values)
        if frame is not None:
            frame(cursor)
        return fits.struct(cursor, kind, read.columns(cursor), failed=True)

    return decode


def _values(message: Any, known: dict[str, int]) -> int:
    """Number of values of a message, including those of its messages at each use."""
    if message.full_name not in known:
        known[message.full_name] = 1  # a recursive message has no plan
        inner = [f.message_type for f in message.fields if f.message_type is not None]
        known[message.full_name] = len(message.fields) + sum(_values(each, known) for each in inner)
    return known[message.full_name]


def message_names(schema: Schema) -> dict[Indexes, str]:
    """Full names of the messages of a Protobuf file in a registry; ValueError if the schema is not Protobuf."""
    if schema.kind != "PROTOBUF":
        raise ValueError(f"the schema of its id is {schema.kind}, not Protobuf")
    try:
        file = schema.file()
    except ValueError as error:
        raise ValueError(f"the schema of its id cannot be read as Protobuf: {error}") from None
    return dict(_named(file.message_type, (), file.package))


def _named(messages: Iterable[Any], above: Indexes, space: str) -> Iterator[tuple[Indexes, str]]:
    for at, message in enumerate(messages):
        name = f"{space}.{message.name}" if space else message.name
        yield (*above, at), name
        yield from _named(message.nested_type, (*above, at), name)


def past_frame(cursor: Cursor, wanted: Callable[[int], Indexes | None]) -> None:
    """Skip the registry's id and the message's indexes; fails if these are not `wanted(id)`. None: any."""
    ids = cursor.schema_id()
    for number in np.unique(ids[~cursor.failed]).tolist():
        part = cursor.part(rows := np.flatnonzero((ids == number) & ~cursor.failed))
        _past_indexes(part, wanted(number))
        cursor.back(rows, part)


def _past_indexes(cursor: Cursor, wanted: Indexes | None) -> None:
    """Skip the indexes: their count, then each; none is the first message."""
    count = cursor.zigzag()
    if wanted is None:
        cursor.fail((count < 0) | (count > fits.MOST))
    else:
        cursor.fail(np.where(count == 0, wanted != (0,), count != len(wanted)))
    for at in range(int(count[~cursor.failed].max(initial=0))):
        part = cursor.part(rows := np.flatnonzero((count > at) & ~cursor.failed))
        index = part.zigzag()
        if wanted is not None:
            part.fail(index != wanted[at])
        cursor.back(rows, part)


def is_repeated(field: Any) -> bool:
    """Whether a field is repeated; older versions of Protobuf have only a label for it."""
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


class _Message:
    """Reads messages of one type as structs. `kind` is None if no column needs them; they must still be valid."""

    def __init__(self, message: Any, kind: pa.DataType | None, times: bool, inside: tuple[str, ...]) -> None:
        wanted = {f.name: f.type for f in kind} if kind is not None and of.is_struct(kind) else {}
        if (
            len(inside) > _DEEP
            or (kind is not None and not wanted)
            or message.full_name in inside
            or message.is_extendable
        ):
            raise NoBulk(message.full_name)
        self.kind = kind
        fields = sorted(message.fields, key=lambda f: f.number)
        self.fields = [_Field(f, wanted.get(f.name), times, (*inside, message.full_name)) for f in fields]
        self.numbers = [f.number for f in fields]
        self.tags = [tag for each in self.fields for tag in each.tags]
        self.choices = [[f.name for f in one.fields] for one in message.oneofs if len(one.fields) > 1]

    def __call__(self, cursor: Cursor) -> pa.Array:
        columns = self.columns(cursor)
        return pa.nulls(len(cursor.at)) if self.kind is None else fits.struct(cursor, self.kind, columns)

    def columns(self, cursor: Cursor) -> dict[str, pa.Array]:
        """The columns by name. Fields are read in their usual order; fields in another order are read in the next round."""
        values = {each.name: each.empty(cursor) for each in self.fields}
        tags = _tags(cursor)
        for _ in range(fits.MOST):
            for each in self.fields:
                each.read(cursor, tags, values[each.name])
            rows = np.flatnonzero(tags)
            if not len(rows):
                break
            self._skip(cursor, tags, rows[~np.isin(tags[rows], self.tags)])
        cursor.fail(tags != 0)
        for names in self.choices:
            cursor.fail(np.sum([values[name].present for name in names], axis=0) > 1)
        return {each.name: each.column(cursor, values[each.name]) for each in self.fields}

    def _skip(self, cursor: Cursor, tags: Numbers, rows: Numbers) -> None:
        """Skip unknown fields. A known field with another wire type fails, and so does a group."""
        part, way = cursor.part(rows), tags[rows] & 7
        part.fail(np.isin(tags[rows] >> 3, self.numbers) | ~np.isin(way, [_VARINT, _EIGHT, _BYTES, _FOUR]))
        for one in (_VARINT, _EIGHT, _BYTES, _FOUR):
            of_way = np.flatnonzero((way == one) & ~part.failed)
            some = part.part(of_way)
            _value(some, one)
            part.back(of_way, some)
        tags[rows] = _tags(part)
        cursor.back(rows, part)


class _Values:
    """Values of one field: whether it is present, and its numbers, or starts and ends of its bytes; all items of lists, in pieces."""

    def __init__(self, first: Numbers, last: Numbers) -> None:
        self.first, self.last = first, last
        self.present = np.zeros(len(first), bool)
        self.items: list[tuple[Numbers, Numbers, Numbers]] = []
        """Rows of the items, and the items."""


class _Field:
    """Reads one field."""

    def __init__(self, field: Any, kind: pa.DataType | None, times: bool, inside: tuple[str, ...]) -> None:
        self.name, self.presence, self.kind = field.name, field.has_presence, kind
        self.repeated = is_repeated(field)
        required = field.is_required if hasattr(field, "is_required") else field.label == field.LABEL_REQUIRED
        if required or (self.repeated and kind is not None and not of.is_list(kind)):
            raise NoBulk(field.full_name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            raise NoBulk(field.full_name)
        one = kind.value_type if self.repeated and kind is not None else kind
        self.way, self.make = _way_and_make(field, one, times, inside)
        self.tags = [field.number << 3 | self.way]
        if self.repeated and self.way != _BYTES:
            self.tags.append(field.number << 3 | _BYTES)  # packed: all items one after the other

    def empty(self, cursor: Cursor) -> _Values:
        if self.way == _BYTES:
            return _Values(cursor.at.copy(), cursor.at.copy())
        return _Values(none := np.zeros(len(cursor.at), np.uint64), none)

    def read(self, cursor: Cursor, tags: Numbers, values: _Values) -> None:
        """Read the field in all messages that it comes next in."""
        for tag in self.tags:
            while len(rows := np.flatnonzero(tags == tag)):
                part = cursor.part(rows)
                if not self.repeated or len(values.items) > fits.MOST:
                    part.fail(values.present[rows])
                values.present[rows] = True
                first, last = _value(part, tag & 7)
                if not self.repeated:
                    values.first[rows], values.last[rows] = first, last
                elif tag & 7 == self.way:
                    values.items.append((rows, first, last))
                else:
                    self._unpack(part, rows, Cursor(part.data, first, last), values)
                tags[rows] = _tags(part)
                cursor.back(rows, part)

    def _unpack(self, part: Cursor, rows: Numbers, packed: Cursor, values: _Values) -> None:
        for _ in range(fits.MOST):
            left = np.flatnonzero(packed.at < packed.end)
            if not len(left):
                break
            some = packed.part(left)
            values.items.append((rows[left], *_value(some, self.way)))
            packed.back(left, some)
        part.fail(packed.failed | (packed.at < packed.end))

    def column(self, cursor: Cursor, values: _Values) -> pa.Array:
        if self.repeated:
            return self._lists(cursor, values)
        if not self.presence or values.present.all():
            return self.make(cursor, values.first, values.last)
        rows = np.flatnonzero(values.present)
        part = cursor.part(rows)
        made = self.make(part, values.first[rows], values.last[rows])
        cursor.back(rows, part)
        return reading.placed([made], [rows], len(values.present), made.type)

    def _lists(self, cursor: Cursor, values: _Values) -> pa.Array:
        none = (np.zeros(0, np.int64), values.first[:0], values.last[:0])
        rows, first, last = map(np.concatenate, zip(none, *values.items, strict=True))
        order = np.argsort(rows, kind="stable")
        rows, first, last = rows[order], first[order], last[order]
        items = Cursor(cursor.data, begin := np.zeros(len(rows), np.int64), begin)
        made = self.make(items, first, last)
        wrong = np.zeros(len(cursor.at), bool)
        wrong[rows[items.failed]] = True
        cursor.fail(wrong)
        return pa.nulls(len(wrong)) if self.kind is None else fits.lists(cursor, self.kind, made, rows)


def _tags(cursor: Cursor) -> Numbers:
    """The next tag; 0 at the end of a message, or if it failed."""
    tags = np.zeros(len(cursor.at), np.int64)
    rows = np.flatnonzero(cursor.at < cursor.end)
    part = cursor.part(rows)
    read = part.varint(_SHORT)
    part.fail((read < 8) | (read >= 2**32))
    cursor.back(rows, part)
    tags[rows] = np.where(part.failed, 0, read)
    return tags


def _value(cursor: Cursor, way: int) -> tuple[Numbers, Numbers]:
    """A number, twice, or the start and end of bytes."""
    if way == _BYTES:
        return cursor.bytes(cursor.varint(_SHORT).view(np.int64))
    values = cursor.varint() if way == _VARINT else cursor.fixed(np.uint64 if way == _EIGHT else np.uint32)
    return (values := values.astype(np.uint64, copy=False)), values


def _way_and_make(field: Any, kind: pa.DataType | None, times: bool, inside: tuple[str, ...]) -> tuple[int, Make]:
    if field.type == field.TYPE_MESSAGE:
        if times and field.message_type.full_name == TIMESTAMP:
            return _BYTES, _moment(field.message_type, kind if kind is not None else pa.timestamp("us"))
        return _BYTES, _inner(_Message(field.message_type, kind, times, inside))
    if field.type in (field.TYPE_STRING, field.TYPE_BYTES):
        text = field.type == field.TYPE_STRING
        kind = kind if kind is not None else pa.binary()
        if not (of.is_binary(kind) or of.is_string(kind)):
            raise NoBulk(kind)
        return _BYTES, lambda c, first, last: fits.texts(c, reading.blobs(c.data, first, last), kind, text)
    if field.type not in _NUMBERS:
        raise NoBulk(field.full_name)
    way, read, natural = _NUMBERS[field.type]
    fit = _fit(field, kind if kind is not None else natural)
    return way, lambda cursor, values, _: fit(cursor, read(cursor, values))


def _fit(field: Any, kind: pa.DataType) -> fits.Fit:
    if field.type == field.TYPE_ENUM:
        named = field.enum_type.values_by_number
        numbers = sorted(named)
        return fits.symbols(kind, [named[number].name for number in numbers], np.array(numbers))
    if field.type == field.TYPE_BOOL:
        return fits.truths(kind)
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return fits.fractions(kind, field.type == field.TYPE_FLOAT)
    return fits.whole(kind)


def _inner(read: Callable[[Cursor], pa.Array]) -> Make:
    def make(cursor: Cursor, first: Numbers, last: Numbers) -> pa.Array:
        inner = Cursor(cursor.data, first, last)
        values = read(inner)
        cursor.fail(inner.failed)
        return values

    return make


def _moment(message: Any, kind: pa.DataType) -> Make:
    if [(f.name, f.type, f.has_presence) for f in message.fields] != [("seconds", 3, False), ("nanos", 5, False)]:
        raise NoBulk(message.full_name)
    parts = _Message(message, pa.struct([("seconds", pa.int64()), ("nanos", pa.int64())]), False, ())
    fit = fits.moments(kind, 1)

    def read(cursor: Cursor) -> pa.Array:
        columns = parts.columns(cursor)
        seconds, nanos = columns["seconds"].to_numpy(), columns["nanos"].to_numpy()
        wrong = (seconds < fits.FIRST // 10**6) | (seconds > fits.LAST // 10**6) | (nanos < 0) | (nanos >= 10**9)
        cursor.fail(wrong)
        return fit(cursor, np.where(wrong, 0, seconds) * 10**6 + np.where(wrong, 0, nanos) // 1000)

    return _inner(read)


def _same(_: Cursor, values: Numbers) -> Numbers:
    return values


def _signed(_: Cursor, values: Numbers) -> Numbers:
    return values.view(np.int64)


def _int32(cursor: Cursor, values: Numbers) -> Numbers:
    """Numbers of 32 bits; longer ones, which parsers truncate, are left to them."""
    values = values.view(np.int64)
    cursor.fail((values < -(2**31)) | (values >= 2**31))
    return values


def _uint32(cursor: Cursor, values: Numbers) -> Numbers:
    cursor.fail(values >= 2**32)
    return values


_NUMBERS: dict[int, tuple[int, Callable[[Cursor, Numbers], Numbers], pa.DataType]] = {
    1: (_EIGHT, lambda _, values: values.view(np.float64), pa.float64()),  # double
    2: (_FOUR, lambda _, values: values.astype(np.uint32).view(np.float32), pa.float64()),  # float
    3: (_VARINT, _signed, pa.int64()),  # int64
    4: (_VARINT, _same, pa.uint64()),  # uint64
    5: (_VARINT, _int32, pa.int64()),  # int32
    6: (_EIGHT, _same, pa.uint64()),  # fixed64
    7: (_FOUR, _same, pa.int64()),  # fixed32
    8: (_VARINT, _same, pa.bool_()),  # bool
    13: (_VARINT, _uint32, pa.int64()),  # uint32
    14: (_VARINT, _int32, pa.string()),  # enum
    15: (_FOUR, lambda _, values: values.astype(np.uint32).view(np.int32).astype(np.int64), pa.int64()),  # sfixed32
    16: (_EIGHT, _signed, pa.int64()),  # sfixed64
    17: (_VARINT, lambda cursor, values: reading.unzigzag(_uint32(cursor, values)), pa.int64()),  # sint32
    18: (_VARINT, lambda _, values: reading.unzigzag(values), pa.int64()),  # sint64
}
"""By the number of a field's type in descriptors: its wire type, the conversion of its bits, and its type if no column needs it."""
