"""For how long something has been so."""

from __future__ import annotations

REFUSED_FOR = 60.0
"""Seconds for which Kafka may refuse our identity or rights, without an outage between, before the region is stopped: they are taken
away and given back when they are renewed (SPEC X11)."""
REFUSAL_GAP = 30.0
"""Seconds without a question, after which nothing is known of the time between: a process that was frozen, a member without partitions."""


class Lasting:
    """Begins when it is first asked about, and again once it was over, or not asked about for longer than `gap` seconds."""

    def __init__(self, gap: float = float("inf")) -> None:
        self._gap = gap
        self._since: float | None = None
        self._asked = 0.0

    def seconds(self, now: float) -> float:
        if self._since is None or now - self._asked > self._gap:
            self._since = now
        self._asked = now
        return now - self._since

    def over(self) -> None:
        self._since = None
