"""Questions to Kafka beside one's own consumption: topics, ends, times, commits, groups (SPEC S1–S4, 18)."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from crkafka_core.kafka.errors import KafkaUnavailable, NotAllowed, error_of
from crkafka_core.kafka.log import client_log
from crkafka_core.kafka.properties import admin_properties
from crkafka_core.model.errors import ConfigError, CrkafkaError
from crkafka_core.model.offsets import TP

_T = TypeVar("_T")

Isolation = Literal["read_committed", "read_uncommitted"]

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as it is now."""

    id: str
    """New for each topic that is made, also under an old name (FACTS R9); empty where the broker does not tell."""
    partitions: tuple[int, ...]

    def tps(self, topic: str) -> frozenset[TP]:
        return frozenset(TP(topic, partition) for partition in self.partitions)


def _found(answer: Iterable[TopicPartition]) -> dict[TP, Committed]:
    found = {}
    for p in answer:
        if p.error is not None:
            raise KafkaException(p.error)
        if p.offset >= 0:
            found[TP(p.topic, p.partition)] = Committed(p.offset, p.metadata or "")
    return found


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset of a group, with what was written beside it (SPEC D2)."""

    offset: int
    metadata: str


class KafkaAdmin:
    """Safe to use from several threads. Every call has a time limit, and raises KafkaUnavailable when it has passed."""

    def __init__(self, kafka: Mapping[str, str], *, client_id: str = "crkafka-admin", timeout: float = 10.0) -> None:
        """`kafka` holds resolved values; only connection and security are used."""
        properties = self._properties = admin_properties(kafka, client_id=client_id)
        self.bootstrap = properties["bootstrap.servers"]
        self.timeout = timeout
        self._refusal: KafkaError | None = None
        self._lock = threading.Lock()
        try:
            settings: dict[str, Any] = {**properties, "error_cb": self._on_error}
            self._client = AdminClient(settings, logger=client_log)
        except KafkaException as error:
            raise ConfigError(f"kafka: {error.args[0].str()}.", hint="Mend the property.") from error

    def cluster_id(self) -> str:
        """The cluster's own name for itself: half of the key of a group (SPEC G1)."""
        metadata: Any = self._call("asking for the cluster id", lambda: self._client.list_topics(timeout=self.timeout))
        if not metadata.cluster_id:
            raise KafkaUnavailable(f"Kafka at {self.bootstrap} does not tell its cluster id.")
        return str(metadata.cluster_id)

    def topics(self, names: Iterable[str] = (), *, pattern: str | None = None) -> dict[str, TopicInfo]:
        """The topics of these names that exist, or all that match the pattern; internal ones are left out."""
        if pattern is not None:
            names = self._matching(pattern)
        wanted = sorted(set(names))
        if not wanted:
            return {}
        until = time.monotonic() + self.timeout
        while True:
            try:
                return self._described(wanted)
            except KafkaUnavailable:
                if time.monotonic() >= until:
                    raise
                self._find_controller()

    def _described(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        what = f"describing {len(names)} topics"
        try:
            futures = self._client.describe_topics(
                TopicCollection(list(names)), request_timeout=min(_ATTEMPT, self.timeout)
            )
            found = {}
            for name, future in futures.items():
                try:
                    described = self._call(what, lambda f=future: f.result(timeout=self.timeout + 1), raw=True)  # type: ignore[misc]
                except KafkaException as error:
                    if error.args[0].code() in _NO_SUCH_TOPIC:
                        continue
                    raise
                found[name] = TopicInfo(
                    str(described.topic_id or ""), tuple(sorted(p.id for p in described.partitions))
                )
            return found
        except KafkaException as error:
            if error.args[0].code() in _NOT_THERE:
                return self._topics_without_ids(names)
            raise self._typed(error, what) from error

    def _find_controller(self) -> None:
        """librdkafka asks the controller, and an admin client never learns by itself that the controller is another one by now."""
        self._call("listing brokers", lambda: self._client.list_topics(timeout=min(_ATTEMPT, self.timeout)))

    def watermarks(self, tps: Iterable[TP], isolation: Isolation = "read_committed") -> dict[TP, tuple[int, int]]:
        """Per partition the earliest offset and the end: the last stable offset, or the high watermark (FACTS R6)."""
        asked = sorted(set(tps))
        earliest = self._list_offsets(asked, _EARLIEST, isolation)
        latest = self._list_offsets(asked, _LATEST, isolation)
        return {tp: (earliest[tp], latest[tp]) for tp in asked}

    def offsets_for_time(
        self, tps: Iterable[TP], millis: int, isolation: Isolation = "read_committed"
    ) -> dict[TP, int]:
        """Per partition the first offset at or after the time; past the end it is the end (SPEC S2, FACTS R7)."""
        asked = sorted(set(tps))
        found = self._list_offsets(asked, OffsetSpec.for_timestamp(millis), isolation)
        past = [tp for tp in asked if found[tp] < 0]
        return found | self._list_offsets(past, _LATEST, isolation)

    def committed(self, group_id: str, tps: Iterable[TP]) -> dict[TP, Committed]:
        """Committed offsets of a group for these partitions; those without one are left out.

        Asked through a consumer that does not join: librdkafka's admin call for it dereferences a group that an admin client
        does not have, and ends the process, when the coordinator is loading or moving (seen with 2.16.0).
        """
        asked = sorted(set(tps))
        if not asked:
            return {}
        what = f"reading the committed offsets of group {group_id}"
        end = time.monotonic() + self.timeout
        consumer = Consumer(
            {**self._properties, "group.id": group_id, "enable.auto.commit": "false"}, logger=client_log
        )
        try:
            while True:
                try:
                    return _found(consumer.committed([TopicPartition(*tp) for tp in asked], timeout=self.timeout))
                except KafkaException as error:
                    typed = self._typed(error, what)
                    if not isinstance(typed, KafkaUnavailable) or time.monotonic() > end:
                        raise typed from error
                    time.sleep(0.1)
        finally:
            consumer.close()

    def describe_group(self, group_id: str) -> Any:
        """librdkafka's description of a group; `KafkaException` where the broker lacks the call (SPEC 18)."""
        futures = self._client.describe_consumer_groups([group_id], request_timeout=self.timeout)
        return self._call(
            f"describing group {group_id}", lambda: futures[group_id].result(timeout=self.timeout + 1), raw=True
        )

    def close(self) -> None:
        """Nothing to do but to let go: librdkafka ends the client with its last reference."""

    def _matching(self, pattern: str) -> list[str]:
        """Topics as the subscription finds them: anywhere in the name, unless anchored (SPEC M7)."""
        expression = re.compile(pattern)
        metadata = self._call("listing topics", lambda: self._client.list_topics(timeout=self.timeout))
        return [name for name in metadata.topics if not name.startswith("__") and expression.search(name)]

    def _topics_without_ids(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        metadata = self._call("listing topics", lambda: self._client.list_topics(timeout=self.timeout))
        existing = {n: t for n, t in metadata.topics.items() if n in set(names) and t.error is None}
        return {n: TopicInfo("", tuple(sorted(t.partitions))) for n, t in existing.items()}

    def _list_offsets(self, tps: Sequence[TP], spec: OffsetSpec, isolation: Isolation) -> dict[TP, int]:
        """Leaders move, and a new topic has none for a moment: what is not ready is asked for again."""
        until, found, left = time.monotonic() + self.timeout, {}, list(tps)
        while left:
            answers, trouble = self._list_offsets_once(left, spec, isolation)
            found.update(answers)
            left = [tp for tp in left if tp not in answers]
            if trouble is not None and time.monotonic() >= until:
                raise trouble
            if left:
                time.sleep(0.1)
        return found

    def _list_offsets_once(
        self, tps: Sequence[TP], spec: OffsetSpec, isolation: Isolation
    ) -> tuple[dict[TP, int], KafkaUnavailable | None]:
        what = f"asking for offsets of {len(tps)} partitions"
        level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
        request = {TopicPartition(tp.topic, tp.partition): spec for tp in tps}
        futures = self._call(
            what, lambda: self._client.list_offsets(request, isolation_level=level, request_timeout=self.timeout)
        )
        found, trouble = {}, None
        for p, future in futures.items():
            tp = TP(p.topic, p.partition)
            try:
                answer = self._call(f"{what}, at {tp}", lambda f=future: f.result(timeout=self.timeout + 1))  # type: ignore[misc]
                found[tp] = int(answer.offset)
            except KafkaUnavailable as error:
                trouble = error
        return found, trouble

    def _call(self, what: str, call: Callable[[], _T], *, raw: bool = False) -> _T:
        """Run a call; errors become typed, except that `raw` lets those through that the caller looks at."""
        try:
            return call()
        except KafkaException as error:
            if raw:
                raise
            raise self._typed(error, what) from error
        except TimeoutError as error:
            raise KafkaUnavailable(f"Kafka at {self.bootstrap} did not answer {what} in time.") from error

    def _typed(self, error: KafkaException, what: str) -> CrkafkaError:
        """A client that is refused reconnects and times out; the reason comes by the error callback only."""
        typed = error_of(error, f"{what} at {self.bootstrap}")
        if isinstance(typed, KafkaUnavailable):
            self._client.poll(0)
            with self._lock:
                refusal, self._refusal = self._refusal, None
            if refusal is not None:
                return error_of(refusal, f"{what} at {self.bootstrap}")
        return typed

    def _on_error(self, error: KafkaError) -> None:
        if isinstance(error_of(error, "connecting"), NotAllowed):
            with self._lock:
                self._refusal = error


_ATTEMPT = 3.0
"""Seconds of one question to the controller, before it is looked for again."""
_NO_SUCH_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.TOPIC_EXCEPTION}
_NOT_THERE = {KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE, KafkaError.INVALID_REQUEST}
