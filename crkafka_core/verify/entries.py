"""What a table's own log has of its commits and data files, as `verify` compares it (SPEC K6)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DataFile:
    """One file of a version."""

    path: str
    """Relative to the table."""
    lowest: Mapping[str, Any]
    """Column → the least value, where the log has it."""
    kept: Sequence[bool] | None = None
    """Where rows are marked as deleted beside the file: for each row up to the last marked one, whether it is there."""


@dataclass(frozen=True)
class LogEntry:
    """One commit."""

    version: str
    uid: str
    """The region that made it; empty: not made by crkafka."""
    permit: int
    changes_rows: bool
    """It brings rows, or takes files; what it only deletes the rows that are left show."""

    @classmethod
    def of(cls, version: str, text: str | None, *, changes_rows: bool) -> LogEntry:
        """`text`: what the commit carries of its maker."""
        try:
            read = json.loads(text or "")
            stamp = read.get("crkafka", read)  # in Iceberg the stamp is all
            return cls(version, str(stamp["uid"]), int(stamp.get("number", stamp.get("permit"))), changes_rows)
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls(version, "", 0, changes_rows)
