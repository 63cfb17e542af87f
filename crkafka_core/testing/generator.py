"""Uniquely numbered records in Kafka: plain, in bulk, transactional with aborts, skewed, or as a steady stream.

What is known to be committed goes into the generator's ledger; what was aborted does not.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.model.offsets import TP
from crkafka_core.verify.ledger import SEQ_AT, Ledger, value_of

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_CHUNK = 20_000


class GeneratorFailed(RuntimeError):
    """Kafka did not take a record for good: the truth is not known any more, so the test is void."""


class Generator:
    """One producer with numbers of its own. For one thread at a time: while `stream` runs, for its thread only."""

    def __init__(
        self,
        bootstrap: str,
        *,
        value_bytes: int = 140,
        seed: int = 0,
        timeout: float = 60.0,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """`timeout`: how long Kafka may be away before a record counts as failed."""
        self.bootstrap = bootstrap
        self.ledger = Ledger(uuid.uuid4().hex[:8])
        self.value_bytes = value_bytes
        self._timeout = timeout
        self._random = random.Random(seed)
        self._numbers = np.random.default_rng(seed)
        self._seq = 0
        self._patient_until = 0.0
        self._transactional: Producer | None = None
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": round(timeout * 1000),
            "linger.ms": 5,
            "reconnect.backoff.max.ms": 1_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 262_144,
            "compression.type": "lz4",
            **(properties or {}),
        }
        self.reconnect()
        self._admin = KafkaAdmin({"bootstrap.servers": bootstrap}, client_id="generator", timeout=timeout)

    def reconnect(self) -> None:
        """Know nothing of topics: a client goes on with the leader epochs of one that was deleted, and never finds its successor."""
        self._plain = Producer(self._settings)

    def value(self, seq: int, topic: str, padding: bytes = b"") -> bytes:
        """The value of a record; one of your own has the twelve digits of its number at the same place (`SEQ_AT`)."""
        return value_of(self.ledger.run, seq, topic, padding)

    def send(
        self,
        topic: str,
        count: int,
        *,
        partitions: int = 1,
        weights: Sequence[float] | None = None,
        key: bool = False,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> int:
        """Send records in turn over the partitions, or by chance with these weights; all are acknowledged after it."""
        outcome = self._produce(self._plain, topic, count, partitions, weights, key, headers)
        self._finish(self._plain, outcome)
        outcome.enter(self.ledger)
        return count

    def transaction(
        self,
        topics: str | Sequence[str],
        count: int,
        *,
        partitions: int = 1,
        weights: Sequence[float] | None = None,
        abort: bool = False,
    ) -> int:
        """Send records to each topic in one transaction; returns how many were committed: none if it is aborted."""
        producer = self._begin()
        outcome = _Outcome()
        for topic in [topics] if isinstance(topics, str) else topics:
            self._produce(producer, topic, count, partitions, weights, False, None, outcome)
        self._finish(producer, outcome)
        self._end(producer, abort)
        if abort:
            return 0
        outcome.enter(self.ledger)
        return len(outcome)

    def unfinished(self, topic: str, count: int, *, partitions: int = 1) -> None:
        """Send records in a transaction that stays open, and holds the last stable offset: see `abort`, `commit`."""
        producer = self._begin()
        self._open = self._produce(producer, topic, count, partitions, None, False, None)
        self._finish(producer, self._open)

    def abort(self) -> None:
        """End the open transaction; its records are void."""
        self._end(self._require_open(), abort=True)

    def commit(self) -> int:
        """Commit the open transaction; how many records."""
        outcome = self._open
        self._end(self._require_open(), abort=False)
        outcome.enter(self.ledger)
        return len(outcome)

    def bulk(self, topic: str, count: int, *, partitions: int = 1) -> int:
        """Send many records quickly, for benchmarks. Nobody else may write to the topic meanwhile.

        There are no delivery reports: offsets follow from the ends before and after, which must differ by the count.
        """
        before = self._ends(topic, partitions)
        producer, first = self._plain, self._seq
        for start in range(first, first + count, _CHUNK):
            stop = min(start + _CHUNK, first + count)
            for seq, padding in zip(range(start, stop), self._paddings(topic, stop - start), strict=True):
                value = self.value(seq, topic, padding)
                while True:
                    try:
                        producer.produce(topic, value, partition=(seq - first) % partitions)
                        break
                    except BufferError:
                        producer.poll(0.05)
            producer.poll(0)
        self._seq += count
        if producer.flush(self._timeout) != 0:
            raise GeneratorFailed(f"Kafka did not take all of {count} records of {topic}.")
        after = self._ends(topic, partitions)
        for partition in range(partitions):
            tp, seqs = TP(topic, partition), np.arange(first + partition, first + count, partitions)
            if after[tp] - before[tp] != len(seqs):
                raise GeneratorFailed(
                    f"{tp} grew by {after[tp] - before[tp]}, not by {len(seqs)}: it had another writer."
                )
            self.ledger.add(tp, np.arange(before[tp], after[tp]), seqs)
        return count

    @contextlib.contextmanager
    def stream(
        self,
        topics: str | Sequence[str],
        *,
        per_second: float = 1_000.0,
        partitions: int = 1,
        weights: Sequence[float] | None = None,
        abort_every: int = 0,
        pace: float = 0.05,
    ) -> Iterator[Ledger]:
        """Records in a thread until the block ends, a batch every `pace` seconds; with `abort_every` n each nth transaction is void.

        Nothing else may be sent with this generator meanwhile. An error of the thread is raised at the end.
        """
        names = [topics] if isinstance(topics, str) else list(topics)
        ending, failed = threading.Event(), []

        def run() -> None:
            sent, began, turn = 0, time.monotonic(), 0
            try:
                while not ending.wait(pace):
                    due = int((time.monotonic() - began) * per_second) - sent
                    for name in names if due > 0 else ():
                        share = min(max(1, due // len(names)), _CHUNK)
                        turn += 1
                        send = partial(self.transaction, abort=turn % abort_every == 0) if abort_every else self.send
                        send(name, share, partitions=partitions, weights=weights)
                        sent += share
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=run, name="generator", daemon=True)
        thread.start()
        try:
            yield self.ledger
        finally:
            ending.set()
            thread.join(self._timeout * 2)
        if failed:
            raise failed[0]

    def _produce(
        self,
        producer: Producer,
        topic: str,
        count: int,
        partitions: int,
        weights: Sequence[float] | None,
        key: bool,
        headers: Sequence[tuple[str, bytes | None]] | None,
        outcome: _Outcome | None = None,
    ) -> _Outcome:
        outcome = outcome if outcome is not None else _Outcome()
        self._patient_until = time.monotonic() + self._timeout
        for done in range(0, count, _CHUNK):
            size = min(_CHUNK, count - done)
            for i, padding in enumerate(self._paddings(topic, size)):
                seq = self._seq
                self._seq += 1
                turn = (done + i) % partitions
                options: dict[str, Any] = {
                    "partition": self._random.choices(range(partitions), weights)[0] if weights else turn,
                    "on_delivery": outcome.report,
                }
                if key:
                    options["key"] = f"{seq % 97:02d}"
                if headers is not None:
                    options["headers"] = list(headers)
                value = self.value(seq, topic, padding)
                while True:
                    try:
                        producer.produce(topic, value, **options)
                        break
                    except BufferError:
                        producer.poll(0.05)
                    except KafkaException as error:
                        self._learn(producer, topic, error)
                outcome.awaited += 1
            producer.poll(0)
        return outcome

    def _learn(self, producer: Producer, topic: str, error: KafkaException) -> None:
        """A partition or a topic that is new is not known to the producer until it asks."""
        if error.args[0].code() not in (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC):
            raise error
        if time.monotonic() > self._patient_until:
            raise GeneratorFailed(f"Kafka does not know what is sent to {topic}: {error.args[0].str()}.") from error
        producer.list_topics(topic, timeout=self._timeout)
        producer.poll(0.1)

    def _finish(self, producer: Producer, outcome: _Outcome) -> None:
        left = producer.flush(self._timeout)
        if outcome.error is not None:
            raise GeneratorFailed(f"A record was not delivered: {outcome.error}.")
        if left or len(outcome) != outcome.awaited:
            raise GeneratorFailed(
                f"{outcome.awaited - len(outcome)} records have no report after {self._timeout:.0f} s."
            )

    _open: _Outcome

    def _begin(self) -> Producer:
        if self._transactional is None:
            settings = {"transactional.id": f"generator-{self.ledger.run}", "transaction.timeout.ms": 60_000}
            self._transactional = Producer(self._settings | settings)
            self._again(lambda: self._require_open().init_transactions(self._timeout))
        self._transactional.begin_transaction()
        return self._transactional

    def _end(self, producer: Producer, abort: bool) -> None:
        self._again(lambda: (producer.abort_transaction if abort else producer.commit_transaction)(self._timeout))

    def _again(self, call: Any) -> None:
        """Ends and starts of transactions may be repeated while librdkafka says so: the outcome is one."""
        until = time.monotonic() + self._timeout
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() >= until:
                    raise GeneratorFailed(f"The outcome of a transaction is unknown: {error.args[0].str()}.") from error

    def _require_open(self) -> Producer:
        if self._transactional is None:
            raise GeneratorFailed("There is no open transaction.")
        return self._transactional

    def _paddings(self, topic: str, count: int) -> Iterator[bytes]:
        """Random hex digits: half of them is information, as in text; constant padding would flatter compression."""
        size = self.value_bytes - len(self.value(0, topic))
        if size <= 0:
            return iter([b""] * count)
        digits = _HEX[self._numbers.integers(0, 16, count * size, dtype=np.uint8)].tobytes()
        return (digits[at : at + size] for at in range(0, count * size, size))

    def _ends(self, topic: str, partitions: int) -> dict[TP, int]:
        """Ends, once the marks of transactions that are over have been written; one that stays open is not waited for long."""
        tps = [TP(topic, partition) for partition in range(partitions)]
        until = time.monotonic() + _MARKS
        while True:
            stable = self._admin.watermarks(tps, "read_committed")
            ends = self._admin.watermarks(tps, "read_uncommitted")
            if stable == ends or time.monotonic() > until:
                return {tp: end for tp, (_, end) in ends.items()}
            time.sleep(0.05)


_MARKS = 10.0
"""Seconds in which a coordinator has written the marks of a transaction that was ended."""


class _Outcome:
    """Delivery reports of some records."""

    def __init__(self) -> None:
        self.awaited = 0
        self.error: str | None = None
        self._committed: dict[TP, tuple[list[int], list[int]]] = {}

    def __len__(self) -> int:
        return sum(len(offsets) for offsets, _ in self._committed.values())

    def report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.error = self.error or error.str()
            return
        value: Any = message.value()
        tp: Any = TP(str(message.topic()), message.partition() or 0)
        offsets, seqs = self._committed.setdefault(tp, ([], []))
        offsets.append(message.offset() or 0)
        seqs.append(int(value[SEQ_AT]))

    def enter(self, ledger: Ledger) -> None:
        for tp, (offsets, seqs) in self._committed.items():
            ledger.add(tp, offsets, seqs)
