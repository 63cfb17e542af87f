"""Commits and data files of a table, as its own log has them (SPEC K6)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DataFile:
    """One data file of a version."""

    path: str
    """Relative to the table."""
    lowest: Mapping[str, Any]
    """Column → the least value, where the log has it."""
    kept: Sequence[bool] | None = None
    """For each row up to the last one marked as deleted beside the file: whether it is kept. None: no row is marked."""


@dataclass(frozen=True)
class LogEntry:
    """One commit in a table's log."""

    version: str
    uid: str
    """The uid of the region that made it; empty if another program did."""
    permit: int
    changes_rows: bool
    """It adds rows or removes files. A commit that only marks rows as deleted does not count: the remaining rows show it."""

    @classmethod
    def of(cls, version: str, text: str | None, *, changes_rows: bool) -> LogEntry:
        """`text`: the stamp in the commit's metadata, as JSON."""
        try:
            read = json.loads(text or "")
            stamp = read.get("crkafka", read)  # in Iceberg the stamp is all
            return cls(version, str(stamp["uid"]), int(stamp.get("number", stamp.get("permit"))), changes_rows)
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls(version, "", 0, changes_rows)
