"""Brokers that are down, frozen or moved (faults 23 to 26, 57)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from crkafka_core.control import Reader
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Region
from crkafka_core.plane import checkpoints
from crkafka_core.region.waiting import CutAborted
from crkafka_core.testing.pytest_services import unique
from tests.rigs.pytest_scenarios import Lasting
from tests.rigs.scenario import Scenario

Make = Callable[..., Scenario]


def test_25_broker_frozen_during_a_drain_aborts_the_cut_uncounted(scenario: Make) -> None:
    s = scenario(drain="stop", session=5.0, producer_timeout=120.0, drain_timeout=20)
    s.cut()
    mark = s.mark()
    s.kafka.pause()
    try:
        with pytest.raises(CutAborted):
            s.cut()
    finally:
        s.kafka.resume()
    s.settle()
    assert s.region.status().region.consecutive == 0
    assert s.events("abort", since=mark)
    s.finish_and_verify()


@pytest.mark.soak
@pytest.mark.parametrize("keys", [{"commit": "drain"}, {"commit": "consistent", "drain": "stop"}], ids=str)
def test_25_broker_frozen_during_a_cut_is_no_obstacle_to_its_merge(scenario: Make, keys: dict[str, str]) -> None:
    s = scenario(**keys, session=15.0, producer_timeout=120.0, drain_timeout=40)
    s.cut()
    time.sleep(1.0)  # its commit comes after the merge
    s.kafka.pause()
    try:
        cut = s.cut()
    finally:
        s.kafka.resume()
    assert cut.merged_at
    s.settle()
    assert s.cut_soon().id > cut.id
    s.finish_and_verify()


@pytest.mark.parametrize("seconds", [8, pytest.param(60, marks=pytest.mark.soak)])
def test_26_whole_cluster_down_for_a_while_is_waited_for(scenario: Make, seconds: int) -> None:
    s = scenario(session=4.0, producer_timeout=180.0)
    s.cut()
    time.sleep(1.0)  # its commit comes after the merge
    mark = s.mark()
    s.kafka.kill()
    time.sleep(seconds)
    assert s.phase is not Phase.STOPPED
    s.until(
        lambda: "does not answer" in s.region.status().kafka_away,
        "the region's status says that Kafka is away",
        timeout=30,
    )
    s.kafka.start_node()
    s.settle(timeout=60)
    s.until(lambda: not s.region.status().kafka_away, "nothing is said of Kafka any more")
    assert not s.events("lost", since=mark)
    s.cut_soon()
    s.finish_and_verify()


@pytest.fixture
def region3(kafka3: KafkaCluster, tmp_path: Path, lasting: Lasting) -> Scenario:
    """A region on three brokers, every partition on all of them."""
    lasting.drop()
    return Scenario(kafka3, tmp_path, partitions=3, replication=3, session=8.0, producer_timeout=120.0)


def test_23_partition_leader_killed_and_moved_causes_no_reset(region3: Scenario) -> None:
    """Fault 23: stall, resume, no reset. And fault 24: the coordinator moves, the next commit works."""
    with region3 as s, _asking(s) as coordinator_now:
        s.cut()
        coordinator = coordinator_now()
        leaders = s.kafka.topics.leaders(s.topics[0])
        victim = next((node for node in leaders.values() if node != coordinator), None)
        assert victim is not None
        mark = s.mark()
        s.kafka.kill(victim)

        def moved() -> bool:
            time.sleep(0.3)  # each question is work for three nodes
            now = s.kafka.topics.leaders(s.topics[0])
            return len(now) == 3 and victim not in now.values()

        s.until(moved, "leaders moved")
        assert s.cut_soon().rows >= 0
        assert s.resets(mark) == []
        s.kafka.start_node(victim)
        s.cut_soon()
        s.verify(quiet=True)

        coordinator = coordinator_now()
        assert coordinator is not None
        mark = s.mark()
        s.kafka.kill(coordinator)
        s.until(lambda: coordinator_now() not in (None, coordinator), "the coordinator moved")
        time.sleep(1.0)
        s.cut_soon()
        assert s.resets(mark) == [], [e.text for e in s.resets(mark)]
        s.kafka.start_node(coordinator)
        s.finish_and_verify()


@pytest.mark.soak
def test_94_while_one_partition_has_no_leader_the_region_resets_cuts_and_reads_the_others(
    kafka3: KafkaCluster, tmp_path: Path, lasting: Lasting
) -> None:
    """Fault 94: the region is born without it; once known, it starts where the head says, unseen. It goes on when its broker is back."""
    lasting.drop()
    topic = kafka3.topics.create(unique("t"), replicas=[[1], [2]])
    names = [topic]
    kafka3.kill(2)
    with (
        Scenario(kafka3, tmp_path, names=names, partitions=2, rate=0, session=8.0, producer_timeout=120.0) as s,
        _asking(s) as coordinator_now,
    ):
        s.generator.send(topic, 50, partitions=1)
        _take(s, 50)
        s.kafka.start_node(2)
        s.generator.send(topic, 150, partitions=2)
        _take(s, 200)
        coordinator = coordinator_now()
        s.kafka.kill(2)
        s.until(lambda: coordinator != 2 or coordinator_now() not in (None, 2), "there is a coordinator")
        s.region.reset()
        s.settle(timeout=90)
        s.generator.send(topic, 50, partitions=1)
        _take(s, 250)
        s.kafka.start_node(2)
        s.generator.send(topic, 100, partitions=2)
        s.finish_and_verify(rows=350)


def test_23_questions_find_the_controller_that_took_over(kafka3: KafkaCluster) -> None:
    """librdkafka's admin client stays with the dead one for ever, and no start would be resolved any more (SPEC S1)."""
    topic = kafka3.topics.create(unique("asked"), partitions=2, replication=3)
    for broker in kafka3.bootstrap.split(","):  # each learns of a topic by itself, a moment later on a busy machine
        client = AdminClient({"bootstrap.servers": broker})
        while topic not in client.list_topics(timeout=10).topics:
            time.sleep(0.1)
    admin = KafkaAdmin({"bootstrap.servers": kafka3.bootstrap})
    known = admin._client.list_topics(timeout=10).controller_id
    assert admin.topics([topic])[topic].partitions == (0, 1)
    kafka3.kill(known)
    try:
        for _ in range(3):
            assert admin.topics([topic])[topic].partitions == (0, 1)
            time.sleep(0.5)
    finally:
        kafka3.start_node(known)


def _take(s: Scenario, rows: int) -> None:
    """Cut until so many rows in all are merged, by cuts and handovers."""

    def merged(reader: Reader, region: Region) -> int:
        return sum(c.rows for c in checkpoints.within(reader, reader.line(region.head)))

    while s.region.plane.read(merged) < rows:
        s.cut_soon()


@contextlib.contextmanager
def _asking(s: Scenario) -> Iterator[Callable[[], int | None]]:
    """The group's coordinator; None while Kafka does not tell."""
    admin = s.region.admin()

    def coordinator() -> int | None:
        time.sleep(0.3)  # each question is work for three nodes
        with contextlib.suppress(Exception):
            return int(admin.describe_group(s.config.group_id).coordinator.id)
        return None

    try:
        yield coordinator
    finally:
        admin.close()
