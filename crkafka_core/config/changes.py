"""Differences between two configurations of one region, key by key, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crkafka_core.config.region_config import RegionConfig


@dataclass(frozen=True)
class Change:
    """A key with different values."""

    key: str
    before: Any
    """None if it was missing."""
    after: Any

    def __str__(self) -> str:
        return f"{self.key}: {_in_words(self.before)} → {_in_words(self.after)}"


def changes(before: RegionConfig, after: RegionConfig) -> list[Change]:
    """The keys with different values, as written: with references and no secrets."""
    old, new = (_flat(config.model_dump(mode="json", by_alias=True)) for config in (before, after))
    return [Change(key, old.get(key), new.get(key)) for key in sorted(old | new) if old.get(key) != new.get(key)]


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, inner in value.items():
        if key == "tables":
            out |= {f"tables.{t['name']}": {k: v for k, v in t.items() if k != "name"} for t in inner}
        elif isinstance(inner, Mapping):
            out |= _flat(inner, f"{prefix}{key}.")
        elif inner is not None:
            out[f"{prefix}{key}"] = inner
    return out


def _in_words(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, Mapping):  # `delta var/t typed: json: order.schema.json kept_fresh`
        words = {k: str(v) if k in ("format", "path") else f"{k}: {_in_words(v)}" for k, v in value.items() if v}
        return " ".join(key if value[key] is True else text for key, text in words.items())
    return str(value)
