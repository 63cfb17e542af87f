"""Durations and sizes with units: `60s`, `5m`, `250ms`, `64MiB`; a bare number is seconds or bytes."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_QUANTITY = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def seconds(value: Any) -> float:
    """A duration in seconds; never negative."""
    return _read(value, _SECONDS, "s", "duration", "60s, 5m or 250ms")


def size(value: Any) -> int:
    """A size in bytes; never negative."""
    return int(_read(value, _BYTES, "b", "size", "64MiB or 500kB"))


def _read(value: Any, units: dict[str, Any], bare: str, what: str, such: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"must be a {what} such as {such}, not {value!r}")
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    unit = (match[2].lower() or bare) if match else ""
    if isinstance(value, str) and unit not in units:
        raise ValueError(f"must be a {what} such as {such}, not {value!r}; units are {', '.join(units)}")
    number = float(match[1]) * float(units[unit]) if match else float(value)
    if not 0 <= number < 1e15:
        raise ValueError(f"must not be {'negative' if number < 0 else 'endless'}: {value!r} is no {what}")
    return number


def _schema(kind: str, units: str, *examples: str) -> WithJsonSchema:
    """For editors: a bare number, or a text with a unit."""
    text = {"type": "string", "pattern": rf"^\s*\d+(\.\d+)?\s*({units})?\s*$"}
    return WithJsonSchema({"anyOf": [{"type": kind, "minimum": 0}, text], "examples": list(examples)})


Seconds = Annotated[float, BeforeValidator(seconds), _schema("number", "ms|s|m|min|h|d", "60s", "5m", "250ms")]
"""A field in seconds that also takes `60s`, `5m`, `250ms`."""

Size = Annotated[int, BeforeValidator(size), _schema("integer", "([kKmMgG][iI]?)?[bB]", "64MiB", "500kB")]
"""A field in bytes that also takes `64MiB`, `500kB`."""
