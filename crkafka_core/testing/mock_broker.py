"""A broker that fails on demand: librdkafka's mock cluster in a process of its own, for tests of injected errors only.

What it lacks (docs/clients.md C-B3): describing topics, without which no member starts; describing and listing groups; admin calls that
create or delete; offsets by timestamp; filtering of aborted transactions; classic static membership. A real Kafka serves everything else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Self

from crkafka_core.dev.errors import ServiceFailed


class Api(IntEnum):
    """Kinds of Kafka requests, by their API key."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    CONSUMER_GROUP_HEARTBEAT = 68


CLIENT_SETTINGS = {"session.timeout.ms": 2000, "heartbeat.interval.ms": 100, "partition.assignment.strategy": "range"}
"""What consumers of a mock broker need to join within a second (docs/clients.md C-B4)."""


class MockBroker:
    """One to many mock brokers behind one address; a context manager. Brokers are numbered from 1.

    Errors are numbers: the codes of `confluent_kafka.KafkaError`, such as `KafkaError.ILLEGAL_GENERATION`.
    """

    def __init__(self, brokers: int = 1, *, rebalance_delay_ms: int = 0) -> None:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "crkafka_core.testing.mock_cluster_process", str(brokers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            text=True,
            start_new_session=True,
        )
        self.bootstrap: str = self._answer()["bootstrap"]
        self.do("group_initial_rebalance_delay_ms", rebalance_delay_ms)

    def create_topic(self, name: str, partitions: int = 4, *, replication: int = 1) -> str:
        self.do("topic_create", name, partitions, replication)
        return name

    def delete_topic(self, name: str) -> None:
        self.do("topic_delete", name)

    def topic_error(self, name: str, error: int) -> None:
        """Every request about this topic is answered with this error; 0 ends that."""
        self.do("topic_set_error", name, error)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self.do("partition_delete_records", topic, partition, before)

    def broker_down(self, broker: int = 1) -> None:
        """Connections are closed, and new ones refused."""
        self.do("broker_set_down", broker)

    def broker_up(self, broker: int = 1) -> None:
        self.do("broker_set_up", broker)

    def rtt(self, milliseconds: int, broker: int = -1) -> None:
        """Every answer takes this long; of all brokers with -1."""
        self.do("broker_set_rtt", broker, milliseconds)

    def coordinator(self, group: str, broker: int) -> None:
        """Move a group's coordinator."""
        self.do("coordinator_set", "group", group, broker)

    def leader(self, topic: str, partition: int, broker: int) -> None:
        """Move a partition's leader; -1: there is none."""
        self.do("partition_set_leader", topic, partition, broker)

    def push_request_errors(self, api: Api, *errors: int) -> None:
        """The next requests of this kind, at whichever broker, are answered with these errors, one each."""
        self.do("push_request_errors", int(api), list(errors))

    def push_broker_errors(self, broker: int, api: Api, errors: Sequence[tuple[int, int]]) -> None:
        """The next requests of this kind at one broker get these (error, round-trip milliseconds), one each."""
        self.do("push_broker_errors", broker, int(api), [list(pair) for pair in errors])

    def clear_request_errors(self, api: Api) -> None:
        self.do("clear_request_errors", int(api))

    def do(self, command: str, *arguments: Any) -> None:
        """Any command of `mock_cluster_process.COMMANDS`, by its name there."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([command, arguments]) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        answer = self._answer()
        if "error" in answer:
            raise ServiceFailed("mock broker", f"{command} was refused: {answer['error']}")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End the process; safe to repeat."""
        if self.alive:
            self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ended(self) -> ServiceFailed:
        return ServiceFailed("mock broker", f"its process ended with {self._process.wait()}")
