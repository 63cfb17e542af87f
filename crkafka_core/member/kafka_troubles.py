"""What keeps a member from Kafka, as its client reports it: outages, refusals, partitions that give nothing (SPEC X11).

Nothing here ends a process. An outage is waited for; a refusal that lasts for a minute, without an outage between, stops the region.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from crkafka_core.kafka.edge import Polled
from crkafka_core.kafka.errors import KafkaUnavailable, NotAllowed, RecordUnreadable
from crkafka_core.loop import Runtime
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP

REFUSED_FOR = 60.0
"""Seconds for which Kafka may refuse our identity or rights, without an outage between, before the region is stopped: they are taken
away and given back when they are renewed (SPEC X11)."""
REFUSAL_GAP = 30.0
"""Seconds without a question, after which nothing is known of the time between: a process that was frozen, a member without partitions."""
_STANDS = 15.0
"""Seconds for which a report of an absent broker stands while partitions are held: the client repeats it every ten."""
_REPEATED = 50.0
"""Seconds for which a refusal stands that the client repeats: each 30 s, and up to 10 more until it connects again. Less than a minute, so
that one alone stops no region."""


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


class KafkaTroubles:
    """Written by the event thread. `holds`: whether the member has partitions now."""

    def __init__(self, runtime: Runtime, holds: Callable[[], bool]) -> None:
        self._runtime, self._holds = runtime, holds
        self._last: CrkafkaError | None = None
        """What the client reported last of the group and its brokers."""
        self._at = 0.0
        self._refused, self._commits_refused = Lasting(REFUSAL_GAP), Lasting()
        self.partitions: dict[TP, str] = {}
        """Why a held partition gives nothing."""

    def note(self, error: CrkafkaError) -> None:
        """That no broker is reachable is also reported while a login is refused: it does not replace the refusal."""
        names_reason = not isinstance(error, KafkaUnavailable) or error.names_reason
        if names_reason or not isinstance(self._standing(self._holds()), NotAllowed):
            self._last, self._at = error, self._runtime.now()

    def rebalanced(self, *, assigned: bool) -> None:
        """An assignment ends what was reported of the group; a revocation what has not been repeated."""
        self.partitions = {}
        if assigned or self._standing(holds=True) is None:
            self._last = None

    def polled(self, polled: Polled) -> Iterator[RecordUnreadable]:
        """Take in which partitions give something, or nothing; those that could not be read, once each."""
        if self.partitions:
            for tp in (*polled.ends, *(run.tp for run in (polled.batch.runs if polled.batch is not None else ()))):
                self.partitions.pop(tp, None)
        for tp, error in polled.troubles.items():
            why = str(error)
            if isinstance(error, RecordUnreadable) and self.partitions.get(tp) != why:
                yield error
            self.partitions[tp] = why

    def _standing(self, holds: bool) -> CrkafkaError | None:
        """What was reported last, as long as it goes on. Some of it the client reports once, and a member without partitions waits for
        the end of it; a login that is refused is repeated (docs/clients.md C-K33)."""
        repeated = isinstance(self._last, NotAllowed) and not self._last.reported_once
        stands = _STANDS if holds else _REPEATED if repeated else float("inf")
        return self._last if self._runtime.now() - self._at < stands else None

    def away(self) -> str:
        """What keeps the client from its brokers or its group, in words."""
        error = self._standing(self._holds())
        return "" if error is None else str(error) if isinstance(error, NotAllowed) else error.message

    def refused(self) -> str:
        """That Kafka has refused this member its partitions for a minute: the reason to stop the region, once in a minute."""
        return self._lasts(self._refused, None if self._holds() else self._standing(holds=False))

    def commit_ended(self, error: CrkafkaError | None) -> str:
        """The same of commits, which come now and then: each that was accepted, was refused, or found Kafka away."""
        return self._lasts(self._commits_refused, error)

    def _lasts(self, lasting: Lasting, error: CrkafkaError | None) -> str:
        if isinstance(error, NotAllowed) and lasting.seconds(self._runtime.now()) < REFUSED_FOR:
            return ""
        lasting.over()
        return str(error) if isinstance(error, NotAllowed) else ""
