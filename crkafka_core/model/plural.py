"""A number with its noun, for people: 1 row, 2,000 rows."""

from __future__ import annotations


def plural(number: int, one: str, many: str = "") -> str:
    """`one` stands behind 1, `many` behind any other number: by itself `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
