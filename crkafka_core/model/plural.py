"""A number with its noun, for people: 1 row, 2,000 rows."""

from __future__ import annotations

from collections.abc import Sequence

MOST = 8
"""Most numbers, or spans of them, that are listed in full."""


def listed(numbers: Sequence[int]) -> str:
    """Numbers in order: a few one by one, more as spans without gaps, very many by their first and last spans."""
    if len(numbers) <= MOST:
        return ", ".join(map(str, numbers))
    starts = [n for before, n in zip([None, *numbers], numbers, strict=False) if before is None or n != before + 1]
    ends = [n for n, after in zip(numbers, [*numbers[1:], None], strict=True) if after is None or after != n + 1]
    spans = [str(a) if a == b else f"{a} … {b}" for a, b in zip(starts, ends, strict=True)]
    if len(spans) > MOST:
        spans[MOST // 2 : -MOST // 2] = ["…"]
    return ", ".join(spans)


def plural(number: int, one: str, many: str = "") -> str:
    """A number with its noun: `one` after 1, else `many`, by default `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
