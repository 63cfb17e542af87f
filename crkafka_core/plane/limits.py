"""The limits of a region as stored with it."""

from __future__ import annotations

import dataclasses
import json
from functools import lru_cache

from crkafka_core.model.limits import Limits
from crkafka_core.model.rows import Region

_KNOWN = frozenset(f.name for f in dataclasses.fields(Limits))
"""A newer program, or an older one, may have stored one more: members that still run need not know it (docs/upgrading.md)."""


@lru_cache(maxsize=256)
def _parse(text: str) -> Limits:
    return Limits(**{name: value for name, value in json.loads(text).items() if name in _KNOWN})


def of(region: Region) -> Limits:
    """The limits that everybody who drives this region goes by."""
    return _parse(region.limits_json)


def dump(limits: Limits) -> str:
    """As stored: only what differs from the defaults, so that an upgrade may better a default."""
    default = Limits()
    return json.dumps(
        {
            f.name: getattr(limits, f.name)
            for f in dataclasses.fields(Limits)
            if getattr(limits, f.name) != getattr(default, f.name)
        }
    )
