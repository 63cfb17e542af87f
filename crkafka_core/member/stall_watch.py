"""Where partitions end, by Kafka's own word, and which of them have records and give none (SPEC X8).

The client tells ends as its fetches bring them: a partition that it does not fetch at all would show no lag (docs/clients.md C-K22).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from crkafka_core.kafka.edge import Admin
from crkafka_core.loop import THREADS, Runtime
from crkafka_core.model.offsets import TP

EVERY = 30.0
"""Seconds between two questions for ends."""
STALLED_AFTER = 120.0
"""Seconds for which a partition that has records may give none, before somebody should look at it."""


class StallWatch:
    """Asked by the resolver's thread while that has nothing else to do; read by any."""

    def __init__(self, admin: Admin, reading: Callable[[], Mapping[TP, int]], runtime: Runtime = THREADS) -> None:
        """`reading`: where the partitions stand that should give records now; what is paused is none of them."""
        self.ends: Mapping[TP, int] = {}
        """As last asked; replaced as a whole."""
        self.stalled: Mapping[TP, float] = {}
        """Partitions that give nothing, and for how many seconds."""
        self._admin = admin
        self._reading = reading
        self._runtime = runtime
        self._due = runtime.now() + EVERY
        self._seen: dict[TP, tuple[int, float]] = {}

    def ask(self) -> bool:
        """Ask, if it is time to; whether a partition is found stalled that was not before."""
        now = self._runtime.now()
        if now < self._due:
            return False
        self._due = now + EVERY
        at = dict(self._reading())
        self.ends = {tp: end for tp, (_, end) in self._admin.watermarks(at).items()} if at else {}
        stalled = {}
        for tp, offset in at.items():
            before, since = self._seen.get(tp, (-1, now))
            moved = offset != before or offset >= self.ends.get(tp, -1)
            self._seen[tp] = (offset, now if moved else since)
            if now - self._seen[tp][1] >= STALLED_AFTER:
                stalled[tp] = now - self._seen[tp][1]
        self._seen = {tp: seen for tp, seen in self._seen.items() if tp in at}
        new = bool(stalled.keys() - self.stalled.keys())
        self.stalled = stalled
        return new
