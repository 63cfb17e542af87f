"""A consumer's place in its group: it joins, is assigned partitions, gives them up, leaves (SPEC R4, R5).

Whatever the protocol of the group, a rebalance looks the same from outside: a revocation, after which nothing flows, and an assignment
of all that is held. A cooperative assignor and KIP-848 bring only what is added or taken; what is kept stays assigned, paused.
Callbacks run on the owner's thread, inside `poll`; they assign or unassign, note it, and return (docs/clients.md C-K3).
"""

from __future__ import annotations

import ctypes
import logging
import struct
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from crkafka_core.config.kafka_section import COOPERATIVE, has_member_epochs
from crkafka_core.kafka import clients
from crkafka_core.kafka.commits import Commits
from crkafka_core.kafka.edge import Kind, Rebalance
from crkafka_core.kafka.errors import KafkaUnavailable, broker_in, client_error, error_of
from crkafka_core.kafka.native.records import records_of
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural

_log = logging.getLogger(__name__)
_GROUP_METADATA = b"CGMDv2:"
_QUIET = 10.0
"""Seconds between two reports of the same unreachable broker: `error_cb` fires 20 times a second (docs/clients.md C-R12)."""
PLACEHOLDER = 0
"""Offset of a new assignment until the start is known: not above any start, so that no fetch is ahead of the seek."""
_GROUP_ENDS = 0.5
"""Seconds for librdkafka to end its group; it needs microseconds, once its thread runs."""
_COMMIT_MARGIN = 5.0
"""Seconds beyond the session, within which librdkafka ends most commits itself (docs/clients.md C-K9)."""
_WAKE_PATIENCE = 0.5
"""Seconds for one small request; a broker that is slower is not woken."""
_FRESH = 30.0
"""Seconds for which known leaders are used; a wrong one only delays the first record by a second."""


class Membership:
    """The part of a `GroupConsumer` that joins and leaves; `held` are the assigned partitions."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.group_id = properties["group.id"]
        self.held: frozenset[TP] = frozenset()
        """The assigned partitions as of the last callback."""
        self._flowing: set[TP] = set()
        self._next: dict[TP, int] = {}
        """The frontier: next offset to hand out. A partition without one has an unknown position, and its records are dropped."""
        self._epochs: dict[TP, int] = {}
        """Leader epoch of the record before the frontier, if known: the client detects a cut log by it (SPEC S4)."""
        self._unknown_epochs: set[TP] = set()
        """Partitions whose broker did not know the epoch: seeks have none from then on."""
        self._unreadable: dict[TP, tuple[int | None, float]] = {}
        """Partitions that stand still at an unreadable record until the next seek (SPEC X9) → its offset, if known, and since when."""
        self._troubles: dict[TP, CrkafkaError] = {}
        """Troubles of the current poll."""
        self._rebalances: list[Rebalance] = []
        self._errors: list[CrkafkaError] = []
        self._reported: dict[int, float] = {}
        self._closing = False
        self._member_epochs = has_member_epochs(properties)
        self._incremental = self._member_epochs or COOPERATIVE in properties.get("partition.assignment.strategy", "")
        self._joins = self._member_epochs
        """Not yet seen to be in the group: with KIP-848 no callback runs for a member that is given nothing (docs/clients.md C-R14)."""
        self._consumer = clients.consumer(properties, self._on_error)
        self._records = records_of(self._consumer)
        self._waker = Waker(self._consumer)
        session = float(properties.get("session.timeout.ms", 45_000)) / 1000
        self._commits = Commits(self._consumer, self.group_id, session + _COMMIT_MARGIN)
        self._deferred: list[Callable[[], None]] = []
        """Calls that a commit which blocks the consumer keeps until the next poll."""
        self._last_generation = -1

    def subscribe(self, topics: Sequence[str] = (), *, pattern: str | None = None) -> None:
        """Join the group for these topics, or for all that match the pattern (a regular expression; SPEC M7)."""
        names = list(topics)
        if pattern is not None:
            # The client searches for a pattern that begins with ^; the broker, with KIP-848, matches whole names (docs/clients.md C-K30).
            searched = pattern if pattern.startswith("^") else f"^.*({pattern})"
            names = [f"^.*({pattern}).*" if self._member_epochs else searched]
        callbacks: dict[str, Any] = {
            "on_assign": self._on_assign,
            "on_revoke": partial(self._give_up, Kind.REVOKED),
            "on_lost": partial(self._give_up, Kind.LOST),
        }
        if self._commits.stuck:
            self._deferred.append(lambda: self._consumer.subscribe(names, **callbacks))
        else:
            self._consumer.subscribe(names, **callbacks)

    def close(self) -> None:
        """Leave the group and end the client; may be called twice. Its own callback is not reported (SPEC R5)."""
        if self._closing:
            return
        self._closing = True
        stuck = self._commits.stuck
        if stuck:
            _log.warning("the consumer of group %s is left open: a commit is still waiting for Kafka", self.group_id)
        if stuck or self._commits.fenced:
            # A fenced client is out of the group, and librdkafka's close may never end (docs/clients.md C-K27). Python would end the client
            # with its last reference, and wait for that: with this one it ends with the process.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._consumer))
            return
        try:
            self._records.close()
            self._consumer.close()
        except (KafkaException, RuntimeError) as error:
            _log.warning("closing the consumer of group %s: %s", self.group_id, error)

    def generation(self) -> int:
        """Kafka's generation, or −1 (docs/clients.md C-K15). Compared between members only (SPEC M4)."""
        if not self._commits.stuck:
            self._last_generation = generation_of(self._consumer)
        return self._last_generation

    def _on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        given = _tps(partitions)
        held = self.held | given if self._incremental else given
        if self._closing:
            # librdkafka is ending its group: an assignment at this moment may block for ever (docs/clients.md C-K28).
            time.sleep(_GROUP_ENDS)
        try:
            # At a placeholder: nothing is fetched while paused (docs/clients.md C-K5). Not a logical offset: the broker's answer for it
            # can arrive after the seek that follows, and undo it (seen with OFFSET_BEGINNING).
            assign = consumer.incremental_assign if self._incremental else consumer.assign
            assign([TopicPartition(tp.topic, tp.partition, PLACEHOLDER) for tp in sorted(given)])
            self._pause(given | (self._flowing & held))
            self._records.hold(held)
        except Exception as error:
            self._errors.append(client_error(error, f"taking {plural(len(given), 'partition')}"))
        if given or not self._member_epochs:  # what a revocation leaves is noted with it
            self._note(self._rebalance(Kind.ASSIGNED, held), held=held)

    def _give_up(self, kind: Kind, consumer: Any, partitions: list[TopicPartition]) -> None:
        tps = _tps(partitions)
        # Read before `unassign`, after which the client rejoins and may show the next generation.
        rebalance = self._rebalance(kind, tps)
        kept = self.held - tps if self._incremental else frozenset()
        try:
            if self._incremental:
                self._take_away(consumer, tps)
                self._pause(self._flowing & kept)
            else:
                consumer.unassign()
        except Exception as error:
            if not self._closing:
                self._errors.append(client_error(error, f"giving up {plural(len(tps), 'partition')}"))
        self._note(rebalance, held=kept)
        if self._member_epochs and rebalance is not None:  # an assignment follows only where something is added
            self._note(replace(rebalance, kind=Kind.ASSIGNED, partitions=kept), held=kept)

    def _take_away(self, client: Any, tps: Collection[TP]) -> None:
        """Unassign these, as far as the client has them: after an assignment that failed it does not, and would refuse the whole."""
        here = tps if self._closing else _tps(client.assignment()).intersection(tps)
        client.incremental_unassign(bare(here))

    def _pause(self, tps: Iterable[TP]) -> None:
        if stopped := bare(tps):
            self._consumer.pause(stopped)

    def _rebalance(self, kind: Kind, tps: frozenset[TP]) -> Rebalance | None:
        """The rebalance to report; None while this client is being closed."""
        return None if self._closing else Rebalance(kind, tps, self.generation())

    def _note(self, rebalance: Rebalance | None, *, held: frozenset[TP]) -> None:
        self.held, self._joins = held, False
        self._flowing = set()
        self._unreadable = {}
        self._next = {}
        self._waker.forget()
        if rebalance is not None:
            self._rebalances.append(rebalance)

    def _on_error(self, error: KafkaError) -> None:
        self._report(error, f"in group {self.group_id}{broker_in(error)}")

    def _report(self, error: KafkaError, what: str) -> None:
        typed = error_of(error, what)
        if isinstance(typed, KafkaUnavailable):
            now = time.monotonic()
            if now - self._reported.get(error.code(), -_QUIET) < _QUIET:
                return
            self._reported[error.code()] = now
        self._errors.append(typed)


def bare(tps: Iterable[TP]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for topic, partition in sorted(tps)]


def _tps(partitions: Iterable[TopicPartition]) -> frozenset[TP]:
    return frozenset(TP(p.topic, p.partition) for p in partitions)


def generation_of(consumer: Any) -> int:
    """Kafka's generation of a consumer, or −1 for an unexpected format, which is private (docs/clients.md C-K15, C-R3)."""
    try:
        raw = bytes(consumer.consumer_group_metadata())
        known = raw.startswith(_GROUP_METADATA)
        return int(struct.unpack_from("<i", raw, len(_GROUP_METADATA))[0]) if known else -1
    except Exception:
        return -1


class Waker:
    """Wakes librdkafka's broker threads after a resume, by a small request to each leader of a resumed partition: else the first record
    takes a second (docs/clients.md C-K18)."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._leaders: dict[str, tuple[float, dict[int, int]]] = {}

    def wake(self, tps: Iterable[TP]) -> None:
        """Wake the leaders of `tps`. Never raises: without it the records only come later."""
        by_leader: dict[int, TP] = {}
        try:
            for tp in tps:
                by_leader.setdefault(self._leader(tp), tp)
            for tp in by_leader.values():
                self._consumer.get_watermark_offsets(TopicPartition(tp.topic, tp.partition), timeout=_WAKE_PATIENCE)
        except (KafkaException, RuntimeError):
            return

    def forget(self) -> None:
        """Drop the known leaders, since they may have moved."""
        self._leaders.clear()

    def _leader(self, tp: TP) -> int:
        now = time.monotonic()
        leaders = self._leaders.get(tp.topic)
        if leaders is None or now - leaders[0] > _FRESH:
            topic = self._consumer.list_topics(tp.topic, timeout=_WAKE_PATIENCE).topics.get(tp.topic)
            leaders = (now, {p.id: p.leader for p in topic.partitions.values()} if topic is not None else {})
            self._leaders[tp.topic] = leaders
        return leaders[1].get(tp.partition, -1)
