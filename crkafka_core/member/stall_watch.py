"""Ends of partitions as Kafka reports them, and the partitions that give nothing though more could be read (SPEC X8).

The client knows ends only from its fetches: a partition that it does not fetch at all would show no lag (docs/clients.md C-K22).
Each partition is judged by itself: one without a leader is no sign of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from crkafka_core.kafka.edge import Admin
from crkafka_core.loop import THREADS, Runtime
from crkafka_core.model.offsets import TP

EVERY = 30.0
"""Seconds between two questions for ends."""
STALLED_AFTER = 120.0
"""Seconds without a record, of a partition that has more or whose end is unknown, after which it is an alarm."""


class StallWatch:
    """Asked by the resolver's thread while that has nothing else to do; read by any."""

    def __init__(
        self,
        admin: Admin,
        reading: Callable[[], Mapping[TP, int] | None],
        troubles: Callable[[], Mapping[TP, str]] = dict,
        runtime: Runtime = THREADS,
    ) -> None:
        """`reading`: where the partitions stand that should give records now; what is paused is none of them. None: nothing can
        be learned now. `troubles`: why some give nothing, as reported by the client that reads them."""
        self.ends: Mapping[TP, int] = {}
        """As last asked; replaced as a whole."""
        self.margins: Mapping[str, int] = {}
        """Topic → offsets between what retention has deleted and the position of the nearest partition; none where it deleted nothing."""
        self.stalled: Mapping[TP, float] = {}
        """Partitions that give nothing, and for how many seconds."""
        self.reasons: Mapping[TP, str] = {}
        """Why, where it is known."""
        self._admin, self._reading, self._troubles, self._runtime = admin, reading, troubles, runtime
        self._due = runtime.now() + EVERY
        self._seen: dict[TP, tuple[int, float]] = {}

    def ask(self) -> bool:
        """Ask, if it is time to; whether a partition is stalled that was not before. Ends are those of uncommitted records too: where a
        transaction hangs, what is committed ends before it (docs/clients.md C-R17)."""
        now = self._runtime.now()
        if now < self._due:
            return False
        passed, self._due = now - self._due + EVERY, now + EVERY
        reading = self._reading()
        if reading is None:  # time in which no partition can give anything counts neither for it nor against it
            self._seen = {tp: (offset, since + passed) for tp, (offset, since) in self._seen.items()}
            return False
        at = dict(reading)
        known, silent = self._admin.known_watermarks(at, "read_uncommitted")
        self.ends = {tp: end for tp, (_, end) in known.items()}
        margins: dict[str, int] = {}
        for tp, (start, _) in known.items():
            if start > 0 <= at[tp]:
                margins[tp.topic] = min(margins.get(tp.topic, at[tp] - start), at[tp] - start)
        self.margins = margins
        stalled = {}
        for tp, offset in at.items():
            before, since = self._seen.get(tp, (-1, now))
            moved = offset != before or (tp in self.ends and offset >= self.ends[tp])
            self._seen[tp] = (offset, now if moved else since)
            if now - self._seen[tp][1] >= STALLED_AFTER:
                stalled[tp] = now - self._seen[tp][1]
        self._seen = {tp: seen for tp, seen in self._seen.items() if tp in at}
        troubles = self._troubles()
        why = {tp: str(silent[tp]) if tp in silent else troubles.get(tp, "") for tp in stalled}
        unexplained = [tp for tp in stalled if not why[tp]]
        stable = self._admin.known_watermarks(unexplained, "read_committed")[0] if unexplained else {}
        # All that is committed was read: a transaction has been open for as long as nothing came.
        self.reasons = why | {
            tp: f"a transaction is open at offset {end}, and nothing behind it is read before it ends"
            for tp, (_, end) in stable.items()
            if at[tp] >= end
        }
        known_before, self.stalled = self.stalled.keys(), stalled
        return bool(stalled.keys() - known_before)
