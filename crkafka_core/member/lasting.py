"""For how long something has been so."""

from __future__ import annotations


class Lasting:
    """Begins when it is first asked about, and anew once it was over."""

    def __init__(self) -> None:
        self._since: float | None = None

    def seconds(self, now: float) -> float:
        self._since = now if self._since is None else self._since
        return now - self._since

    def over(self) -> None:
        self._since = None
