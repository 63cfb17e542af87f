"""Creates, changes, empties and describes topics of a cluster; each call returns once the brokers agree."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import PartitionMetadata
from confluent_kafka.cimpl import NewPartitions, NewTopic

from crkafka_core.dev.errors import ServiceFailed
from crkafka_core.model.plural import plural

_T = TypeVar("_T")


class KafkaTopics:
    """Operations on topics for tests and demos."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    def create(
        self,
        name: str,
        partitions: int = 4,
        *,
        replication: int = 1,
        replicas: list[list[int]] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic, wait until all its partitions have leaders, and return its name.

        With `replicas` partition i is on the nodes `replicas[i]`, of which the first is the leader.
        """
        placed: Any = {"replication_factor": replication} if replicas is None else {"replica_assignment": replicas}
        count = partitions if replicas is None else len(replicas)
        new = NewTopic(name, num_partitions=count, config=dict(config or {}), **placed)
        try:
            _result_of(self._admin.create_topics([new], operation_timeout=30), name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._DESTROY_BROKER:
                raise
            # The client replaced the connection while it waited, as beside a cluster that has just started. The topic may be there.
            with suppress(KafkaException):
                _result_of(self._admin.create_topics([new], operation_timeout=30), name)
        self._until(lambda: len(self.leaders(name)) == count, f"topic {name} has leaders")
        return name

    def delete(self, name: str) -> None:
        """Delete a topic and wait until it is no longer listed."""
        _result_of(self._admin.delete_topics([name], operation_timeout=30), name)
        self._until(lambda: name not in self.names(), f"topic {name} is gone")

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to `total` partitions."""
        _result_of(self._admin.create_partitions([NewPartitions(name, total)], operation_timeout=30), name)
        self._until(lambda: len(self.leaders(name)) == total, f"topic {name} has {plural(total, 'partition')}")

    def delete_records(self, before: Mapping[tuple[str, int], int]) -> None:
        """Delete the records below an offset, per (topic, partition), as retention would."""
        wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in before.items()]
        for future in self._admin.delete_records(wanted).values():
            future.result(timeout=30)

    def names(self, *, within: float = 10) -> set[str]:
        return set(self._admin.list_topics(timeout=within).topics)

    def id(self, name: str) -> str:
        """The topic's id; a recreated topic has another one (docs/clients.md C-R9)."""
        described = self._admin.describe_topics(TopicCollection([name]))
        return str(described[name].result(timeout=30).topic_id)

    def state(self) -> str:
        """The serving brokers, and the partitions without a leader, as text."""
        seen = self._admin.list_topics(timeout=30)
        headless = [f"{t.topic}[{p.id}]" for t in seen.topics.values() for p in t.partitions.values() if p.leader < 0]
        return f"brokers {sorted(seen.brokers)}; without a leader: {', '.join(sorted(headless)) or 'none'}"

    def leaders(self, name: str) -> dict[int, int]:
        """Partition → its leader's node, for partitions with a leader."""
        return {p.id: p.leader for p in self._partitions(name) if p.leader >= 0}

    def in_sync(self, name: str) -> dict[int, set[int]]:
        """Partition → nodes of its in-sync replicas."""
        return {p.id: set(p.isrs) for p in self._partitions(name)}

    def _partitions(self, name: str) -> list[PartitionMetadata]:
        topic = self._admin.list_topics(name, timeout=10).topics.get(name)
        return [] if topic is None or topic.error is not None else list(topic.partitions.values())

    def elect_preferred_leader(self, name: str, partition: int) -> None:
        """Make the first replica the leader again, as after the return of a killed node."""
        wanted = TopicPartition(name, partition)
        self._until(lambda: self._elected(wanted), f"{name}/{partition} is led by its preferred replica")

    def _elected(self, wanted: TopicPartition) -> bool:
        result = self._admin.elect_leaders(ElectionType.PREFERRED, [wanted]).result(timeout=30)
        error = result[wanted]
        if error is not None and error.code() != KafkaError.ELECTION_NOT_NEEDED:
            return False
        # A node that has just returned may still answer from old metadata.
        seen = [p for p in self._partitions(wanted.topic) if p.id == wanted.partition]
        return bool(seen) and bool(seen[0].leader == seen[0].replicas[0])

    def _until(self, condition: Callable[[], bool], what: str, *, within: float = 30.0) -> None:
        deadline = time.monotonic() + within
        while not condition():
            if time.monotonic() > deadline:
                raise ServiceFailed("kafka", f"not seen within {within:.0f} s: {what}")
            time.sleep(0.02)


def _result_of(futures: dict[Any, Future[_T]], key: str) -> _T:
    return futures[key].result(timeout=60)
