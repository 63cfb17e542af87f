"""Commits of offsets: in pieces that a broker accepts, each with a deadline.

librdkafka has no deadline for a commit whose connection breaks after the request was sent: it waits until the coordinator is back, and
is then accepted (seen with 2.16.0: 55 s and more than 200 s with a session of 6 s). So a commit runs on a thread of its own, for which
the owner of the consumer waits a limited time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from crkafka_core.kafka import errors
from crkafka_core.kafka.errors import KafkaUnavailable, client_error, error_of
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural

COMMIT_BYTES = 512 * 1024
"""Largest commit: half of Kafka's default `message.max.bytes`, which limits a batch of `__consumer_offsets`."""
_RECORD_BYTES = 72
"""Size of one partition's record in that batch without group, topic and metadata."""
_TOO_LARGE = {KafkaError.INVALID_COMMIT_OFFSET_SIZE, KafkaError.MSG_SIZE_TOO_LARGE}
"""Answers to a commit that is no batch of `__consumer_offsets` under this broker's limits."""


def chunks(
    offsets: Mapping[TP, int], metadata: Mapping[TP, str], *, group_id: str, most: int = COMMIT_BYTES
) -> Iterator[dict[TP, int]]:
    """The offsets in order, in pieces of at most `most` bytes and at least one partition: one request is one batch of
    `__consumer_offsets` (docs/clients.md C-R16)."""
    piece: dict[TP, int] = {}
    size = 0
    for tp, offset in sorted(offsets.items()):
        needs = _size(tp, metadata, group_id)
        if piece and size + needs > most:
            yield piece
            piece, size = {}, 0
        piece[tp] = offset
        size += needs
    if piece:
        yield piece


def _size(tp: TP, metadata: Mapping[TP, str], group_id: str) -> int:
    return _RECORD_BYTES + sum(len(text.encode()) for text in (group_id, tp.topic, metadata.get(tp, "")))


_WAYS_TO_FAIL = (KafkaUnavailable, errors.GroupRebalanced, errors.NotAllowed, errors.KafkaFailed, errors.Fenced)
"""Errors of a commit, the worst last."""


def commit_error(failures: Sequence[CrkafkaError]) -> CrkafkaError:
    """The worst of several partitions' failures: a fatal one outweighs a transient one (SPEC D2). A deleted topic only aborts the cut, as
    KafkaUnavailable: the reset that follows detects it (SPEC S4)."""
    known = [e if isinstance(e, _WAYS_TO_FAIL) else KafkaUnavailable(e.message, hint=e.hint) for e in failures]
    worst = max(known, key=lambda error: next(i for i, kind in enumerate(_WAYS_TO_FAIL) if isinstance(error, kind)))
    if len(known) == 1:
        return worst
    others = sorted({type(error).__name__ for error in known} - {type(worst).__name__})
    also = f", also by {', '.join(others)}" if others else ""
    return type(worst)(f"{worst.message} {plural(len(known), 'partition')} failed{also}.", hint=worst.hint)


class Commits:
    """Synchronous commits, one request at a time, each on a thread of its own. All methods belong to the consumer's thread."""

    def __init__(self, consumer: Any, group_id: str, patience: float) -> None:
        self.fenced = False
        """A commit was refused as another consumer's."""
        self._consumer = consumer
        self._group_id = group_id
        self._patience = patience
        self._most = COMMIT_BYTES
        """Halved for good when the broker refuses a piece as too large."""
        self._attempt: Future[list[TopicPartition]] | None = None
        self._given_up_at = 0.0

    @property
    def stuck(self) -> bool:
        """Whether a commit past its deadline has not ended yet: until then no call may reach the consumer."""
        return self._attempt is not None and not self._attempt.done()

    def wait(self, timeout: float) -> bool:
        """Wait for a stuck commit; True once the consumer can be used again."""
        if self._attempt is not None:
            wait([self._attempt], timeout)
        return not self.stuck

    def hopeless(self, after: float) -> bool:
        """Whether a commit is stuck for more than `after` seconds past its deadline: only a new consumer helps."""
        return self.stuck and time.monotonic() - self._given_up_at > after

    def commit(
        self,
        offsets: Mapping[TP, int],
        metadata: Mapping[TP, str],
        leader_epochs: Mapping[TP, int],
        patience: float | None = None,
    ) -> None:
        """As `GroupConsumer.commit`."""
        pieces = self._pieces(offsets, metadata)
        while pieces:
            piece = pieces.popleft()
            what = f"committing {plural(len(piece), 'partition')} of group {self._group_id}"
            request = [
                TopicPartition(tp.topic, tp.partition, offset, metadata.get(tp, ""), leader_epochs.get(tp, -1))
                for tp, offset in piece.items()
            ]
            try:
                answer = self._answer(request, what, self._patience if patience is None else patience)
                failures = [error_of(p.error, f"{what}, at {TP(p.topic, p.partition)}") for p in answer if p.error]
                codes = {p.error.code() for p in answer if p.error}
            except (KafkaException, RuntimeError) as error:
                failures = [client_error(error, what)]
                codes = {error.args[0].code()} if isinstance(error, KafkaException) else set()
            if codes and codes <= _TOO_LARGE:
                if len(piece) == 1:
                    raise KafkaUnavailable(
                        f"Kafka refuses {what} as too large.",
                        hint="Raise `message.max.bytes` of the brokers, or `max.message.bytes` of `__consumer_offsets`: 1 MiB is Kafka's "
                        "default.",
                    )
                self._most = sum(_size(tp, metadata, self._group_id) for tp in piece) // 2
                pieces = self._pieces({tp: at for left in (piece, *pieces) for tp, at in left.items()}, metadata)
            elif failures:
                failed = commit_error(failures)
                self.fenced |= isinstance(failed, errors.Fenced)
                raise failed

    def _pieces(self, offsets: Mapping[TP, int], metadata: Mapping[TP, str]) -> deque[dict[TP, int]]:
        return deque(chunks(offsets, metadata, group_id=self._group_id, most=self._most))

    def _answer(self, request: list[TopicPartition], what: str, patience: float) -> list[TopicPartition]:
        """The answer for each partition. A commit that has not ended blocks the consumer (docs/clients.md C-K1)."""
        if not self.stuck:
            attempt = self._attempt = Future()
            threading.Thread(target=_run, args=(attempt, self._consumer, request), name="commit", daemon=True).start()
            if self.wait(patience):
                return attempt.result()
            self._given_up_at = time.monotonic() + self._patience - patience
        raise KafkaUnavailable(f"Kafka did not answer in {patience:.0f} s while {what}.", hint="Is the coordinator up?")


def _run(attempt: Future[list[TopicPartition]], consumer: Any, request: list[TopicPartition]) -> None:
    try:
        attempt.set_result(consumer.commit(offsets=request, asynchronous=False) or [])
    except BaseException as error:
        attempt.set_exception(error)
