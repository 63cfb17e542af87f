"""Questions to Kafka on a real broker (SPEC G1, S1-S4, U5; docs/clients.md C-R6, C-R7, C-R9, C-R11)."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Producer

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.kafka import admin as admin_module
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.errors import KafkaUnavailable, TopicGone
from crkafka_core.kafka.group import report
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.offsets import TP
from crkafka_core.testing.generator import Generator
from crkafka_core.testing.mock_broker import MockBroker
from crkafka_core.testing.pytest_services import unique
from tests.kafka.conftest import MakeProbe
from tests.rigs.proxy import kafka_behind_proxy

pytestmark = pytest.mark.kafka
NewTopic = Callable[..., str]


@pytest.fixture
def admin(kafka: KafkaCluster) -> KafkaAdmin:
    return KafkaAdmin({"bootstrap.servers": kafka.bootstrap})


def test_the_cluster_has_an_id(kafka: KafkaCluster, admin: KafkaAdmin) -> None:
    assert admin.cluster_id() == kafka.cluster_id


def test_topics_come_with_ids_and_partitions_and_missing_ones_are_left_out(
    kafka: KafkaCluster, admin: KafkaAdmin, new_topic: NewTopic
) -> None:
    topic = new_topic(3)
    found = admin.topics([topic, "no-such-topic"])
    assert set(found) == {topic}
    assert found[topic].partitions == (0, 1, 2)
    assert found[topic].id == kafka.topics.id(topic) != ""
    kafka.topics.delete(topic)
    assert admin.topics([topic]) == {}
    kafka.topics.create(topic, 1)
    assert admin.topics([topic])[topic].id != found[topic].id, "docs/clients.md C-R9"


def test_a_pattern_finds_topics_and_no_internal_ones(admin: KafkaAdmin, new_topic: NewTopic) -> None:
    topic = new_topic(1, name="shop.orders")
    stem = topic.rsplit("-", 1)[1]
    new_topic(1, name="warehouse")
    assert set(admin.topics(pattern=rf"^shop\..*{stem}")) == {topic}
    assert set(admin.topics(pattern=rf"orders-{stem}")) == {topic}
    assert not any(name.startswith("__") for name in admin.topics(pattern=".*"))


def test_ends_are_the_last_stable_offset_or_the_high_watermark(
    kafka: KafkaCluster, admin: KafkaAdmin, new_topic: NewTopic, generator: Generator
) -> None:
    """docs/clients.md C-R6."""
    topic = new_topic(2)
    zero, one = TP(topic, 0), TP(topic, 1)
    generator.send(topic, 20, partitions=2)
    generator.unfinished(topic, 4, partitions=2)
    generator.send(topic, 6, partitions=2)
    kafka.topics.delete_records({(topic, 0): 3})
    assert admin.watermarks([zero, one]) == {zero: (3, 10), one: (0, 10)}
    assert admin.watermarks([zero, one], "read_uncommitted") == {zero: (3, 15), one: (0, 15)}
    generator.abort()
    until = time.monotonic() + 5
    while admin.watermarks([zero])[zero] != (3, 16):
        assert time.monotonic() < until
    assert admin.watermarks([]) == {}


def test_a_time_past_the_end_means_the_end(admin: KafkaAdmin, new_topic: NewTopic, kafka: KafkaCluster) -> None:
    """SPEC S2, docs/clients.md C-R7."""
    topic = new_topic(2, config={"retention.ms": "-1"})  # the timestamps are years old
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for i in range(10):
        producer.produce(topic, b"x", partition=0, timestamp=1_000_000 + i * 1_000)
    assert producer.flush(20) == 0
    full, empty = TP(topic, 0), TP(topic, 1)
    assert admin.offsets_for_time([full, empty], 1_004_500) == {full: 5, empty: 0}
    assert admin.offsets_for_time([full], 0) == {full: 0}
    assert admin.offsets_for_time([full], 2_000_000) == {full: 10}


def test_a_partition_that_is_not_there_is_named(admin: KafkaAdmin) -> None:
    with pytest.raises(TopicGone, match=r"no-such-topic\[0\]"):
        admin.watermarks([TP("no-such-topic", 0)])


def test_commits_of_an_unknown_group_are_none(admin: KafkaAdmin, new_topic: NewTopic) -> None:
    assert admin.committed(unique("nobody"), [TP(new_topic(1), 0)]) == {}
    assert admin.committed(unique("nobody"), []) == {}


def test_a_group_is_shown_through_its_life(
    admin: KafkaAdmin, probe: MakeProbe, new_topic: NewTopic, generator: Generator, group_id: str
) -> None:
    topic = new_topic(4)
    generator.send(topic, 100, partitions=4)
    tps = {TP(topic, p) for p in range(4)}
    before = report(admin, group_id, tps)
    assert (before.state, before.members, before.lag) == ("Dead", (), 100)
    a, b = probe([topic]), probe([topic])
    a.poll_until(lambda: len(a.consumer.held) == len(b.consumer.held) == 2, others=[b])
    a.consumer.commit(dict.fromkeys(a.consumer.held, 10), dict.fromkeys(a.consumer.held, "seven"))
    seen = report(admin, group_id, tps)
    assert (seen.state, seen.assignor, seen.gaps) == ("Stable", "range", ())
    assert seen.coordinator == admin.bootstrap
    assert {m.partitions for m in seen.members} == {a.consumer.held, b.consumer.held}
    assert all(m.host and m.member_id and m.client_id for m in seen.members)
    assert seen.lag == 80
    by_tp = {p.tp: p for p in seen.partitions}
    for tp in tps:
        mine = tp in a.consumer.held
        assert (by_tp[tp].committed, by_tp[tp].metadata) == ((10, "seven") if mine else (None, ""))
        assert by_tp[tp].lag == (15 if mine else 25)
    a.consumer.close()
    b.consumer.close()
    after = report(admin, group_id, tps)
    assert (after.state, after.members, after.lag) == ("Empty", (), 80)


def test_an_absent_broker_is_said_in_time() -> None:
    away = KafkaAdmin({"bootstrap.servers": "127.0.0.1:9"}, timeout=1.0)
    for call in (
        away.cluster_id,
        lambda: away.topics(["a"]),
        lambda: away.topics(pattern="a"),
        lambda: away.watermarks([TP("a", 0)]),
        lambda: away.committed("g", [TP("a", 0)]),
    ):
        began = time.monotonic()
        with pytest.raises(KafkaUnavailable, match=r"127\.0\.0\.1:9"):
            call()
        assert time.monotonic() - began < 4
    assert len(report(away, "g", [TP("a", 0)]).gaps) == 3


def test_bad_properties_are_refused_without_secrets(kafka: KafkaCluster) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.nonsense") as caught:
        KafkaAdmin({"bootstrap.servers": kafka.bootstrap, "ssl.nonsense": "1", "sasl.password": "geheim"})
    assert "geheim" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        KafkaAdmin({})


def test_ends_are_told_while_a_broker_is_away_as_a_service_that_is_away_and_at_once_after_it_is_back(
    kafka: KafkaCluster, new_topic: NewTopic
) -> None:
    """The same client, which knows the leader's old epoch: it was refused for minutes, and before that the topic was "deleted"."""
    topic = new_topic(2)
    tps = [TP(topic, 0), TP(topic, 1)]
    admin = KafkaAdmin({"bootstrap.servers": kafka.bootstrap})
    assert set(admin.watermarks(tps)) == set(tps)
    admin.timeout = 2.0
    kafka.kill()
    with pytest.raises(KafkaUnavailable):
        admin.watermarks(tps)
    kafka.start_node()
    patient = time.monotonic() + 15
    while True:
        try:
            found = admin.watermarks(tps)
            break
        except KafkaUnavailable:
            assert time.monotonic() < patient
    assert found == dict.fromkeys(tps, (0, 0))


class JustStarted:
    """Answers as a broker does that is asked before it has heard of all topics: nobody else is there to ask."""

    def __init__(self, topic: str, *, away: float, ignorant: float, code: int | None = 0) -> None:
        """`code` None: no error, and no offset, as of a broker that goes away after the request was sent."""
        self.topic, self.began, self.away, self.ignorant, self.code = topic, time.monotonic(), away, ignorant, code

    def _since(self) -> float:
        return time.monotonic() - self.began

    def list_offsets(self, request: dict[Any, Any], **_: object) -> dict[Any, Future[Any]]:
        answers: dict[Any, Future[Any]] = {p: Future() for p in request}
        for future in answers.values():
            if self._since() < self.ignorant and self.code is None:
                future.set_result(SimpleNamespace(offset=OFFSET_INVALID, leader_epoch=-1))
            elif self._since() < self.ignorant:
                usual = KafkaError._TIMED_OUT if self._since() < self.away else KafkaError.UNKNOWN_TOPIC_OR_PART
                future.set_exception(KafkaException(KafkaError(self.code or usual)))
            else:
                future.set_result(SimpleNamespace(offset=7, leader_epoch=0))
        return answers

    def list_topics(self, timeout: float) -> Any:
        if self._since() < self.away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        partitions = {} if self._since() < self.ignorant else {0: SimpleNamespace(leader=1)}
        return SimpleNamespace(topics={self.topic: SimpleNamespace(partitions=partitions)})

    def poll(self, _: float) -> int:
        return 0


@pytest.mark.parametrize(("away", "answered"), [(0.5, True), (60.0, False)])
def test_no_answer_without_an_error_is_no_end_of_a_log(admin: KafkaAdmin, away: float, answered: bool) -> None:
    """It stopped a region for a data loss that was none."""
    admin.timeout = 2.0
    admin._client = cast(Any, JustStarted("t", away=away, ignorant=away, code=None))
    tps = [TP("t", 0)]
    if answered:
        assert admin.watermarks(tps) == {TP("t", 0): (7, 7)}
    else:
        with pytest.raises(KafkaUnavailable, match=r"gave no answer .* t\[0\]"):
            admin.watermarks(tps)


def test_a_leader_that_was_elected_a_moment_ago_is_asked_again(admin: KafkaAdmin) -> None:
    """A rewind that a person asked for just then was refused."""
    admin._client = cast(Any, JustStarted("t", away=0.5, ignorant=0.5, code=KafkaError.OFFSET_NOT_AVAILABLE))
    assert admin.watermarks([TP("t", 0)]) == {TP("t", 0): (7, 7)}


@pytest.mark.parametrize(("ignorant", "gone"), [(1.9, False), (60.0, True)])
def test_a_broker_that_has_just_started_and_knows_no_topics_yet_is_not_believed_at_once(
    ignorant: float, gone: bool
) -> None:
    """It was, if the question had begun while the broker was away: a topic that was there was "deleted"."""
    admin = KafkaAdmin({"bootstrap.servers": "127.0.0.1:9"}, timeout=5.0)
    admin._client = cast(Any, JustStarted("t", away=1.2, ignorant=ignorant))
    if gone:
        with pytest.raises(TopicGone, match=r"has no t\[0\]"):
            admin.watermarks([TP("t", 0)])
    else:
        assert admin.watermarks([TP("t", 0)]) == {TP("t", 0): (7, 7)}


ASKS_ABOUT_A_GROUP = """
import sys, time
from crkafka_core.kafka import admin as admin_module
from crkafka_core.kafka.admin import KafkaAdmin
admin = KafkaAdmin({"bootstrap.servers": sys.argv[1]}, timeout=1.0)
try:
    admin.describe_group("g")
except Exception as error:
    print(f"{type(error).__name__}: {error}", flush=True)
sys.stdin.readline()  # the coordinator is back
for _ in range(20):
    try:
        admin.cluster_id()
        admin.describe_group("g")
    except Exception as error:
        time.sleep(0.1)
print("lives", flush=True)
"""


def test_24_a_coordinator_that_comes_back_after_it_was_asked_for_in_vain_ends_no_process(
    mock_broker: MockBroker,
) -> None:
    """librdkafka answers a request that timed out, and then asserts that it still holds it (docs/clients.md C-K22)."""
    mock_broker.coordinator("g", 2)
    mock_broker.broker_down(2)
    command = [sys.executable, "-c", ASKS_ABOUT_A_GROUP, mock_broker.bootstrap]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as asking:
        assert asking.stdout is not None
        said = asking.stdout.readline()
        mock_broker.broker_up(2)
        rest, trouble = asking.communicate("\n", timeout=90)
    assert (asking.returncode, rest) == (0, "lives\n"), trouble
    assert said.startswith("KafkaUnavailable"), said


def test_94_a_partition_without_a_leader_keeps_no_end_of_another_from_being_told(mock_broker: MockBroker) -> None:
    """A question that names it gets no answer for any (docs/clients.md C-K34)."""
    topic = mock_broker.create_topic("t", 3, replication=3)
    led, leaderless = [TP(topic, 0), TP(topic, 2)], TP(topic, 1)
    mock_broker.leader(topic, 1, -1)
    admin = KafkaAdmin({"bootstrap.servers": mock_broker.bootstrap}, timeout=6.0)
    for longest in (12.0, 6.0):  # once it is known, it is not asked for
        began = time.monotonic()
        known, silent = admin.known_watermarks([*led, leaderless])
        assert known == dict.fromkeys(led, (0, 0))
        assert set(silent) == {leaderless} and "t[1] has no leader" in str(silent[leaderless])
        assert time.monotonic() - began < longest
    with pytest.raises(KafkaUnavailable, match=r"t\[1\] has no leader"):
        admin.watermarks([*led, leaderless])
    assert "t[1] has no leader" in report(admin, "g", [*led, leaderless]).gaps[-1]
    mock_broker.leader(topic, 1, 2)
    assert admin.watermarks([*led, leaderless]) == dict.fromkeys([*led, leaderless], (0, 0))
    admin.close()


def test_members_are_listed_by_what_they_call_themselves(
    admin: KafkaAdmin, probe: MakeProbe, new_topic: NewTopic, group_id: str
) -> None:
    """What a member asks of its own group, to name strangers in it (SPEC G8)."""
    assert admin.client_ids(group_id) == []
    probe([new_topic(1)]).settle()
    (name,) = admin.client_ids(group_id)
    assert name.startswith("m-")


def test_committed_offsets_come_also_from_a_far_broker(services_folder: Path) -> None:
    """The connections alone take longer than one question may: they are kept, so that the next one is answered."""
    with kafka_behind_proxy(services_folder / "far", delay=0.3) as (_, _, address):
        admin = KafkaAdmin({"bootstrap.servers": address}, timeout=1.5)
        with pytest.raises(KafkaUnavailable):
            admin.committed("far", [TP("t", 0)])
        for _ in range(4):
            with contextlib.suppress(KafkaUnavailable):
                assert admin.committed("far", [TP("t", 0)]) == {}
                break
        else:
            raise AssertionError("never answered")
        admin.close()


def test_71_a_partition_that_says_late_whether_it_was_cut_is_asked_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many, on a busy cluster, always some others were late: no start was ever resolved."""
    away, a, b = KafkaAdmin({"bootstrap.servers": "127.0.0.1:9"}, timeout=1.0), TP("t", 0), TP("t", 1)
    ends, asked = {a: 3, b: 3}, list[set[TP]]()
    answers: list[dict[TP, int | None]] = [{a: 100}, {b: None}, {a: None}]

    def compare(properties: Any, offsets: Mapping[TP, tuple[int, int]], **_: Any) -> dict[TP, int | None]:
        asked.append(set(offsets))
        return answers.pop(0)

    monkeypatch.setattr(admin_module, "compare", compare)
    monkeypatch.setattr(away, "_list_offsets", lambda *_: (away._last_epochs.update(ends), {}))
    where = {a: (160, 2), b: (170, 2)}
    with pytest.raises(KafkaUnavailable, match=r"the log of t\[1\] was cut"):
        away.cut_below(where)
    assert away.cut_below(where) == {a: 100} == away.cut_below(where)
    assert asked == [{a, b}, {b}]
    ends[a] = 4  # another leader: what was said of the log counts no more
    assert away.cut_below(where) == {}
    assert asked[2:] == [{a}]
