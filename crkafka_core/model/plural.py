"""A number with its noun, for people: 1 row, 2,000 rows."""

from __future__ import annotations

from collections.abc import Sequence


def listed(numbers: Sequence[int]) -> str:
    """Numbers in order: all of them when they are few, else the first and the last."""
    if len(numbers) <= 8:
        return ", ".join(map(str, numbers))
    return f"{numbers[0]} … {numbers[-1]}"


def plural(number: int, one: str, many: str = "") -> str:
    """`one` stands behind 1, `many` behind any other number: by itself `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
