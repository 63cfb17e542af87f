"""Single values as Iceberg writes them: bounds of columns in manifests, and partition values."""

from __future__ import annotations

import decimal
import math
import re
import struct
import uuid
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PACKED = {"int": "<i", "date": "<i", "float": "<f", "double": "<d"}
_EXACT = decimal.Context(prec=76)
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def to_bytes(value: Any, kind: str) -> bytes:
    """A bound. Raises TypeError or ValueError for a value that is not of this kind."""
    value = plain(value, kind)
    if kind == "boolean":
        return b"\1" if value else b"\0"
    if kind == "string":
        return str(value).encode()
    if kind == "uuid":
        return value.bytes if isinstance(value, uuid.UUID) else bytes(value)
    if kind == "binary" or kind.startswith("fixed"):
        return bytes(value)
    if match := _DECIMAL.fullmatch(kind):
        unscaled = int(decimal.Decimal(value).scaleb(int(match[2]), _EXACT))
        return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
    return struct.pack(_PACKED.get(kind, "<q"), value)


def from_bytes(content: bytes, kind: Any) -> Any:
    """A bound as Python has it; None where this kind has none here. A widened column has bounds of the narrow kind in old files."""
    if kind == "string":
        try:
            return content.decode()
        except UnicodeDecodeError:  # some writers cut a bound inside of a character
            return None
    if kind in ("binary", "uuid") or str(kind).startswith("fixed"):
        return bytes(content)
    if kind == "boolean":
        return content != b"\0"
    if kind in ("float", "double"):
        return struct.unpack("<f" if len(content) == 4 else "<d", content)[0]
    if match := _DECIMAL.fullmatch(str(kind)):
        return decimal.Decimal(int.from_bytes(content, "big", signed=True)).scaleb(-int(match[2]), _EXACT)
    number = int.from_bytes(content, "little", signed=True)
    if kind in ("int", "long"):
        return number
    if kind == "date":
        return date.fromordinal(_EPOCH.toordinal() + number)
    if kind == "time":
        return (datetime.min + timedelta(microseconds=number)).time()
    if kind in ("timestamp", "timestamptz"):
        at = _EPOCH + timedelta(microseconds=number)
        return at if kind == "timestamptz" else at.replace(tzinfo=None)
    return None


def plain(value: Any, kind: str) -> Any:
    """A value as the number, text or bytes that Iceberg stores."""
    if isinstance(value, datetime):
        if kind == "date":
            return value.toordinal() - _EPOCH.toordinal()
        at = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (at - _EPOCH) // _MICROSECOND * (1000 if kind.endswith("_ns") else 1)
    if isinstance(value, date):
        return value.toordinal() - _EPOCH.toordinal()
    if isinstance(value, time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    return value


def is_bound(value: Any) -> bool:
    """Whether a value may be a bound: NaN has no place in an order."""
    return value is not None and not (isinstance(value, float) and math.isnan(value))
