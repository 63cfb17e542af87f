"""Decodes many plain Avro records at once by numpy; the others are left to fastavro, one by one.

A plan is made from the writer's schema, the reader's, and the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as of

from crkafka_core.decode import cursor as reading
from crkafka_core.decode import fitting_bulk as fits
from crkafka_core.decode.cursor import Cursor, Numbers
from crkafka_core.decode.fitting import fitter, nullable
from crkafka_core.decode.fitting_bulk import NoBulk

Read = Callable[[Cursor], pa.Array]
"""Reads one value of each record, and advances."""

_MOMENTS = {
    f"{local}timestamp-{unit}": micros for local in ("", "local-") for unit, micros in (("millis", 1000), ("micros", 1))
}
_PROMOTED = {("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double")}
_PROMOTED |= {("float", "double"), ("string", "bytes"), ("bytes", "string")}
_CANONICAL = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_NATURAL = {"int": pa.int64(), "long": pa.int64(), "float": pa.float64(), "double": pa.float64(), "bytes": pa.binary()}
_NATURAL |= {"boolean": pa.bool_(), "string": pa.string(), "enum": pa.string(), "fixed": pa.binary(), "null": pa.null()}


def plan(writer: Any, reader: Any, kind: pa.DataType) -> Read | None:
    """The plan for whole records: structs, or null for a failed record. None: only one by one."""
    if not of.is_struct(kind) or not kind.num_fields or not isinstance(writer, Mapping):
        return None
    reader = None if reader == writer else reader  # as fastavro does
    try:
        columns = _Plan(writer, reader).columns(writer, reader, kind, ())
    except (NoBulk, ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError):
        return None  # fastavro reports what is wrong with a schema

    def read(cursor: Cursor) -> pa.Array:
        values = columns(cursor)
        cursor.fail(cursor.at != cursor.end)
        return fits.struct(cursor, kind, values, failed=True)

    return read


class _Plan:
    """Makes the readers of values; `kind` is None if no column needs the value, which must still be valid."""

    def __init__(self, writer: Mapping[str, Any], reader: Any) -> None:
        self._writers = writer.get("__named_schemas", {})
        self._readers = reader.get("__named_schemas", {}) if isinstance(reader, Mapping) else {}
        self._count = 0

    def value(self, writer: Any, reader: Any, kind: pa.DataType | None, inside: tuple[str, ...]) -> Read:
        self._count += 1
        if self._count > fits.MOST_VALUES:
            raise NoBulk("so many values")
        if isinstance(writer, list):
            return self._union(writer, reader, kind, inside)
        if isinstance(reader, list):
            reader = _branch(writer, reader)
        if isinstance(writer, str) and writer in self._writers:
            if reader is not None and (reader != writer or writer not in self._readers):
                raise NoBulk(writer)
            reader = None if reader is None else self._readers[writer]
            writer = self._writers[writer]
        name, latest = _type(writer), None if reader is None else _type(reader)
        if latest not in (None, name) and (name, latest) not in _PROMOTED:
            raise NoBulk(writer)
        if name in ("record", "error"):
            return self._record(writer, reader, kind, inside)
        if name == "array":
            return self._array(writer, reader, kind, inside)
        if isinstance(writer, Mapping) and "logicalType" in writer:
            return _logical(name, writer, kind)
        return _plain(name, latest, writer, reader, _wanted(kind, _NATURAL.get(name)))

    def _union(self, writer: list[Any], reader: Any, kind: pa.DataType | None, inside: tuple[str, ...]) -> Read:
        """Reader of a union of one type, or one and null."""
        at = next((i for i, each in enumerate(writer) if each != "null"), None)
        if at is None or len(writer) > 2 or (len(writer) == 2 and writer[1 - at] != "null"):
            raise NoBulk(writer)
        read = self.value(writer[at], reader, kind, inside)
        takes_null = reader is None or (isinstance(reader, list) and "null" in reader)
        null = 2 * (1 - at) if len(writer) == 2 and takes_null else 2 * at

        def optional(cursor: Cursor) -> pa.Array:
            branch = cursor.varint()
            cursor.fail((branch != 2 * at) & (branch != null))
            rows = np.flatnonzero((branch == 2 * at) & ~cursor.failed)
            part = cursor.part(rows)
            values = read(part)
            cursor.back(rows, part)
            return reading.placed([values], [rows], len(branch), values.type)

        return optional

    def _record(self, writer: Any, reader: Any, kind: pa.DataType | None, inside: tuple[str, ...]) -> Read:
        if kind is not None and (not of.is_struct(kind) or not kind.num_fields):
            raise NoBulk(kind)
        columns = self.columns(writer, reader, pa.struct([]) if kind is None else kind, inside)

        def record(cursor: Cursor) -> pa.Array:
            values = columns(cursor)
            return pa.nulls(len(cursor.at)) if kind is None else fits.struct(cursor, kind, values)

        return record

    def columns(
        self, writer: Any, reader: Any, kind: pa.StructType, inside: tuple[str, ...]
    ) -> Callable[[Cursor], dict[str, pa.Array]]:
        """Reader of a record's fields as the wanted columns, by name."""
        if _type(writer) not in ("record", "error") or writer["name"] in inside:
            raise NoBulk(writer)
        inside = (*inside, writer["name"])
        latest = None if reader is None else {f["name"]: f for f in _same(writer, reader)["fields"]}
        wanted = {f.name: f.type for f in kind}
        reads: list[tuple[str, Read]] = []
        for each in writer["fields"]:
            name, of_reader = each["name"], latest.pop(each["name"], None) if latest is not None else None
            column = wanted.get(name) if latest is None or of_reader is not None else None
            reads.append((name, self.value(each["type"], of_reader and of_reader["type"], column, inside)))
            if column is None and name in wanted:
                raise NoBulk(f"{name} is none of the reader's")
        if any("default" not in f for f in (latest or {}).values()):
            raise NoBulk(writer)
        given = {name: _default(f, wanted[name]) for name, f in (latest or {}).items() if name in wanted}

        def columns(cursor: Cursor) -> dict[str, pa.Array]:
            values = {name: read(cursor) for name, read in reads}
            zeros = pa.array(np.zeros(len(cursor.at), np.int64))
            return values | {name: one.take(zeros) for name, one in given.items()}

        return columns

    def _array(self, writer: Any, reader: Any, kind: pa.DataType | None, inside: tuple[str, ...]) -> Read:
        """Reader of an array: blocks of items with their count in front; the last count is 0."""
        if kind is not None and not of.is_list(kind):
            raise NoBulk(kind)
        latest = None if reader is None else reader["items"]
        read = self.value(writer["items"], latest, None if kind is None else kind.value_type, inside)

        def array(cursor: Cursor) -> pa.Array:
            pieces, of_rows = _items(cursor, read)
            if kind is None:
                return pa.nulls(len(cursor.at))
            items = pa.concat_arrays(pieces) if pieces else pa.array([], nullable(kind.value_type))
            return fits.lists(cursor, kind, items, np.concatenate([np.empty(0, np.int64), *of_rows]))

        return array


def _items(cursor: Cursor, read: Read) -> tuple[list[pa.Array], list[Numbers]]:
    """Items and their rows: each round reads one item of each list."""
    pieces: list[pa.Array] = []
    of_rows: list[Numbers] = []
    left, rows = np.zeros(len(cursor.at), np.int64), np.arange(len(cursor.at))
    for _ in range(fits.MOST + 1):
        part = cursor.part(new := rows[left[rows] == 0])
        left[new] = part.zigzag()
        part.fail(left[new] < 0)  # a block with its size in bytes, which is rare
        cursor.back(new, part)
        rows = rows[(left[rows] > 0) & ~cursor.failed[rows]]
        if not len(rows):
            return pieces, of_rows
        part = cursor.part(rows)
        pieces.append(read(part))
        of_rows.append(rows)
        cursor.back(rows, part)
        left[rows] -= 1
    late = np.zeros(len(cursor.at), bool)
    late[rows] = True
    cursor.fail(late)
    return pieces, of_rows


def _type(schema: Any) -> str:
    name = schema["type"] if isinstance(schema, Mapping) else schema
    if not isinstance(name, str):
        raise NoBulk(schema)
    return name


def _branch(writer: Any, union: list[Any]) -> Any:
    """The branch of a reader's union, of one type or one and null, that a writer's type is read as."""
    others = [each for each in union if each != "null"]
    if writer == "null" and "null" in union:
        return "null"
    if len(others) != 1:
        raise NoBulk(union)
    return others[0]


def _same(writer: Any, reader: Any) -> Any:
    """The reader's type, if it has the writer's name, and no aliases."""
    others = [reader, *reader.get("fields", ())]
    if writer["name"] != reader["name"] or any("aliases" in each for each in others):
        raise NoBulk(writer)
    return reader


def _default(field: Mapping[str, Any], kind: pa.DataType) -> pa.Array:
    """The default value, converted to the column's type as in decoding one record."""
    given = field["default"]
    try:
        return pa.array([None if given is None else fitter(kind)(given)], nullable(kind))
    except Exception as error:  # decoded one by one, each record has it as its reason
        raise NoBulk(field) from error


def _plain(name: str, latest: str | None, writer: Any, reader: Any, kind: pa.DataType | None) -> Read:
    if name == "null":
        return lambda cursor: pa.nulls(len(cursor.at), nullable(kind))
    if name in ("int", "long"):
        if latest in ("float", "double") and not of.is_float64(kind):
            raise NoBulk(kind)
        return _numbers(fits.whole(kind))
    if name in ("float", "double"):
        fraction, size = fits.fractions(kind, name == "float"), np.float32 if name == "float" else np.float64
        return lambda cursor: fraction(cursor, cursor.fixed(size))
    if name == "boolean":
        truth = fits.truths(kind)
        return lambda cursor: truth(cursor, _byte(cursor))
    if name == "enum":
        symbols = writer["symbols"]
        if reader is not None and not set(symbols) <= set(_same(writer, reader)["symbols"]):
            raise NoBulk(writer)
        return _numbers(fits.symbols(kind, symbols, np.arange(len(symbols))))
    if name == "fixed" and reader is not None and _same(writer, reader)["size"] != writer["size"]:
        raise NoBulk(writer)
    if name not in ("string", "bytes", "fixed") or not (of.is_binary(kind) or of.is_string(kind)):
        raise NoBulk(writer)
    sizes, text = _sizes(name, writer), "string" in (name, latest)
    return lambda cursor: fits.texts(cursor, reading.blobs(cursor.data, *cursor.bytes(sizes(cursor))), kind, text)


def _logical(name: str, writer: Mapping[str, Any], kind: pa.DataType | None) -> Read:
    """Reader of a logical type, by the writer's only, as in fastavro."""
    logical = writer["logicalType"]
    if logical in _MOMENTS and name == "long":
        return _numbers(fits.moments(_wanted(kind, pa.timestamp("us")), _MOMENTS[logical]))
    if (name, logical) == ("int", "date"):
        return _numbers(fits.days(_wanted(kind, pa.date32())))
    if (name, logical) in (("int", "time-millis"), ("long", "time-micros")):
        return _numbers(fits.clock(_wanted(kind, pa.string()), 1000 if name == "int" else 1))
    if logical == "decimal" and name in ("bytes", "fixed") and writer.get("size", 0) <= 8:
        scale = writer.get("scale", 0)
        kind = _wanted(kind, pa.decimal128(38, scale))
        fit, sizes = fits.decimals(kind, writer["precision"]), _sizes(name, writer)
        if kind.scale != scale:
            raise NoBulk(kind)
        return lambda cursor: fit(cursor, cursor.big(sizes(cursor)))
    if (name, logical) == ("string", "uuid") and of.is_string(_wanted(kind, pa.string())):
        return _uuid
    raise NoBulk(writer)


def _wanted(kind: pa.DataType | None, natural: pa.DataType) -> pa.DataType:
    return natural if kind is None else kind


def _uuid(cursor: Cursor) -> pa.Array:
    """UUIDs in Python's form; others, which Python also reads, fail."""
    texts = fits.texts(cursor, reading.blobs(cursor.data, *cursor.bytes(cursor.zigzag())), pa.string(), True)
    right = pc.fill_null(pc.match_substring_regex(texts, _CANONICAL), True)
    cursor.fail(~right.to_numpy(zero_copy_only=False))
    return texts


def _numbers(fit: fits.Fit) -> Read:
    return lambda cursor: fit(cursor, cursor.zigzag())


def _byte(cursor: Cursor) -> Numbers:
    byte = cursor.data[cursor.at]
    cursor.step(1)
    return byte


def _sizes(name: str, writer: Any) -> Callable[[Cursor], Numbers]:
    if name == "fixed":
        size = np.int32(writer["size"])  # no record has a larger one
        return lambda cursor: np.full(len(cursor.at), size, np.int64)
    return lambda cursor: cursor.zigzag()


class AvroByIds:
    """Decodes records by the schemas of their ids in the registry's wire format."""

    def __init__(self, kind: pa.DataType, reader: Any, known: Callable[[int], Any]) -> None:
        """`known`: the writer's schema of an id; None if it has none."""
        self._kind, self._reader, self._known = kind, reader, known
        self._plans: dict[int, Read | None] = {}

    def __call__(self, values: pa.Array) -> pa.Array:
        cursor = Cursor.over(values)
        ids = cursor.schema_id()
        pieces, of_rows = [], []
        for number in np.unique(ids[~cursor.failed]).tolist():
            if number not in self._plans:
                self._plans[number] = plan(self._known(number), self._reader, self._kind)
            read = self._plans[number]
            if read is not None:
                of_rows.append(rows := np.flatnonzero((ids == number) & ~cursor.failed))
                pieces.append(read(cursor.part(rows)))
        return reading.placed(pieces, of_rows, len(values), nullable(self._kind))
