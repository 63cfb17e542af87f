"""Consumers of a real group, ended after each test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import pytest

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.kafka.consumer import GroupConsumer
from crkafka_core.kafka.edge import Polled
from crkafka_core.kafka.native.library import SWITCH, load
from crkafka_core.kafka.properties import client_properties
from crkafka_core.model.limits import Limits
from crkafka_core.model.offsets import TP
from crkafka_core.testing.generator import Generator
from crkafka_core.testing.pytest_services import unique

SHORT = Limits(session_timeout=6.0, drain_timeout=10, reset_timeout=10)


class Probe:
    """A group's consumer, and everything its polls gave."""

    def __init__(self, consumer: GroupConsumer) -> None:
        self.consumer = consumer
        self.polled: list[Polled] = []

    def poll(self, max_records: int = 1_000, timeout: float = 0.02) -> Polled:
        polled = self.consumer.poll(max_records, timeout)
        self.polled.append(polled)
        return polled

    def poll_until(self, condition: Callable[[], bool], *, within: float = 20.0, others: Iterable[Probe] = ()) -> None:
        """Poll, the others too, until the condition holds."""
        until = time.monotonic() + within
        while not condition():
            assert time.monotonic() < until, f"not within {within} s; last events: {self.rebalances} {self.errors}"
            self.poll()
            for other in others:
                other.poll()

    @property
    def rebalances(self) -> list[tuple[str, frozenset[TP]]]:
        return [(str(r.kind), r.partitions) for polled in self.polled for r in polled.rebalances]

    @property
    def errors(self) -> list[Exception]:
        return [error for polled in self.polled for error in polled.errors]

    @property
    def troubles(self) -> dict[TP, Exception]:
        """Why partitions gave nothing, as told last."""
        return {tp: error for polled in self.polled for tp, error in polled.troubles.items()}

    @property
    def ends(self) -> dict[TP, int]:
        return {tp: end for polled in self.polled for tp, end in polled.ends.items()}

    @property
    def dropped(self) -> int:
        return sum(polled.dropped for polled in self.polled)

    def offsets(self) -> dict[TP, list[int]]:
        """Offsets of all records that came, per partition, in order."""
        found: dict[TP, list[int]] = {}
        for polled in self.polled:
            if polled.batch is not None:
                column = polled.batch.records.column("offset")
                for run in polled.batch.runs:
                    part = column.slice(run.start, run.rows).to_pylist()
                    assert (part[0], part[-1] + 1) == (run.first, run.next)
                    found.setdefault(run.tp, []).extend(part)
        return found

    def settle(self, *, within: float = 20.0) -> frozenset[TP]:
        self.poll_until(lambda: bool(self.consumer.held), within=within)
        return self.consumer.held

    def start_at(self, offset: int = 0) -> None:
        """Settle, seek everything to an offset, and let it flow."""
        held = self.settle()
        self.consumer.seek(dict.fromkeys(held, offset))
        self.consumer.flow(held)

    def rows(self) -> int:
        return sum(polled.batch.rows for polled in self.polled if polled.batch is not None)


KIP_848 = {"group.protocol": "consumer"}
COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}
MakeProbe = Callable[..., Probe]
BOTH_WAYS = pytest.mark.parametrize("way", ["native", "objects"], indirect=True)
"""For what differs between them most: how records are read, and what a rebalance leaves of them."""


@pytest.fixture(params=["native", pytest.param("objects", marks=pytest.mark.soak)])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """By which records come: natively, and in the soak also as Python objects; in `make test` too where a test says `@BOTH_WAYS`."""
    monkeypatch.setenv(SWITCH, "1" if request.param == "native" else "0")
    load.cache_clear()
    assert (load() is not None) == (request.param == "native"), "`make env` builds the native edge, with a C compiler"
    yield str(request.param)
    load.cache_clear()


@pytest.fixture
def probe(kafka: KafkaCluster, group_id: str, way: str) -> Iterator[MakeProbe]:
    """`probe(topics, pattern=…, limits=…, instance_id=…, group=…, **properties)`: a subscribed consumer."""
    made: list[GroupConsumer] = []

    def make(
        topics: list[str] | None = None,
        *,
        pattern: str | None = None,
        limits: Limits = SHORT,
        instance_id: str | None = None,
        bootstrap: str | None = None,
        properties: dict[str, str] | None = None,
    ) -> Probe:
        given = {"bootstrap.servers": bootstrap or kafka.bootstrap, "group.id": group_id, **(properties or {})}
        given["heartbeat.interval.ms"] = "300"
        settings = client_properties(
            given,
            limits,
            client_id=unique("m"),
            instance_id=instance_id,
            single_topic=len(topics or ()) == 1,
            pattern=pattern is not None,
        )
        consumer = GroupConsumer(settings)
        made.append(consumer)
        consumer.subscribe(topics or (), pattern=pattern)
        return Probe(consumer)

    yield make
    for consumer in made:
        consumer.close()


@pytest.fixture
def generator(kafka: KafkaCluster) -> Generator:
    return Generator(kafka.bootstrap, value_bytes=60)
