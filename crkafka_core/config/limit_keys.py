"""Keys of the configuration for time limits and counts, one for each of `model.limits.Limits`, with its default; and durations and sizes
with units: `60s`, `5m`, `250ms`, `64MiB`, of which a bare number is seconds or bytes."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, StrictInt, WithJsonSchema

from crkafka_core.config.typed import STRICT
from crkafka_core.model.limits import Limits

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
DEFAULT = Limits()
MOST = 1_000_000_000
"""Largest count, which fits SQL."""


class LimitKeys(BaseModel):
    """Base of the region's configuration with these keys."""

    model_config = STRICT

    retain: StrictInt = Field(DEFAULT.retain, ge=1, le=MOST)
    """Merged checkpoints whose segments are kept; a reset can go back to them."""
    history: StrictInt = Field(DEFAULT.history, ge=0, le=MOST)
    """Archived checkpoints that replay can still address; 0 keeps all."""
    hold_max: Seconds = DEFAULT.hold_max
    """A table or reader that holds back retirement for longer is reported."""
    drain_timeout: Seconds = Field(DEFAULT.drain_timeout, gt=0)
    """Deadline of a cut."""
    handover_timeout: Seconds = Field(DEFAULT.handover_timeout, gt=0)
    """Deadline of a handover: who has not contributed by then is left out, and its records are read again."""
    reset_timeout: Seconds = Field(DEFAULT.reset_timeout, gt=0)
    """A reset that takes longer is tried again."""
    start_grace: Seconds = DEFAULT.start_grace
    """Time for which a start waits for the wanted number of members."""
    settle_timeout: Seconds | None = None
    """A group that is unsettled for longer raises an alarm; by default three sessions."""
    isolation_timeout: Seconds = DEFAULT.isolation_timeout
    """Time after its lease at which a member that cannot reach SQL leaves the group."""
    stale_generation: Seconds = DEFAULT.stale_generation
    """Time with an older generation than another's after which a member is lost."""
    unheld_timeout: Seconds = DEFAULT.unheld_timeout
    """Time without a holder of a partition after which a member forces a rebalance."""
    max_consecutive_resets: StrictInt = Field(DEFAULT.max_consecutive_resets, ge=1, le=MOST)
    """Resets in a row at which the region stops."""
    forced_budget: StrictInt = Field(DEFAULT.forced_budget, ge=1, le=MOST)
    """Losses of one member within `forced_window` at which the region stops."""
    forced_window: Seconds = DEFAULT.forced_window
    """Window of `forced_budget`."""
    forced_without_cut: StrictInt = Field(DEFAULT.forced_without_cut, ge=1, le=MOST)
    """Losses of one member without a completed cut in between at which the region stops."""
    backoff_base: Seconds = DEFAULT.backoff_base
    """The nth consecutive reset waits this times 2ⁿ."""
    backoff_cap: Seconds = DEFAULT.backoff_cap
    """Longest wait before a reset."""
    driver_lease: Seconds = Field(DEFAULT.driver_lease, gt=0)
    """Length of the lease of a driver of cuts, a writer of a table or a reader of checkpoints."""

    def _limits(self, session_timeout: float) -> Limits:
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(Limits) if f.name != "session_timeout"}
        if values["settle_timeout"] is None:
            values["settle_timeout"] = 3 * session_timeout
        return Limits(session_timeout=session_timeout, **values)
