"""Reads exact offset ranges by `assign`, with no group and no effect on one (SPEC K3).

A range ends with a record or the position at or past its end, or with the log (SPEC V3): the last offsets of a range may be control
records, which a client never delivers (docs/clients.md C-R6).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from crkafka_core.kafka import clients
from crkafka_core.kafka.edge import Admin
from crkafka_core.kafka.errors import UNREADABLE, VANISHED, RecordUnreadable, error_of
from crkafka_core.kafka.native.records import records_of
from crkafka_core.kafka.properties import reader_properties
from crkafka_core.model.errors import DataLoss, ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.plane.reading import KafkaRange
from crkafka_core.segments.batch import Batch

_ROWS = 20_000
_POLL = 0.05
_PATIENCE = 60.0
"""Seconds without progress after which a broker counts as unavailable."""


class RangeReader:
    """One consumer that reads ranges one after another; belongs to one thread (docs/clients.md C-K1)."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        name = f"crkafka-read-{uuid.uuid4().hex[:12]}"
        self._consumer = clients.consumer(reader_properties(kafka, client_id=name))
        self._records = records_of(self._consumer)
        self._trouble: KafkaError | None = None
        self._unreadable: KafkaError | None = None
        """The first unreadable record, behind which records are ignored; it may be past the range (SPEC X9)."""

    def __enter__(self) -> RangeReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._records.close()
        self._consumer.close()

    def read(self, tp: TP, start: int, stop: int) -> Iterator[Batch]:
        """Records with start ≤ offset < stop, in order."""
        if start >= stop:
            return
        self._consumer.assign([TopicPartition(tp.topic, tp.partition, start)])
        self._records.hold([tp])
        self._trouble = self._unreadable = None
        position, heard = start, time.monotonic()
        try:
            while position < stop:
                batch, end = self._poll(tp, start, stop, position)
                before = position
                if batch is not None:
                    position = max(position, batch.offsets().get(tp, position))
                    if position > stop:  # offsets rise: as many rows as have one below the end come first
                        below = np.count_nonzero(batch.records.column("offset").to_numpy() < stop)
                        batch = batch.until({tp: int(below)})
                    if batch.rows:
                        yield batch
                        heard = time.monotonic()  # the time the caller took does not count as silence of Kafka
                if position < stop and self._unreadable is not None:
                    raise RecordUnreadable(tp, position, self._unreadable.str())
                if batch is None:  # librdkafka's position counts control records, or is negative (docs/clients.md C-K5)
                    position = max(position, *(p.offset for p in self._consumer.position([TopicPartition(*tp)])))
                position = max(position, end)
                if position > before:
                    heard = time.monotonic()
                elif time.monotonic() - heard > _PATIENCE:
                    raise self._silent(tp, position, stop, end)
        finally:
            self._consumer.unassign()

    def _poll(self, tp: TP, start: int, stop: int, position: int) -> tuple[Batch | None, int]:
        """Records, and the end of the log if it was reached, else −1."""
        try:
            served = self._records.serve()
            taken = served if served.batch is not None else self._records.take(_ROWS, _POLL)
            if taken.lost:
                self._consumer.seek(TopicPartition(tp.topic, tp.partition, position))
        except KafkaException as error:
            raise error_of(error, f"reading {tp}") from error
        end, batch = -1, taken.batch
        for failure in taken.failures if taken is served else (*served.failures, *taken.failures):
            code = failure.error.code()
            if self._unreadable is not None:
                continue
            if code == KafkaError._PARTITION_EOF:
                end = failure.offset
            elif code in UNREADABLE:
                self._unreadable = failure.error
                batch = None if batch is None else batch.until({tp: failure.before})
            elif code in VANISHED:
                raise DataLoss(
                    f"Kafka no longer holds offset {failure.offset} of {tp}, of the range [{start}, {stop}).",
                    hint="Retention or a truncation removed it; later checkpoints may still be readable.",
                )
            else:
                typed = error_of(failure.error, f"reading {tp}")
                if not isinstance(typed, ServiceUnavailable):
                    raise typed
                self._trouble = failure.error
        return batch, end

    def _silent(self, tp: TP, position: int, stop: int, end: int) -> Exception:
        if self._trouble is not None:
            return error_of(self._trouble, f"reading {tp} at {position}")
        if 0 <= end < stop:
            return DataLoss(
                f"{tp} ends at offset {end}; the range that was landed goes to {stop}.", hint="Was the topic made anew?"
            )
        return ServiceUnavailable(
            f"No records of {tp} at offset {position} for {_PATIENCE:.0f} s.", hint="Is its leader up?"
        )


def check_same(admin: Admin, ranges: Sequence[KafkaRange]) -> None:
    """Refuse archived ranges of another cluster, or of another topic of the same name, naming both ids (SPEC K3, T2)."""
    clusters = {r.cluster_id for r in ranges if r.cluster_id}
    cluster = admin.cluster_id() if clusters else ""
    topics = admin.topics({r.topic for r in ranges})
    for r in ranges:
        now = topics.get(r.topic)
        if r.cluster_id and r.cluster_id != cluster:
            why = (
                f": it was read from the Kafka cluster {r.cluster_id}; bootstrap.servers leads to the cluster {cluster}"
            )
            hint = "Read it with a configuration that names the cluster of that time, if it still exists."
        elif now is None:
            why = f", and Kafka no longer has topic {r.topic} with id {r.topic_id or 'unknown'}"
            hint = "It cannot be read again."
        elif r.topic_id is None:
            why = (
                f" without the id of topic {r.topic}, which was made anew at some time: it is unknown whether it was read from the "
                f"present topic, with id {now.id}"
            )
            hint = "It was archived before ids were kept; it cannot be read again."
        elif r.topic_id and now.id and r.topic_id != now.id:
            why = f": it was read from topic {r.topic} with id {r.topic_id}; the topic of this name has the id {now.id} now"
            hint = "The topic was deleted and made anew: the records of the old one cannot be read again."
        else:
            continue
        raise DataLoss(f"Checkpoint {r.checkpoint} is archived{why}.", hint=hint)


def check_uncut(admin: Admin, ranges: Sequence[KafkaRange]) -> None:
    """Refuse ranges of a log that was cut below their ends, also if other records have been written there since (SPEC S4). Only the last
    range of a partition is compared: leaders of the same epoch have the same log up to its end."""
    last = {r.tp: r for r in sorted(ranges, key=lambda r: r.stop) if r.leader_epoch >= 0}
    cut = admin.cut_below({tp: (r.stop, r.leader_epoch) for tp, r in last.items()}) if last else {}
    for r in sorted(ranges, key=lambda r: r.checkpoint):
        if r.stop > cut.get(r.tp, r.stop):
            raise DataLoss(
                f"Checkpoint {r.checkpoint} is archived: {r.tp} [{r.start}, {r.stop}) was read under the leader epoch "
                f"{last[r.tp].leader_epoch} or an earlier one, whose log ends at {cut[r.tp]} now.",
                hint="An unclean leader election cut it; other records have these offsets now.",
            )
