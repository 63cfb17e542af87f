"""Queries to Kafka independent of a consumer: topics, end offsets, times, commits, groups (SPEC S1-S4, U5)."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import ConfigResource, OffsetSpec  # type: ignore[attr-defined]

from crkafka_core.kafka import clients
from crkafka_core.kafka.clients import AdminConnection, T
from crkafka_core.kafka.edge import Committed, Isolation, TopicInfo
from crkafka_core.kafka.errors import KafkaUnavailable, TopicGone
from crkafka_core.kafka.leader_epochs import compare
from crkafka_core.kafka.properties import INTERNAL, RECEIVE, admin_properties
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural
from crkafka_core.model.visible import one_line

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_ATTEMPT = 3.0
"""Seconds of one request to the controller, before metadata is refreshed."""
_COORDINATOR_MOVES = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
}
"""Codes while a coordinator moves, and for a moment after the first request for a group in a new cluster."""
_NEVER = 3600.0
"""Seconds; librdkafka's largest request timeout."""
_ELECTION = 2.0
"""Seconds without a leader after which a partition is left out of an answer."""
_NEW_TOPIC = 1.0
"""Seconds without a topic in the metadata after which it counts as deleted."""
_NO_SUCH_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.TOPIC_EXCEPTION}
_NO_SUCH_CALL = {KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE, KafkaError.INVALID_REQUEST}


def _is_away(error: Exception) -> bool:
    return isinstance(error, KafkaUnavailable)


def _code(error: Exception) -> int | None:
    """librdkafka's code, if it is its error."""
    return error.args[0].code() if isinstance(error, KafkaException) else None


class KafkaAdmin(AdminConnection):
    """Safe to use from several threads. Each call raises KafkaUnavailable after `timeout` seconds."""

    def __init__(self, kafka: Mapping[str, str], *, client_id: str = "crkafka-admin", timeout: float = 10.0) -> None:
        """`kafka` contains resolved values; only connection, security and the group's name are used."""
        super().__init__(admin_properties(kafka, client_id=client_id))
        self._received = {RECEIVE: str(kafka[RECEIVE])} if RECEIVE in kafka else {}
        self._group_id = str(kafka.get("group.id", ""))
        self.timeout = timeout
        self._last_epochs: dict[TP, int | None] = {}
        """Leader epochs in the last answers of ListOffsets; those of the end offsets right after a query for these."""
        self._compared: dict[TP, tuple[tuple[int, int, int | None], int | None]] = {}
        """Last comparison: (next offset, leader epoch of the record before it, that of the end), and where the log was cut, or None."""
        self._leaderless: frozenset[TP] = frozenset()
        """Partitions without a leader in the last metadata: a request that names one is answered for none (docs/clients.md C-K34)."""
        self._reading = threading.Lock()
        self._readers: dict[str, Consumer] = {}
        """By group: consumers that do not join it and read its committed offsets."""

    def cluster_id(self) -> str:
        """The id of the cluster, half of the key of a group (SPEC G1)."""
        metadata = self._metadata("asking for the cluster id", self.timeout)
        if not metadata.cluster_id:
            raise KafkaUnavailable(f"Kafka at {self.bootstrap} gives no cluster id.")
        return str(metadata.cluster_id)

    def topics(self, names: Iterable[str] = (), *, pattern: str | None = None) -> dict[str, TopicInfo]:
        """The topics of these names that exist, or all that match the pattern; internal ones are left out."""
        if pattern is not None:  # it matches as in a subscription: anywhere in the name, unless anchored (SPEC M7)
            listed = self._metadata("listing topics", self.timeout).topics
            names = [name for name in listed if not name.startswith(INTERNAL) and re.search(pattern, name)]
        wanted = sorted(set(names))
        if not wanted:
            return {}
        return self._retried(lambda: self._described(wanted), _is_away, self._find_controller)

    def _described(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        what = f"describing {plural(len(names), 'topic')}"
        try:
            futures = self._client.describe_topics(
                TopicCollection(list(names)), request_timeout=min(_ATTEMPT, self.timeout)
            )
            described_topics = {}
            for name, future in futures.items():
                try:
                    described = self._call(what, lambda f=future: f.result(timeout=self.timeout + 1), raw=True)  # type: ignore[misc]
                except KafkaException as error:
                    if _code(error) in _NO_SUCH_TOPIC:
                        continue
                    raise
                described_topics[name] = TopicInfo(
                    str(described.topic_id or ""), tuple(sorted(p.id for p in described.partitions))
                )
            return described_topics
        except KafkaException as error:
            if _code(error) in _NO_SUCH_CALL:
                listed = self._metadata("listing topics", self.timeout).topics.items()
                return {
                    n: TopicInfo("", tuple(sorted(t.partitions))) for n, t in listed if n in names and t.error is None
                }
            raise self._typed(error, what) from error

    def _find_controller(self) -> Any:
        """Refresh metadata: an admin client does not notice by itself that another broker is the controller now."""
        return self._metadata("listing brokers", min(_ATTEMPT, self.timeout))

    def _metadata(self, what: str, patience: float) -> Any:
        return self._call(what, lambda: self._client.list_topics(timeout=patience))

    def largest_messages(self, topics: Iterable[str]) -> dict[str, int]:
        """`max.message.bytes` of each topic whose configuration we may read."""
        return {name: int(value) for name, value in self._settings(topics, "max.message.bytes").items()}

    def compacted(self, topics: Iterable[str]) -> dict[str, bool]:
        """Whether a topic is compacted, for each topic whose configuration we may read."""
        policies = self._settings(topics, "cleanup.policy")
        return {name: "compact" in value.split(",") for name, value in policies.items()}

    def _settings(self, topics: Iterable[str], setting: str) -> dict[str, str]:
        resources = {name: ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics}
        if not resources:
            return {}
        asked: Any = self._client.describe_configs(
            list(resources.values()), request_timeout=min(_ATTEMPT, self.timeout)
        )
        values: dict[str, str] = {}
        for name, resource in resources.items():
            try:
                values[name] = str(asked[resource].result(timeout=self.timeout)[setting].value)
            except (KafkaException, TimeoutError, KeyError):
                continue
        return values

    def watermarks(self, tps: Iterable[TP], isolation: Isolation = "read_committed") -> dict[TP, tuple[int, int]]:
        """Per partition the earliest offset and the end, which is the last stable offset or the high watermark (docs/clients.md C-R6)."""
        return self._all(*self.known_watermarks(tps, isolation, self.timeout))

    def known_watermarks(
        self, tps: Iterable[TP], isolation: Isolation = "read_committed", election: float = _ELECTION
    ) -> tuple[dict[TP, tuple[int, int]], dict[TP, CrkafkaError]]:
        """The same for the partitions with an answer, and the others' errors. One without a leader has `election` seconds."""
        earliest, silent = self._list_offsets(sorted(set(tps)), _EARLIEST, isolation, election)
        latest, later = self._list_offsets(sorted(earliest), _LATEST, isolation, election)
        return {tp: (earliest[tp], latest[tp]) for tp in latest}, silent | later

    def cut_below(self, offsets: Mapping[TP, tuple[int, int]]) -> dict[TP, int]:
        """Partitions whose log was cut below `offsets` (next offset, leader epoch of the record before it), and where (SPEC S4). A log that
        still ends in the same epoch has had no new leader and needs no comparison. Comparisons are kept until the next election, so that
        after a timeout only the partitions without an answer are compared again."""
        self._list_offsets(sorted(offsets), _LATEST, "read_uncommitted", _ELECTION)
        ends = {tp: self._last_epochs.get(tp) for tp in offsets}
        newer = {tp: (*asked, ends[tp]) for tp, asked in offsets.items() if ends[tp] != asked[1]}
        left = {
            tp: offsets[tp]
            for tp, asked in newer.items()
            if asked[2] is None or tp not in self._compared or self._compared[tp][0] != asked
        }
        if left:
            compared = compare(self._properties | self._received, left, group_id=self._group_id, patience=self.timeout)
            self._compared |= {tp: (newer[tp], at) for tp, at in compared.items()}
            if late := sorted(left.keys() - compared.keys()):
                others = f" and of {len(late) - 1} more" if late[1:] else ""
                raise KafkaUnavailable(f"Kafka did not answer in time whether the log of {late[0]}{others} was cut.")
        return {tp: at for tp in newer if (at := self._compared[tp][1]) is not None}

    def offsets_for_time(self, tps: Iterable[TP], millis: int) -> dict[TP, int]:
        """Per partition the first offset at or after the time; past the end it is the end (SPEC S2, docs/clients.md C-R7)."""
        asked = sorted(set(tps))
        at = self._all(*self._list_offsets(asked, OffsetSpec.for_timestamp(millis), "read_committed", self.timeout))
        past = [tp for tp in asked if at[tp] < 0]
        return at | self._all(*self._list_offsets(past, _LATEST, "read_committed", self.timeout))

    def committed(self, group_id: str, tps: Iterable[TP]) -> dict[TP, Committed]:
        """Committed offsets of a group for these partitions; those without one are left out. Read by a consumer that does not join:
        librdkafka's admin call for it dereferences a group that an admin client does not have, and ends the process, while the coordinator
        is loading or moving (seen with 2.16.0)."""
        asked = sorted(set(tps))
        if not asked:
            return {}
        what = f"reading the committed offsets of group {group_id}"
        with self._reading:
            consumer = self._reader(group_id)

            def read() -> dict[TP, Committed]:
                answer = consumer.committed([TopicPartition(*tp) for tp in asked], timeout=self.timeout)
                for p in answer:
                    if p.error is not None:
                        raise KafkaException(p.error)
                return {
                    TP(p.topic, p.partition): Committed(
                        p.offset, p.metadata or "", -1 if p.leader_epoch is None else p.leader_epoch
                    )
                    for p in answer
                    if p.offset >= 0
                }

            return self._retried(lambda: self._call(what, read), _is_away)

    def _retried(
        self,
        call: Callable[[], T],
        transient: Callable[[Exception], bool],
        between: Callable[[], Any] = lambda: time.sleep(0.1),
    ) -> T:
        """The result of a call, repeated after transient errors until the time limit."""
        until = time.monotonic() + self.timeout
        while True:
            try:
                return call()
            except Exception as error:
                if not transient(error) or time.monotonic() >= until:
                    raise
                between()

    def _reader(self, group_id: str) -> Consumer:
        """A kept consumer: to a distant broker, its TLS connections alone can take a call's whole time limit."""
        if group_id not in self._readers:
            properties = {**self._properties, "group.id": group_id, "enable.auto.commit": "false"}
            self._readers[group_id] = clients.consumer(properties, self._on_error)
        return self._readers[group_id]

    def describe_group(self, group_id: str) -> Any:
        """librdkafka's description of a group; `KafkaException` where the broker lacks the call (SPEC U5).

        Each try has a client of its own, which ends with it. After a request timeout without a coordinator librdkafka ends the process once
        one appears (docs/clients.md C-K22): so the request has no timeout and is dropped with its client. A kept client would also stay
        with a coordinator that has moved.
        """

        def describe() -> Any:
            client = self._new_client()
            try:
                futures = client.describe_consumer_groups([group_id], request_timeout=_NEVER)
                answer = futures[group_id]
                return self._call(f"describing group {group_id}", lambda: answer.result(timeout=self.timeout), raw=True)
            finally:
                del client  # now, and not when an error's traceback, which holds this frame, is gone

        return self._retried(describe, lambda error: _code(error) in _COORDINATOR_MOVES)

    def client_ids(self, group_id: str) -> list[str]:
        """The client ids of a group's members, with line breaks escaped. A broker that lacks the call names none: a member that starts
        would wait for ever for its answer (SPEC U5)."""
        try:
            return sorted(one_line(member.client_id) for member in self.describe_group(group_id).members)
        except KafkaException as error:
            if _code(error) in _NO_SUCH_CALL:
                return []
            raise self._typed(error, f"listing the members of group {group_id}") from error

    def close(self) -> None:
        """End the clients, which can take a moment. May be called twice."""
        with self._reading:
            while self._readers:
                self._readers.popitem()[1].close()
        with contextlib.suppress(AttributeError):  # closed already
            del self._client  # librdkafka ends a client with its last reference

    @staticmethod
    def _all(answers: dict[TP, T], silent: dict[TP, CrkafkaError]) -> dict[TP, T]:
        for error in silent.values():
            raise error
        return answers

    def _list_offsets(
        self, tps: Sequence[TP], spec: OffsetSpec, isolation: Isolation, election: float
    ) -> tuple[dict[TP, int], dict[TP, CrkafkaError]]:
        """Offsets within the time limit, and errors of the other partitions. Leaders move, and a new topic has none for a moment: such
        partitions are asked again, those without a leader for `election` seconds. An admin client does not refresh leaders by itself: it
        would be refused for minutes after a broker's return."""
        began = time.monotonic()
        offsets: dict[TP, int] = {}
        errors: dict[TP, CrkafkaError] = {}
        left = list(tps)
        lacking_since: float | None = None
        if not self._leaderless.isdisjoint(left):
            self._learn_leaders()
        while left:
            if asked := [tp for tp in left if tp not in self._leaderless]:
                answers, failed = self._list_offsets_once(asked, spec, isolation)
                offsets.update(answers)
                errors = {tp: error for tp, error in errors.items() if tp not in answers} | failed
            for tp in self._leaderless.intersection(left):
                errors[tp] = KafkaUnavailable(
                    f"Kafka at {self.bootstrap}: {tp} has no leader.", hint="Is the broker that has it up?"
                )
            left = [tp for tp in left if isinstance(errors.get(tp), KafkaUnavailable | TopicGone)]
            waited = time.monotonic() - began
            led = any(tp not in self._leaderless for tp in left)
            if not left or waited >= (self.timeout if led else min(election, self.timeout)):
                break
            time.sleep(0.1)
            existing = self._learn_leaders()
            lacking = [tp for tp in left if existing is not None and tp not in existing]
            now = time.monotonic()
            lacking_since = None if not lacking else now if lacking_since is None else lacking_since
            if lacking_since is not None and now - lacking_since >= _NEW_TOPIC:
                for tp in lacking:
                    errors[tp] = TopicGone(
                        f"Kafka at {self.bootstrap} has no {tp}.",
                        hint="Was the topic deleted? See `crkafka forget TOPIC`.",
                    )
                left = [tp for tp in left if tp not in lacking]
        return offsets, errors

    def _learn_leaders(self) -> frozenset[TP] | None:
        """Refresh the leaders; all partitions of the cluster, or None if it does not answer. Partitions of a new topic, or of a broker that
        has just started, may be missing for a moment."""
        try:
            cluster: Any = self._find_controller()
        except KafkaUnavailable:
            return None
        described = {TP(name, p): at for name, topic in cluster.topics.items() for p, at in topic.partitions.items()}
        self._leaderless = frozenset(tp for tp, at in described.items() if at.leader < 0)
        return frozenset(described)

    def _list_offsets_once(
        self, tps: Sequence[TP], spec: OffsetSpec, isolation: Isolation
    ) -> tuple[dict[TP, int], dict[TP, CrkafkaError]]:
        """One request to each leader. One broker's "no such partition" is not final: `_learn_leaders` checks it."""
        what = f"asking for offsets of {plural(len(tps), 'partition')}"
        level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
        request = {TopicPartition(tp.topic, tp.partition): spec for tp in tps}
        patience = min(_ATTEMPT, self.timeout)
        futures = self._call(
            what, lambda: self._client.list_offsets(request, isolation_level=level, request_timeout=patience)
        )
        offsets: dict[TP, int] = {}
        errors: dict[TP, CrkafkaError] = {}
        for p, future in futures.items():
            tp = TP(p.topic, p.partition)
            try:
                answer = self._call(f"{what}, at {tp}", lambda f=future: f.result(timeout=patience + 1))  # type: ignore[misc]
                # If the broker goes away meanwhile, librdkafka gives neither an error nor an offset.
                if answer.offset == OFFSET_INVALID:
                    raise KafkaUnavailable(f"Kafka at {self.bootstrap} gave no answer {what}, at {tp}.")
                offsets[tp] = int(answer.offset)
                self._last_epochs[tp] = answer.leader_epoch
            except CrkafkaError as error:
                errors[tp] = error
        return offsets, errors
