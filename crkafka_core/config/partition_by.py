"""`partition_by` of a table: columns, and transforms of columns as Iceberg names them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TRANSFORMED = re.compile(r"(?:(year|month|day|hour)\(|(bucket|truncate)\((\d{1,6}) *, *)([^()]+)\)")


@dataclass(frozen=True)
class PartitionField:
    """One entry."""

    column: str
    transform: str = "identity"
    width: int = 0
    """Of bucket and truncate."""


def parsed(text: str) -> PartitionField:
    """`day(timestamp)`, `bucket(16, key)`, `truncate(4, name)`, or a column."""
    if match := _TRANSFORMED.fullmatch(text):
        timely, sized, width, column = match.groups()
        if sized and not int(width):
            raise ValueError(f"{text} has no width; write {sized}(16, {column})")
        return PartitionField(column.strip(), timely or sized, int(width or 0))
    if "(" in text or "[" in text:
        raise ValueError(
            f"{text} is no transform; write year, month, day or hour of a column, as day(timestamp), bucket(16, key) or truncate(4, name)"
        )
    return PartitionField(text)
