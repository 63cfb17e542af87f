"""What the log of a table has of a data file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DataFile:
    """One file of the current version."""

    path: str
    """Relative to the table."""
    bytes: int
    rows: int | None
    lowest: Mapping[str, Any]
    """Per column, the least value, where the log tells."""
    highest: Mapping[str, Any]
    partition_values: Mapping[str, str | None]
    kept: Sequence[bool] | None = None
    """Where rows of it were marked as deleted beside it: for each row up to the last such one, whether it is there."""
