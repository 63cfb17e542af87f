"""Converts decoded values to a column's type: texts become times, dates and decimals."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
from pyarrow import types as of

Fit = Callable[[Any], Any]
"""Converts a value that is not null to a column's type; raises `Misfit`."""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Misfit(ValueError):
    """A value that does not fit its column; the text is the reason in the dead-letter table."""


def fitter(kind: pa.DataType, path: str = "") -> Fit:
    """The conversion to a column of this type, without rounding, truncation or guesses.

    A time is ISO 8601 (without a zone: UTC) or milliseconds since 1970; a date is ISO 8601; a decimal is a number or its text; a number
    is not a text, and a boolean is not a number.
    """
    if of.is_struct(kind):
        return _struct(kind, path)
    if of.is_list(kind) or of.is_large_list(kind):
        item = _nullable(fitter(kind.value_type, path))
        return _checked(path, kind, lambda v: [item(i) for i in v], list, tuple)
    if of.is_map(kind):
        key, item = fitter(kind.key_type, path), _nullable(fitter(kind.item_type, path))

        def pairs(value: Any) -> list[tuple[Any, Any]]:
            given = value.items() if isinstance(value, Mapping) else value
            return [(key(k), item(v)) for k, v in given]

        return _checked(path, kind, pairs, Mapping, list)
    if of.is_boolean(kind):
        return _checked(path, kind, lambda v: v, bool)
    if of.is_integer(kind):
        return _checked(path, kind, _within(kind, path), int)
    if of.is_floating(kind):
        return _checked(path, kind, float, int, float, Decimal)
    if of.is_decimal(kind):
        return _checked(path, kind, lambda v: _decimal(v, kind, path), int, str, Decimal)
    if of.is_timestamp(kind):
        return _checked(path, kind, lambda v: _moment(v, kind.tz is not None, path), dt.datetime, str, int)
    if of.is_date(kind):
        return _checked(path, kind, lambda v: _date(v, path), dt.date, str)
    if of.is_string(kind) or of.is_large_string(kind):
        return _checked(
            path, kind, lambda v: v.decode() if isinstance(v, bytes) else str(v), str, bytes, uuid.UUID, dt.time
        )
    if of.is_binary(kind) or of.is_large_binary(kind):
        return _checked(path, kind, lambda v: v.encode() if isinstance(v, str) else bytes(v), str, bytes, bytearray)
    return lambda value: value


def _nullable(fit: Fit) -> Fit:
    return lambda value: None if value is None else fit(value)


def _present(fit: Fit, path: str) -> Fit:
    def of_present(value: Any) -> Any:
        if value is None:
            raise Misfit(f"column {path}: there is no value, and there has to be one")
        return fit(value)

    return of_present


def _checked(path: str, kind: pa.DataType, make: Fit, *allowed: type) -> Fit:
    """The conversion for values of these types only; a boolean never counts as a number, nor a time as a date."""

    def fit(value: Any) -> Any:
        if (
            not isinstance(value, allowed)
            or (isinstance(value, bool) and bool not in allowed)
            or (isinstance(value, dt.datetime) and dt.datetime not in allowed)
        ):
            raise Misfit(f"column {path}: {_shown(value)} is no {kind}")
        return make(value)

    return fit


def _within(kind: pa.DataType, path: str) -> Fit:
    """The conversion for numbers within the column's range."""
    signed = of.is_signed_integer(kind)
    end = 1 << (kind.bit_width - signed)
    least = -end if signed else 0

    def fit(value: Any) -> Any:
        if least <= value < end:
            return value
        raise Misfit(f"column {path}: {_shown(value)} is no {kind}")

    return fit


def _struct(kind: pa.StructType, path: str) -> Fit:
    fits = []
    for each in kind:
        inside = f"{path}.{each.name}" if path else each.name
        fit_one = fitter(each.type, inside)
        fits.append((each.name, _nullable(fit_one) if each.nullable else _present(fit_one, inside)))

    def fit(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Misfit(f"column {path}: {_shown(value)} is not an object")
        return {name: make(value.get(name)) for name, make in fits}

    return fit


def _moment(value: Any, zoned: bool, path: str) -> dt.datetime:
    if isinstance(value, str):
        text = value.strip()
        try:
            digits = text.lstrip("-")
            value = int(text) if digits.isdigit() and len(digits) > 8 else dt.datetime.fromisoformat(text)
        except ValueError:
            raise Misfit(f"column {path}: {_shown(value)} is not a time in ISO 8601") from None
    if isinstance(value, int):
        try:
            value = _EPOCH + dt.timedelta(milliseconds=value)
        except OverflowError:
            raise Misfit(f"column {path}: {value} milliseconds are past the year 9999") from None
    assert isinstance(value, dt.datetime)
    in_utc = value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
    return in_utc if zoned else in_utc.replace(tzinfo=None)


def _date(value: Any, path: str) -> dt.date:
    if isinstance(value, str):
        try:
            return dt.date.fromisoformat(value.strip())
        except ValueError:
            raise Misfit(f"column {path}: {_shown(value)} is not a date in ISO 8601") from None
    return value  # type: ignore[no-any-return]


def _decimal(value: Any, kind: pa.DataType, path: str) -> Decimal:
    """The decimal with exactly the column's scale: Arrow ends the process at one with a large exponent."""
    try:
        number = Decimal(value.strip() if isinstance(value, str) else value)
    except InvalidOperation:
        raise Misfit(f"column {path}: {_shown(value)} is not a decimal") from None
    if not number.is_finite():
        raise Misfit(f"column {path}: {_shown(value)} is not a decimal")
    if not number:
        return Decimal(0)
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    zeros = 0
    while exponent + zeros < -kind.scale and digits[-1 - zeros] == 0:
        zeros += 1
    digits, exponent = digits[: len(digits) - zeros], exponent + zeros
    if exponent < -kind.scale or len(digits) + exponent > kind.precision - kind.scale:
        raise Misfit(f"column {path}: {_shown(value)} is no {kind}")
    return Decimal((sign, digits + (0,) * (exponent + kind.scale), -kind.scale))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def has(kind: pa.DataType, check: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type, or any type inside it, passes the check."""
    return check(kind) or any(has(kind.field(i).type, check) for i in range(kind.num_fields))


def nullable(kind: pa.DataType) -> pa.DataType:
    """The same type, nullable throughout."""
    if of.is_struct(kind):
        return pa.struct([pa.field(f.name, nullable(f.type)) for f in kind])
    if of.is_list(kind):
        return pa.list_(kind.value_field.with_type(nullable(kind.value_type)))
    if of.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(nullable(kind.item_type)))
    return kind


def lacking(values: pa.Array, kind: pa.DataType) -> bool:
    """Whether a part that is required by `kind` is null in values of its nullable type."""
    if of.is_struct(kind):
        present = values.filter(values.is_valid()) if values.null_count else values
        columns = ((f, present.field(i)) for i, f in enumerate(kind))
        return any((not f.nullable and c.null_count > 0) or lacking(c, f.type) for f, c in columns)
    if of.is_list(kind):
        return lacking(values.flatten(), kind.value_type)
    return False
