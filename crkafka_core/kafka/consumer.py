"""The consumer of one group member, owned by one thread: polls, reports rebalances, seeks, commits (SPEC M1, M5, R4).

Life of a partition here: `on_assign` assigns it *paused* → `seek` to its start → `flow` lets it run → `poll` hands out
its records.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from crkafka_core.kafka import errors
from crkafka_core.kafka.edge import Kind, Polled, Rebalance
from crkafka_core.kafka.errors import UNREADABLE, VANISHED, KafkaUnavailable, client_error, error_of
from crkafka_core.kafka.membership import PLACEHOLDER, Membership, bare
from crkafka_core.kafka.messages import Failure, Taken
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural
from crkafka_core.segments.batch import Batch

_log = logging.getLogger(__name__)

_STUCK = 20.0
"""Seconds after giving up on a commit for which it may still block the consumer, before a new consumer is needed."""
_READ_AGAIN = 60.0
"""Seconds until an unreadable record is fetched again: another broker may lead the partition, or this one have recovered."""
_NOT_YET = {KafkaError._STATE, KafkaError._UNKNOWN_PARTITION, KafkaError._TIMED_OUT}
_ENDS_ITS_PARTITION = UNREADABLE | VANISHED
_SEEK_PATIENCE = 0.5
"""Seconds for which a newly assigned partition may refuse a seek."""
SHORT_SESSION = "6000"
"""Milliseconds, usually the broker's minimum; the group rebalances 6.4 s after the close (docs/clients.md C-R2)."""


class GroupConsumer(Membership):
    """Every method runs on the thread that made the consumer: another thread's call could block for ever (docs/clients.md C-K1)."""

    def poll(self, max_records: int = 5_000, timeout: float = 0.1) -> Polled:
        """Records and events; returns once it has `max_records` or after `timeout`, not before (docs/clients.md C-K2)."""
        if not self._commits.wait(timeout):
            held = self._commits.hopeless(_STUCK)
            why = f"A commit of group {self.group_id} holds the consumer since the coordinator went away."
            return Polled(errors=(errors.KafkaFailed(why, hint="A new process takes over."),) if held else ())
        failed = not self._catch_up()
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
        failures = [f for f in heard if not self._is_late(f) and not errors.epoch_unknown(f.error)]
        batch = None
        if taken.batch is not None and not disturbed:
            batch = self._accepted(taken.batch, failures)
            if batch is not None:
                self._next.update(batch.offsets())
                self._epochs.update({run.tp: run.leader_epoch for run in batch.runs})
        ends = self._sort_out(failures)
        problems, self._errors = tuple(self._errors), []
        troubles, self._troubles = self._troubles, {}
        count = taken.batch.rows if taken.batch is not None else 0
        dropped = count - (batch.rows if batch is not None else 0)
        # A partition that does not flow, or whose position is unknown, may have lost records: its end does not count.
        met = {tp: end for tp, end in ends.items() if tp in self._flowing and tp in self._next}
        return Polled(batch, rebalances, problems, met, disturbed, dropped, troubles)

    def _is_late(self, failure: Failure) -> bool:
        """Whether the vanished offset is below our position: fetched at the placeholder, before the seek."""
        return failure.error.code() in VANISHED and 0 <= failure.offset < self._next.get(failure.tp, 0)

    def _epochs_unknown(self, failures: Iterable[Failure]) -> bool:
        """Whether a broker does not know a requested epoch. The log may be intact, but the client stands still until a seek without an
        epoch (docs/clients.md C-K25)."""
        unknown = {failure.tp for failure in failures if errors.epoch_unknown(failure.error)}
        for tp in unknown - self._unknown_epochs:
            _log.warning("%s: its broker does not know leader epoch %s", tp, self._epochs.get(tp, "?"))
        self._unknown_epochs |= unknown
        return bool(unknown)

    def _catch_up(self) -> bool:
        """Make the deferred calls, and read again what could not be read; False if one failed."""
        deferred, self._deferred = self._deferred, []
        done = True
        for call in (*deferred, self._read_again):
            try:
                call()
            except (CrkafkaError, KafkaException, RuntimeError) as error:
                self._errors.append(client_error(error, f"catching up in group {self.group_id}"))
                done = False
        return done

    def _accepted(self, batch: Batch, failures: Iterable[Failure]) -> Batch | None:
        """Records of flowing partitions from our position on (a revoked one may still deliver: docs/clients.md C-K8, C-R5). An unreadable
        record or vanished offset ends its partition: the client goes on behind it and leaves a hole (SPEC X9)."""
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
                if tp in self.held:
                    self._stand_still(failure)
            elif code == KafkaError._PARTITION_EOF:
                ends[tp] = failure.offset
            elif code in VANISHED:
                # A log that was cut below our position is reported once, without an offset, also while nothing flows (docs/clients.md
                # C-K25). Any other one before the flow concerns the placeholder, and the next seek corrects it.
                cut = failure.offset < 0 and tp in self._next
                if tp in self._flowing or cut:
                    self._errors.append(errors.OffsetGone(tp, self._next[tp] if cut else failure.offset))
            elif tp in self.held:
                # A partition that gives nothing now goes on being fetched.
                error = error_of(failure.error, f"reading {tp}")
                if isinstance(error, KafkaUnavailable | errors.NotAllowed | errors.TopicGone):
                    self._troubles[tp] = error
                else:
                    self._errors.append(error)
            else:
                where = f"reading {tp}" if tp.topic else f"in group {self.group_id}"
                self._report(failure.error, where)
        return ends

    def _stand_still(self, failure: Failure) -> None:
        """Pause a partition at an unreadable record: the client would go on at offsets decoded from garbage (seen with 2.16.0)."""
        tp = failure.tp
        self._troubles[tp] = errors.RecordUnreadable(tp, self._next.get(tp, failure.offset), failure.error.str())
        self._unreadable[tp] = self._next.pop(tp, None), time.monotonic()
        if tp in self._flowing:
            self._consumer.pause(bare([tp]))
            self._flowing.discard(tp)

    def _read_again(self) -> None:
        """Seek partitions that have stood still for `_READ_AGAIN` to their position."""
        late = time.monotonic() - _READ_AGAIN
        due = {tp: at for tp, (at, since) in self._unreadable.items() if at is not None and since <= late}
        if due:
            self.seek(due, {tp: self._epochs.get(tp, -1) for tp in due})

    def seek(self, offsets: Mapping[TP, int], leader_epochs: Mapping[TP, int] | None = None) -> None:
        """Set the next offset of each partition. Seek before `flow`, never after (docs/clients.md C-K5).

        With the leader epoch of the record before it, a poll reports `OffsetGone` if the log is cut below it (docs/clients.md C-K25).
        Partitions that are not held are ignored. A partition that librdkafka has stalled (docs/clients.md C-R10) is assigned again.
        """
        if self._commits.stuck:
            self._deferred.append(lambda: self.seek(offsets, leader_epochs))
            return
        wanted = {tp: offset for tp, offset in offsets.items() if tp in self.held}
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
        wanted = (set(tps) & self.held) - self._unreadable.keys()
        if self._commits.stuck:
            self._deferred.append(lambda: self.flow(wanted))
            return
        stop, go = self._flowing - wanted, wanted - self._flowing
        self._pause(stop)
        if go:
            self._consumer.resume(bare(go))
        self._flowing = wanted
        if go:
            self._waker.wake(go)

    def known_ends(self) -> dict[TP, int]:
        """High watermarks as of the last fetches, without a request; empty while a commit blocks the consumer."""
        ends: dict[TP, int] = {}
        for tp in () if self._commits.stuck else self.held:
            marks = self._consumer.get_watermark_offsets(TopicPartition(tp.topic, tp.partition), cached=True)
            if marks is not None and marks[1] >= 0:
                ends[tp] = marks[1]
        return ends

    def _seek_each(self, offsets: Mapping[TP, int], until: float) -> set[TP]:
        left = dict(offsets)
        while True:
            for tp, offset in list(left.items()):
                try:
                    self._consumer.seek(self._at(tp, offset))
                    del left[tp]
                except KafkaException as error:
                    if error.args[0].code() not in _NOT_YET:
                        raise client_error(error, f"seeking {tp} to {offset}") from error
            if not left or time.monotonic() >= until:
                return set(left)
            time.sleep(0.02)

    def _at(self, tp: TP, offset: int) -> TopicPartition:
        epoch = -1 if tp in self._unknown_epochs else self._epochs.get(tp, -1)
        return TopicPartition(tp.topic, tp.partition, offset, leader_epoch=epoch)

    def _assign_again(self, sought: Mapping[TP, int]) -> None:
        """Drop the assignment, or of an incremental one these partitions, take it again at the next offsets, and restore what flows."""
        flowing, nexts = set(self._flowing), {**self._next, **sought}
        self._next = {}
        again = sought.keys() if self._incremental else self.held
        placed = [self._at(tp, nexts.get(tp, PLACEHOLDER)) for tp in sorted(again)]
        try:
            if self._incremental:
                self._take_away(self._consumer, again)
                self._consumer.incremental_assign(placed)
            else:
                self._consumer.unassign()
                self._consumer.assign(placed)
            self._consumer.pause(bare(again))
            self._records.hold(self.held)
        except KafkaException as error:
            raise client_error(error, f"assigning {plural(len(placed), 'partition')} again") from error
        self._next = nexts
        self._flowing -= again
        self.flow(flowing)

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


def depart(properties: Mapping[str, str], topics: tuple[str, ...], pattern: str | None) -> None:
    """Rejoin under the same `group.instance.id` with a short session, and close: the broker drops the member soon after."""
    if "group.instance.id" not in properties or int(properties["session.timeout.ms"]) <= int(SHORT_SESSION):
        return
    error = _join({**properties, "session.timeout.ms": SHORT_SESSION}, topics, pattern, 10.0, end_on_error=True)
    if error is not None:
        _log.warning("leaving the group for good: %s", error)


def nudge(properties: Mapping[str, str], topics: tuple[str, ...], pattern: str | None) -> None:
    """Join as a dynamic member beside the owner of these properties, get an assignment, close. Runs on a thread of its own. A static member
    that leaves and returns gets its old partitions back, without a rebalance (docs/clients.md C-R2). The partitions assigned here stay
    paused, and return to the others with the second rebalance."""
    own = {key: value for key, value in properties.items() if key != "group.instance.id"}
    try:
        # Every member has to poll before the group admits another one: hence the longer patience.
        error = _join({**own, "client.id": f"{properties['client.id']}-nudge"}, topics, pattern, 30.0)
    except CrkafkaError as failed:
        error = failed
    if error is not None:
        _log.warning("making the group rebalance: %s", error)


def _join(
    properties: Mapping[str, str],
    topics: tuple[str, ...],
    pattern: str | None,
    patience: float,
    *,
    end_on_error: bool = False,
) -> CrkafkaError | None:
    """Join until the first assignment; the last error if none came."""
    consumer = GroupConsumer(properties)
    last: CrkafkaError | None = KafkaUnavailable(f"Group {consumer.group_id} admitted no member in {patience:.0f} s.")
    try:
        consumer.subscribe(topics, pattern=pattern)
        end = time.monotonic() + patience
        while time.monotonic() < end:
            polled = consumer.poll(1, 0.1)
            if any(r.kind is Kind.ASSIGNED for r in polled.rebalances):
                return None
            if polled.errors:
                last = polled.errors[0]
                if end_on_error:
                    break
        return last
    finally:
        consumer.close()
