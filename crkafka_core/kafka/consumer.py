"""The consumer of one group member, owned by one thread: polls, reports rebalances, seeks, commits (SPEC M1, M5, R4).

Life of a partition here: `on_assign` assigns it *paused* → `seek` to its start → `flow` lets it run → `poll` hands out
its records. Callbacks run on the owner's thread, inside `poll`; they assign or unassign, note it, and return.

Whatever the protocol of the group, a rebalance looks the same from outside: a revocation, after which nothing flows, and an assignment
of all that is held. A cooperative assignor and KIP-848 bring only what is added or taken; what is kept stays assigned, paused.
"""

from __future__ import annotations

import ctypes
import logging
import struct
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from crkafka_core.config.kafka_section import COOPERATIVE, has_member_epochs
from crkafka_core.kafka import clients
from crkafka_core.kafka.commits import Commits
from crkafka_core.kafka.edge import Kind, Polled, Rebalance
from crkafka_core.kafka.errors import (
    UNREADABLE,
    VANISHED,
    KafkaFailed,
    KafkaUnavailable,
    NotAllowed,
    OffsetGone,
    RecordUnreadable,
    TopicGone,
    broker_in,
    client_error,
    epoch_unknown,
    error_of,
)
from crkafka_core.kafka.messages import Failure, Taken
from crkafka_core.kafka.native.records import records_of
from crkafka_core.kafka.wake import Waker
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural
from crkafka_core.segments.batch import Batch

_log = logging.getLogger(__name__)

_GROUP_METADATA = b"CGMDv2:"
_QUIET = 10.0
"""Seconds between two reports of the same unreachable broker: `error_cb` fires 20 times a second (docs/clients.md C-R12)."""
_PLACEHOLDER = 0
"""Offset of a new assignment until the start is known: not above any start, so that no fetch is ahead of the seek."""
_STUCK = 20.0
"""Seconds after giving up on a commit for which it may still block the consumer, before a new consumer is needed."""
_GROUP_ENDS = 0.5
"""Seconds for librdkafka to end its group; it needs microseconds, once its thread runs."""
_COMMIT_MARGIN = 5.0
"""Seconds beyond the session, within which librdkafka ends most commits itself (docs/clients.md C-K9)."""
_READ_AGAIN = 60.0
"""Seconds until an unreadable record is fetched again: another broker may lead the partition, or this one have recovered."""
_NOT_YET = {KafkaError._STATE, KafkaError._UNKNOWN_PARTITION, KafkaError._TIMED_OUT}
_ENDS_ITS_PARTITION = UNREADABLE | VANISHED
_SEEK_PATIENCE = 0.5
"""Seconds for which a newly assigned partition may refuse a seek."""


class GroupConsumer:
    """Every method runs on the thread that made the consumer: another thread's call could block for ever (docs/clients.md C-K1)."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.group_id = properties["group.id"]
        self._held: frozenset[TP] = frozenset()
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
        self._last_generation = -1

    # -- membership

    def subscribe(self, topics: Sequence[str] = (), *, pattern: str | None = None) -> None:
        """Join the group for these topics, or for all that match the pattern (a regular expression; SPEC M7)."""
        names = list(topics) if pattern is None else [self._expression(pattern)]
        callbacks = {"on_assign": self._on_assign, "on_revoke": self._on_revoke, "on_lost": self._on_lost}
        self._now_or_later(lambda: self._consumer.subscribe(names, **callbacks))

    def _expression(self, pattern: str) -> str:
        """The client searches for a pattern that begins with ^; the broker, with KIP-848, matches whole names (docs/clients.md C-K30)."""
        if self._member_epochs:
            return f"^.*({pattern}).*"
        return pattern if pattern.startswith("^") else f"^.*({pattern})"

    def close(self) -> None:
        """Leave the group and end the client; may be called twice. Its own callback is not reported (SPEC R5)."""
        if self._closing:
            return
        self._closing = True
        stuck = self._commits.stuck
        if stuck:
            _log.warning("the consumer of group %s is left open: a commit is still waiting for Kafka", self.group_id)
        if stuck or self._commits.fenced:
            # A fenced client is out of the group, and librdkafka's close may never end (docs/clients.md C-K27).
            _keep_for_ever(self._consumer)
            return
        try:
            self._records.close()
            self._consumer.close()
        except (KafkaException, RuntimeError) as error:
            _log.warning("closing the consumer of group %s: %s", self.group_id, error)

    @property
    def held(self) -> frozenset[TP]:
        """The assigned partitions as of the last callback."""
        return self._held

    @property
    def flowing(self) -> frozenset[TP]:
        return frozenset(self._flowing)

    def generation(self) -> int:
        """Kafka's generation, or −1 (docs/clients.md C-K15). Compared between members only (SPEC M4)."""
        if not self._commits.stuck:
            self._last_generation = generation_of(self._consumer)
        return self._last_generation

    # -- records

    def poll(self, max_records: int = 5_000, timeout: float = 0.1) -> Polled:
        """Records and events; returns once it has `max_records` or after `timeout`, not before (docs/clients.md C-K2)."""
        if not self._commits.wait(timeout):
            held = self._commits.hopeless(_STUCK)
            why = f"A commit of group {self.group_id} holds the consumer since the coordinator went away."
            return Polled(errors=(KafkaFailed(why, hint="A new process takes over."),) if held else ())
        failed = not self._catch_up() or not self._read_again()
        served = taken = Taken()
        try:
            served = self._records.serve()
            taken = served if self._rebalances or served.batch else self._records.take(max_records, timeout)
        except (KafkaException, RuntimeError, ValueError) as error:
            failed = True
            self._errors.append(client_error(error, f"polling for group {self.group_id}"))
        if self._joins and (epoch := self.generation()) > 0:
            self._note(Rebalance(Kind.ASSIGNED, frozenset(), epoch), held=frozenset())
        rebalances, self._rebalances = tuple(self._rebalances), []
        heard = served.failures if taken is served else (*served.failures, *taken.failures)
        unknown = self._epochs_unknown(heard)
        disturbed = failed or bool(rebalances) or taken.lost or unknown
        if disturbed:
            self._next = {}  # records may be lost: only a seek makes the position known again
        failures = [failure for failure in heard if not self._is_late(failure) and not epoch_unknown(failure.error)]
        batch = None
        if taken.batch is not None and not disturbed:
            batch = self._accepted(taken.batch, failures)
            if batch is not None:
                self._next.update(batch.offsets())
                self._epochs.update({run.tp: run.leader_epoch for run in batch.runs})
        ends = self._sort_out(failures)
        errors, self._errors = tuple(self._errors), []
        troubles, self._troubles = self._troubles, {}
        count = taken.batch.rows if taken.batch is not None else 0
        dropped = count - (batch.rows if batch is not None else 0)
        # A partition that does not flow, or whose position is unknown, may have lost records: its end does not count.
        met = {tp: end for tp, end in ends.items() if tp in self._flowing and tp in self._next}
        return Polled(batch, rebalances, errors, met, disturbed, dropped, troubles)

    def _is_late(self, failure: Failure) -> bool:
        """Whether the vanished offset is below our position: fetched at the placeholder, before the seek."""
        return failure.error.code() in VANISHED and 0 <= failure.offset < self._next.get(failure.tp, 0)

    def _epochs_unknown(self, failures: Iterable[Failure]) -> bool:
        """Whether a broker does not know a requested epoch. The log may be intact, but the client stands still until a seek without an
        epoch (docs/clients.md C-K25)."""
        unknown = {failure.tp for failure in failures if epoch_unknown(failure.error)}
        for tp in unknown - self._unknown_epochs:
            _log.warning("%s: its broker does not know leader epoch %s", tp, self._epochs.get(tp, "?"))
        self._unknown_epochs |= unknown
        return bool(unknown)

    def _now_or_later(self, call: Callable[[], None]) -> None:
        """Call at once, or before the next poll if a commit blocks the consumer now."""
        if self._commits.stuck:
            self._deferred.append(call)
        else:
            call()

    def _catch_up(self) -> bool:
        """Make the deferred calls; False if one failed."""
        deferred, self._deferred = self._deferred, []
        done = True
        for call in deferred:
            try:
                call()
            except (CrkafkaError, KafkaException, RuntimeError) as error:
                self._errors.append(client_error(error, f"catching up in group {self.group_id}"))
                done = False
        return done

    def _accepted(self, batch: Batch, failures: Iterable[Failure]) -> Batch | None:
        """Records of flowing partitions from our position on (a revoked one may still deliver: docs/clients.md C-K8, C-R5).

        An unreadable record or vanished offset ends its partition: the client goes on behind it and leaves a hole (SPEC X9).
        """
        ended: dict[TP, int] = {}
        for failure in failures:
            if failure.error.code() in _ENDS_ITS_PARTITION:
                ended.setdefault(failure.tp, failure.before)
        kept = batch.only(self._flowing & self._next.keys())
        kept = (kept.until(ended) if ended else kept).skip_below(self._next)
        return kept.continuing(self._next) if kept.runs else None

    def _sort_out(self, failures: Iterable[Failure]) -> dict[TP, int]:
        """Handle the failures of a poll; returns the partition ends among them."""
        ends: dict[TP, int] = {}
        for failure in failures:
            tp, code = failure.tp, failure.error.code()
            if tp in self._unreadable:
                continue
            if code in UNREADABLE and tp.topic:
                if tp in self._held:
                    self._stand_still(failure)
            elif code == KafkaError._PARTITION_EOF:
                ends[tp] = failure.offset
            elif code in VANISHED:
                # A log that was cut below our position is reported once, without an offset, also while nothing flows (docs/clients.md
                # C-K25). Any other one before the flow concerns the placeholder, and the next seek corrects it.
                cut = failure.offset < 0 and tp in self._next
                if tp in self._flowing or cut:
                    self._errors.append(OffsetGone(tp, self._next[tp] if cut else failure.offset))
            elif tp in self._held:
                self._trouble(tp, error_of(failure.error, f"reading {tp}"))
            else:
                where = f"reading {tp}" if tp.topic else f"in group {self.group_id}"
                self._report(failure.error, where)
        return ends

    def _trouble(self, tp: TP, error: CrkafkaError) -> None:
        """Note why a partition gives nothing now; the client goes on fetching it."""
        if isinstance(error, KafkaUnavailable | NotAllowed | TopicGone):
            self._troubles[tp] = error
        else:
            self._errors.append(error)

    def _stand_still(self, failure: Failure) -> None:
        """Pause a partition at an unreadable record: the client would go on at offsets decoded from garbage (seen with 2.16.0)."""
        tp = failure.tp
        self._troubles[tp] = RecordUnreadable(tp, self._next.get(tp, failure.offset), failure.error.str())
        self._unreadable[tp] = self._next.pop(tp, None), time.monotonic()
        if tp in self._flowing:
            self._consumer.pause(_bare([tp]))
            self._flowing.discard(tp)

    def _read_again(self) -> bool:
        """Seek partitions that have stood still for `_READ_AGAIN` to their position; False if that failed."""
        late = time.monotonic() - _READ_AGAIN
        due = {tp: at for tp, (at, since) in self._unreadable.items() if at is not None and since <= late}
        if not due:
            return True
        try:
            self.seek(due, {tp: self._epochs.get(tp, -1) for tp in due})
        except CrkafkaError as error:
            self._errors.append(error)
            return False
        return True

    # -- where and what to read

    def seek(self, offsets: Mapping[TP, int], leader_epochs: Mapping[TP, int] | None = None) -> None:
        """Set the next offset of each partition. Seek before `flow`, never after (docs/clients.md C-K5).

        With the leader epoch of the record before it, a poll reports `OffsetGone` if the log is cut below it (docs/clients.md C-K25).
        Partitions that are not held are ignored. A partition that librdkafka has stalled (docs/clients.md C-R10) is assigned again.
        """
        if self._commits.stuck:
            self._deferred.append(lambda: self.seek(offsets, leader_epochs))
            return
        wanted = {tp: offset for tp, offset in offsets.items() if tp in self._held}
        for tp in wanted:
            self._next.pop(tp, None)
            self._epochs[tp] = (leader_epochs or {}).get(tp, -1)
            self._unreadable.pop(tp, None)
        refused = self._seek_each(wanted, time.monotonic() + _SEEK_PATIENCE)
        self._next.update({tp: offset for tp, offset in wanted.items() if tp not in refused})
        if refused:
            self._assign_again({tp: wanted[tp] for tp in refused})

    def flow(self, tps: Iterable[TP]) -> None:
        """Resume exactly these of the held partitions and pause the others; only changes reach the client (docs/clients.md C-K13)."""
        wanted = (set(tps) & self._held) - self._unreadable.keys()
        if self._commits.stuck:
            self._deferred.append(lambda: self.flow(wanted))
            return
        stop, go = self._flowing - wanted, wanted - self._flowing
        if stop:
            self._consumer.pause(_bare(stop))
        if go:
            self._consumer.resume(_bare(go))
        self._flowing = wanted
        if go:
            self._waker.wake(go)

    def known_ends(self) -> dict[TP, int]:
        """High watermarks as of the last fetches, without a request; empty while a commit blocks the consumer."""
        ends: dict[TP, int] = {}
        for tp in () if self._commits.stuck else self._held:
            marks = self._consumer.get_watermark_offsets(TopicPartition(tp.topic, tp.partition), cached=True)
            if marks is not None and marks[1] >= 0:
                ends[tp] = marks[1]
        return ends

    def _seek_each(self, offsets: Mapping[TP, int], until: float) -> set[TP]:
        left = dict(offsets)
        while left:
            for tp, offset in list(left.items()):
                try:
                    self._consumer.seek(self._at(tp, offset))
                    del left[tp]
                except KafkaException as error:
                    if error.args[0].code() not in _NOT_YET:
                        raise client_error(error, f"seeking {tp} to {offset}") from error
            if time.monotonic() >= until:
                break
            if left:
                time.sleep(0.02)
        return set(left)

    def _at(self, tp: TP, offset: int) -> TopicPartition:
        epoch = -1 if tp in self._unknown_epochs else self._epochs.get(tp, -1)
        return TopicPartition(tp.topic, tp.partition, offset, leader_epoch=epoch)

    def _assign_again(self, sought: Mapping[TP, int]) -> None:
        """Drop the assignment, or of an incremental one these partitions, take it again at the next offsets, and restore what flows."""
        flowing, nexts = set(self._flowing), {**self._next, **sought}
        self._next = {}
        again = sought.keys() if self._incremental else self._held
        placed = [self._at(tp, nexts.get(tp, _PLACEHOLDER)) for tp in sorted(again)]
        try:
            if self._incremental:
                self._take_away(self._consumer, again)
                self._consumer.incremental_assign(placed)
            else:
                self._consumer.unassign()
                self._consumer.assign(placed)
            self._consumer.pause(_bare(again))
            self._records.hold(self._held)
        except KafkaException as error:
            raise client_error(error, f"assigning {plural(len(placed), 'partition')} again") from error
        self._next = nexts
        self._flowing -= again
        self.flow(flowing)

    # -- commit

    def commit(
        self,
        offsets: Mapping[TP, int],
        metadata: Mapping[TP, str] | None = None,
        leader_epochs: Mapping[TP, int] | None = None,
        patience: float | None = None,
    ) -> None:
        """Commit by synchronous requests, one after another (SPEC D2). Each waits up to the session (docs/clients.md C-K9), or `patience`.

        After that a request may still succeed when Kafka is back; until then polls are empty, and seeks are deferred.
        Raises GroupRebalanced, KafkaUnavailable, NotAllowed, Fenced or KafkaFailed, also if a single partition failed. Offsets of
        earlier requests stay committed.
        """
        self._commits.commit(offsets, metadata or {}, leader_epochs or {}, patience)

    # -- callbacks: catch, note, return (docs/clients.md C-K3)

    def _on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        given = _tps(partitions)
        held = self._held | given if self._incremental else given
        if self._closing:
            # librdkafka is ending its group: an assignment at this moment may block for ever (docs/clients.md C-K28).
            time.sleep(_GROUP_ENDS)
        try:
            # At a placeholder: nothing is fetched while paused (docs/clients.md C-K5). Not a logical offset: the broker's answer for it
            # can arrive after the seek that follows, and undo it (seen with OFFSET_BEGINNING).
            assign = consumer.incremental_assign if self._incremental else consumer.assign
            assign([TopicPartition(tp.topic, tp.partition, _PLACEHOLDER) for tp in sorted(given)])
            self._pause(given | (self._flowing & held))
            self._records.hold(held)
        except Exception as error:
            self._errors.append(client_error(error, f"taking {plural(len(given), 'partition')}"))
        if given or not self._member_epochs:  # what a revocation leaves is noted with it
            self._note(self._rebalance(Kind.ASSIGNED, held), held=held)

    def _on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._give_up(consumer, Kind.REVOKED, partitions)

    def _on_lost(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._give_up(consumer, Kind.LOST, partitions)

    def _give_up(self, consumer: Any, kind: Kind, partitions: list[TopicPartition]) -> None:
        tps = _tps(partitions)
        # Read before `unassign`, after which the client rejoins and may show the next generation.
        rebalance = self._rebalance(kind, tps)
        kept = self._held - tps if self._incremental else frozenset()
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
        client.incremental_unassign(_bare(here))

    def _pause(self, tps: Iterable[TP]) -> None:
        if bare := _bare(tps):
            self._consumer.pause(bare)

    def _rebalance(self, kind: Kind, tps: frozenset[TP]) -> Rebalance | None:
        """The rebalance to report; None while this client is being closed."""
        return None if self._closing else Rebalance(kind, tps, self.generation())

    def _note(self, rebalance: Rebalance | None, *, held: frozenset[TP]) -> None:
        self._held, self._joins = held, False
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


def _keep_for_ever(consumer: Consumer) -> None:
    """Leak a reference: Python would end the client with the last one, and wait for that. It ends with the process."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(consumer))


def _bare(tps: Iterable[TP]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for topic, partition in sorted(tps)]


def _tps(partitions: Iterable[TopicPartition]) -> frozenset[TP]:
    return frozenset(TP(p.topic, p.partition) for p in partitions)


def generation_of(consumer: Any) -> int:
    """Kafka's generation of a consumer, or −1 for an unexpected format, which is private (docs/clients.md C-K15, C-R3)."""
    try:
        metadata = consumer.consumer_group_metadata()
        raw = metadata if isinstance(metadata, bytes) else bytes(metadata)
    except Exception:
        return -1
    if not raw.startswith(_GROUP_METADATA) or len(raw) < len(_GROUP_METADATA) + 4:
        return -1
    (generation,) = struct.unpack_from("<i", raw, len(_GROUP_METADATA))
    return int(generation)
