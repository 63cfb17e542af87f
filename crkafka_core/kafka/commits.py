"""Commits of offsets: in pieces that a broker accepts, each with a deadline.

librdkafka has no deadline for a commit whose connection breaks after the request was sent: it waits until the coordinator is back, and
is then accepted (seen with 2.16.0: 55 s and more than 200 s with a session of 6 s). So a commit runs on a thread of its own, for which
the owner of the consumer waits a limited time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import TopicPartition

from crkafka_core.kafka.errors import Fenced, GroupRebalanced, KafkaFailed, KafkaUnavailable, NotAllowed
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural

COMMIT_BYTES = 512 * 1024
"""Largest commit: half of Kafka's default `message.max.bytes`, which limits a batch of `__consumer_offsets`."""
_RECORD_BYTES = 72
"""Size of one partition's record in that batch without group, topic and metadata."""


def chunks(
    offsets: Mapping[TP, int], metadata: Mapping[TP, str], *, group_id: str, most: int = COMMIT_BYTES
) -> Iterator[dict[TP, int]]:
    """The offsets in order, in pieces of at most `most` bytes and at least one partition: one request is one batch of
    `__consumer_offsets` (docs/clients.md C-R16)."""
    piece: dict[TP, int] = {}
    size, group = 0, len(group_id.encode())
    for tp, offset in sorted(offsets.items()):
        needs = _RECORD_BYTES + group + len(tp.topic.encode()) + len(metadata.get(tp, "").encode())
        if piece and size + needs > most:
            yield piece
            piece, size = {}, 0
        piece[tp] = offset
        size += needs
    if piece:
        yield piece


_WAYS_TO_FAIL = (KafkaUnavailable, GroupRebalanced, NotAllowed, KafkaFailed, Fenced)
"""Errors of a commit, the worst last."""


def commit_error(failures: Sequence[CrkafkaError]) -> CrkafkaError:
    """The worst of several partitions' failures: a fatal one outweighs a transient one (SPEC D2).

    A deleted topic only aborts the cut, as KafkaUnavailable: the reset that follows detects it (SPEC S4).
    """
    known = [e if isinstance(e, _WAYS_TO_FAIL) else KafkaUnavailable(e.message, hint=e.hint) for e in failures]
    worst = max(known, key=lambda error: next(i for i, kind in enumerate(_WAYS_TO_FAIL) if isinstance(error, kind)))
    if len(known) == 1:
        return worst
    others = sorted({type(error).__name__ for error in known} - {type(worst).__name__})
    also = f", also by {', '.join(others)}" if others else ""
    return type(worst)(f"{worst.message} {plural(len(known), 'partition')} failed{also}.", hint=worst.hint)


class CommitPending(Exception):
    """The commit has not ended, and blocks the consumer until it does (docs/clients.md C-K1)."""


class CommitDeadline:
    """Runs one synchronous commit at a time, on a thread of its own. All methods belong to the consumer's thread."""

    def __init__(self, consumer: Any, patience: float) -> None:
        self.patience = patience
        self._consumer = consumer
        self._attempt: _Attempt | None = None
        self._given_up_at = 0.0

    @property
    def stuck(self) -> bool:
        """Whether a commit past its deadline has not ended yet: until then no call may reach the consumer."""
        if self._attempt is not None and self._attempt.ended.is_set():
            self._attempt = None
        return self._attempt is not None

    def wait(self, timeout: float) -> bool:
        """Wait for a stuck commit; True once the consumer can be used again."""
        if self._attempt is not None:
            self._attempt.ended.wait(timeout)
        return not self.stuck

    def hopeless(self, after: float) -> bool:
        """Whether a commit is stuck for more than `after` seconds past its deadline: only a new consumer helps."""
        return self.stuck and time.monotonic() - self._given_up_at > after

    def commit(self, request: Sequence[TopicPartition], patience: float | None = None) -> list[TopicPartition]:
        """The answer for each partition; CommitPending after the patience, or the client's exception."""
        if self.stuck:
            raise CommitPending
        attempt = self._attempt = _Attempt(self._consumer, list(request))
        threading.Thread(target=attempt.run, name="commit", daemon=True).start()
        waited = self.patience if patience is None else patience
        if not attempt.ended.wait(waited):
            self._given_up_at = time.monotonic() + self.patience - waited
            raise CommitPending
        self._attempt = None
        if attempt.error is not None:
            raise attempt.error
        return attempt.answer


class _Attempt:
    def __init__(self, consumer: Any, request: list[TopicPartition]) -> None:
        self.ended = threading.Event()
        self.answer: list[TopicPartition] = []
        self.error: BaseException | None = None
        self._consumer = consumer
        self._request = request

    def run(self) -> None:
        try:
            self.answer = self._consumer.commit(offsets=self._request, asynchronous=False) or []
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()
