"""One measured figure, with what it must reach."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A line of the table."""

    row: int
    """Of the table of targets in docs/speed.md."""
    what: str
    value: float
    unit: str
    bound: float
    at_least: bool = False
    """The value must be at least the bound; else at most."""
    note: str = ""

    @property
    def holds(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound


def percentile(values: list[float], percent: float) -> float:
    """The value below which so many percent lie; the nearest measured one."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
