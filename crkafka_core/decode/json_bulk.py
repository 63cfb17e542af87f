"""Decodes many JSON values at once by Arrow's parser: values that are surely right; the others are left to Python.

Results equal Python's: a text never becomes a number, a fraction is never cut, and an object with duplicate keys is left to Python.
"""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyarrow import types as of

from crkafka_core.decode.cursor import placed, without
from crkafka_core.decode.fitting import has, lacking, nullable
from crkafka_core.decode.fitting_bulk import FIRST, FIRST_DAY, LAST, LAST_DAY, no_texts

_UTC = pa.timestamp("us", tz="UTC")
_ODD_NUMBER = r'[:\[,]\s*"?\s*[-+]?(?:[0-9.]*[eE][-+]?[0-9]{2,}|[0-9.]{50,})\s*[",}\]\s]|\\u00[2-6]'  # or a text that may hide one
"""Numbers that Arrow converts to wrong decimals, or that end its process: with a large exponent or very many digits."""
_BRACKETS, _DIGITS = 900, 1000
"""Of a record that Python may refuse for its nesting or a number's length, where Arrow does not look at fields that no column wants."""


class JsonBulk:
    """Decodes values of one type. Each is wrapped in an object, with its number under a random name that no record has.

    So a value cannot close its wrapper and open another: lines that are JSON only together are refused.
    """

    def __init__(self, kind: pa.StructType) -> None:
        self._strict, self.kind = kind, nullable(kind)
        self._nonce = os.urandom(16).hex()
        # Times are texts or milliseconds, the same in most of a topic: the form of the last batch is tried first.
        self._times, self._decimals = has(kind, of.is_timestamp), has(kind, of.is_decimal)
        self._bounded = self._times or has(kind, of.is_date32)
        self._millis = [False, True] if self._times else [False]

    @classmethod
    def of(cls, kind: pa.DataType) -> JsonBulk | None:
        """The decoder of a type; None if Arrow's parser does not know all types inside."""
        return cls(kind) if of.is_struct(kind) and _known(nullable(kind)) else None

    def __call__(self, values: pa.Array) -> pa.Array:
        texts, left = self._texts(values)
        rows = np.flatnonzero(~left)
        if len(rows) < len(values):
            texts = texts.take(pa.array(rows))
        lines = self._lines(texts)
        pieces, of_rows, at = [], [], 0
        for _ in range(len(lines) // 10 + 8):  # with more wrong lines the parser is slower than Python
            if at == len(lines):
                break
            stop = len(lines)
            try:
                piece = self._tried(lines[at:])
            except pa.ArrowInvalid as error:
                stop = at + _row(error)
                piece = self._tried(lines[at:stop]) if stop > at else None
            if piece is not None:
                pieces.append(piece)
                of_rows.append(rows[at:stop])
            at = min(stop + 1, len(lines))
        return placed(pieces, of_rows, len(values), self.kind)

    def _texts(self, values: pa.Array) -> tuple[pa.Array, np.ndarray[Any, Any]]:
        """Texts, and which of them Arrow's parser must not get: those that are not UTF-8, have odd numbers, or that Python may refuse."""
        try:
            texts, left = values.cast(pa.string()), np.zeros(len(values), bool)
        except pa.ArrowInvalid:
            left = no_texts(values)
            texts = without(values, left).cast(pa.string())
        if self._decimals:
            odd = pc.match_substring_regex(texts, _ODD_NUMBER)
            left |= pc.fill_null(odd, True).to_numpy(zero_copy_only=False)
        long = np.flatnonzero(pc.fill_null(pc.binary_length(texts), 0).to_numpy() > min(_BRACKETS, _DIGITS))
        if len(long):
            some = texts.take(pa.array(long))
            brackets = pc.add(pc.count_substring(some, "["), pc.count_substring(some, "{"))
            odd = pc.or_(pc.greater(brackets, _BRACKETS), pc.match_substring_regex(some, f"[0-9]{{{_DIGITS}}}"))
            left[long] |= odd.to_numpy(zero_copy_only=False)
        return texts, left

    def _lines(self, texts: pa.Array) -> pa.Array:
        numbers = pa.array(np.arange(len(texts), dtype=np.int32)).cast(pa.string())
        return pc.binary_join_element_wise(f'{{"{self._nonce}":', numbers, ',"value":', texts, "}\n", "")

    def _tried(self, lines: pa.Array) -> pa.Array:
        """The lines, parsed with times in one form or the other; else the error of the form that parsed more lines."""
        furthest: pa.ArrowInvalid | None = None
        for millis in tuple(self._millis):
            try:
                parsed = self._parsed(lines, millis)
            except pa.ArrowInvalid as error:
                if furthest is None or _row(error, -1) > _row(furthest, -1):
                    furthest = error
                continue
            self._millis.sort(key=lambda way: way != millis)
            return parsed
        assert furthest is not None
        raise furthest

    def _parsed(self, lines: pa.Array, millis: bool) -> pa.Array:
        asked, rows = _type_to_parse(self.kind, millis), len(lines)
        ends = np.frombuffer(lines.buffers()[1], np.int32, rows + 1, lines.offset * 4)
        document = lines.buffers()[2].slice(int(ends[0]), int(ends[-1] - ends[0]))
        table = pj.read_json(
            pa.BufferReader(document),
            read_options=pj.ReadOptions(use_threads=False, block_size=document.size + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema([(self._nonce, pa.int32()), ("value", asked)]),
                unexpected_field_behavior="ignore",
            ),
        )
        values = table.column("value").combine_chunks()
        numbers = pa.array(np.arange(lines.offset, lines.offset + rows, dtype=np.int32))
        in_order = len(values) == rows and table.column(0).combine_chunks().equals(numbers)
        if not in_order or values.null_count:
            raise pa.ArrowInvalid("not each line is one JSON object")
        if millis:
            values = values.cast(_in_millis(asked, self.kind))
        if self._decimals:
            values.validate(full=True)  # the parser counts digits before it adds those of the scale
        values = values if values.type == self.kind else values.cast(self.kind)
        if self._bounded and not _within_years(values):
            raise pa.ArrowInvalid("a time or date is before the year 1 or after 9999")
        if lacking(values, self._strict):
            raise pa.ArrowInvalid("a required value is missing")
        return values


_ROW = re.compile(r" in row ([0-9]+)$")


def _row(error: pa.ArrowInvalid, otherwise: int | None = None) -> int:
    """The row at which the parser stopped; raises the error if it has no row."""
    match = _ROW.search(str(error))
    if match is None and otherwise is None:
        raise error
    return int(match[1]) if match is not None else int(otherwise or 0)


def _known(kind: pa.DataType) -> bool:
    if of.is_struct(kind):
        return all(_known(f.type) for f in kind)
    if of.is_list(kind):
        return _known(kind.value_type)
    plain = (of.is_integer, of.is_floating, of.is_boolean, of.is_string, of.is_binary, of.is_decimal, of.is_date32)
    return kind == _UTC or any(check(kind) for check in plain)


def _within_years(values: pa.Array) -> bool:
    """Whether all times and dates are within Python's years, so that decoding one by one gives the same."""
    if of.is_struct(values.type):
        return all(map(_within_years, values.flatten()))
    if of.is_list(values.type):
        return _within_years(values.flatten())
    if of.is_date32(values.type):
        first, last, numbers = FIRST_DAY, LAST_DAY, values.cast(pa.int32())
    elif of.is_timestamp(values.type):
        first, last, numbers = FIRST, LAST, values.cast(pa.int64())
    else:
        return True
    bounds = pc.min_max(numbers).as_py()
    return bounds["min"] is None or (bounds["min"] >= first and bounds["max"] <= last)


def _type_to_parse(kind: pa.DataType, millis: bool) -> pa.DataType:
    """The type for the parser, which reads times only as ISO 8601, and dates as a number of days."""
    if of.is_struct(kind):
        return pa.struct([f.with_type(_type_to_parse(f.type, millis)) for f in kind])
    if of.is_list(kind):
        return pa.list_(kind.value_field.with_type(_type_to_parse(kind.value_type, millis)))
    if of.is_date32(kind):
        return pa.string()
    return pa.int64() if of.is_timestamp(kind) and millis else kind


def _in_millis(read: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """The parsed type, with milliseconds in place of times."""
    if of.is_struct(wanted):
        return pa.struct([f.with_type(_in_millis(read.field(f.name).type, f.type)) for f in wanted])
    if of.is_list(wanted):
        return pa.list_(wanted.value_field.with_type(_in_millis(read.value_type, wanted.value_type)))
    return pa.timestamp("ms", tz="UTC") if of.is_timestamp(wanted) else read
