"""Commits with a deadline: librdkafka's own has none once the coordinator's connection broke under the request.

A request that was sent when the connection breaks waits, without any timeout, until the coordinator is back, and is then
accepted (seen with 2.16.0: 55 s and more than 200 s with a session of 6 s). So it runs on a thread of its own, and the
owner of the consumer waits for it only so long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import TopicPartition


class CommitPending(Exception):
    """The commit is still under way; the consumer answers nothing until it ends (docs/clients.md C-K1)."""


class CommitDeadline:
    """Runs one synchronous commit at a time. Used by the consumer's owner; only the commit itself is on the other thread."""

    def __init__(self, consumer: Any, patience: float) -> None:
        self.patience = patience
        self._consumer = consumer
        self._attempt: _Attempt | None = None
        self._given_up_at = 0.0

    @property
    def stuck(self) -> bool:
        """A commit that was given up on has not ended yet: no call may reach the consumer."""
        if self._attempt is not None and self._attempt.ended.is_set():
            self._attempt = None
        return self._attempt is not None

    def wait(self, timeout: float) -> bool:
        """Give a stuck commit some more time; True once the consumer can be used again."""
        if self._attempt is not None:
            self._attempt.ended.wait(timeout)
        return not self.stuck

    def hopeless(self, after: float) -> bool:
        """A commit was given up on so many seconds ago and still holds the consumer: only a new one helps."""
        return self.stuck and time.monotonic() - self._given_up_at > after

    def commit(self, request: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The answer, partition by partition; CommitPending when the patience is over. What the client raises is raised."""
        if self.stuck:
            raise CommitPending
        attempt = self._attempt = _Attempt(self._consumer, list(request))
        threading.Thread(target=attempt.run, name="commit", daemon=True).start()
        if not attempt.ended.wait(self.patience):
            self._given_up_at = time.monotonic()
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
