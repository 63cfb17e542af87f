"""What Delta's log, as typed tables are written by it, has of a data file; and errors of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crkafka_core.model.errors import Refused
from crkafka_core.segments.storage import Storage


class MarkedRows(Refused):
    """A file has rows that are marked as deleted beside it. Reaction: let Spark write it anew, then again."""


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


def lost(storage: Storage, files: Collection[DataFile]) -> set[str]:
    """Names of those that are not in storage."""
    there = {stored.path for stored in storage.list("")}
    return {file.path for file in files if file.path not in there}
