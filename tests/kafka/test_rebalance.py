"""Rebalances as a member's consumer reports them on a real Kafka (SPEC R1–R7, M5, D2; docs/clients.md C-K6, C-R2–C-R5)."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.kafka import membership
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.commits import Commits
from crkafka_core.kafka.consumer import GroupConsumer, nudge
from crkafka_core.kafka.edge import Committed, Kind, Polled
from crkafka_core.kafka.errors import Fenced, GroupRebalanced, KafkaUnavailable, NotAllowed, PolledTooLate
from crkafka_core.kafka.group import report
from crkafka_core.kafka.membership import generation_of
from crkafka_core.kafka.native.library import handle, librdkafka
from crkafka_core.kafka.properties import client_properties
from crkafka_core.model.offsets import TP
from crkafka_core.testing.generator import Generator
from crkafka_core.testing.mock_broker import CLIENT_SETTINGS, Api, MockBroker
from crkafka_core.testing.pytest_services import unique
from tests.kafka.conftest import BOTH_WAYS, COOPERATIVE, KIP_848, SHORT, MakeProbe

pytestmark = pytest.mark.kafka
NewTopic = Callable[..., str]


def parts(topic: str, count: int) -> frozenset[TP]:
    return frozenset(TP(topic, p) for p in range(count))


@BOTH_WAYS
def test_a_second_member_takes_its_share_and_gives_it_back(
    probe: MakeProbe, new_topic: NewTopic, generator: Generator
) -> None:
    """What is revoked and what is assigned are told, with a rising generation; nothing flows until it is sought."""
    topic = new_topic(4)
    generator.send(topic, 2_000, partitions=4)
    a = probe([topic])
    a.start_at(0)
    a.poll_until(lambda: a.rows() == 2_000)
    b = probe([topic])
    a.poll_until(lambda: len(a.consumer.held) == 2 and len(b.consumer.held) == 2, others=[b])
    assert a.consumer.held | b.consumer.held == parts(topic, 4)
    assert a.rebalances[1:] == [("revoked", parts(topic, 4)), ("assigned", a.consumer.held)]
    assert a.consumer.generation() == b.consumer.generation() == 2
    generations = [r.generation for polled in a.polled for r in polled.rebalances]
    assert generations == [1, 1, 2], "a revocation shows the old generation (docs/clients.md C-R3)"
    assert a.consumer._flowing == set()
    generator.send(topic, 400, partitions=4)
    for _ in range(20):
        a.poll()
        b.poll()
    assert (a.rows(), b.rows()) == (2_000, 0)
    b.consumer.close()
    a.poll_until(lambda: a.consumer.held == parts(topic, 4))
    assert b.rebalances[-1][0] == "assigned", "a member's own close is no revocation (SPEC R5)"


@pytest.mark.parametrize("protocol", [KIP_848, COOPERATIVE], ids=["kip848", "cooperative"])
def test_R1_an_incremental_protocol_tells_all_that_is_held_and_keeps_nothing_flowing(
    probe: MakeProbe, new_topic: NewTopic, generator: Generator, protocol: dict[str, str]
) -> None:
    topic = new_topic(4)
    generator.send(topic, 400, partitions=4)
    a = probe([topic], properties=protocol)
    a.poll_until(lambda: a.consumer.held == parts(topic, 4))
    a.start_at(0)
    a.poll_until(lambda: a.rows() == 400)
    b = probe([topic], properties=protocol)
    a.poll_until(lambda: len(a.consumer.held) == len(b.consumer.held) == 2, others=[b])
    moved = parts(topic, 4) - a.consumer.held
    assert ("revoked", moved) in a.rebalances
    assert a.rebalances[-1] == ("assigned", a.consumer.held) and b.rebalances[-1] == ("assigned", moved)
    assert b.rebalances[0] == ("assigned", frozenset()), "it has joined, and was given nothing yet"
    assert b.consumer.generation() > 1
    assert a.consumer._flowing == set(), "what is kept stands still until it is sought, as after any rebalance"
    generator.send(topic, 400, partitions=4)
    for _ in range(20):
        a.poll()
        b.poll()
    assert (a.rows(), b.rows()) == (400, 0)
    for member in (a, b):
        member.start_at(100)
    a.poll_until(lambda: (a.rows(), b.rows()) == (600, 200), others=[b])
    b.consumer.close()
    a.poll_until(lambda: a.consumer.held == parts(topic, 4))
    assert a.rebalances[-1] == ("assigned", parts(topic, 4))


class _RefusingClient:
    """A consumer that refuses the next assignment of partitions."""

    def __init__(self, client: Any) -> None:
        self._client, self._refuses = client, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        if self._refuses and partitions:
            self._refuses = False
            self._client.incremental_assign(
                []
            )  # an assignment was called for, so that the binding makes none by itself
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self._client.incremental_assign(partitions)


@pytest.mark.parametrize(
    "protocol", [pytest.param(KIP_848, marks=pytest.mark.soak), COOPERATIVE], ids=["kip848", "cooperative"]
)
def test_an_incremental_assignment_that_failed_can_be_revoked_and_is_made_by_a_later_seek(
    probe: MakeProbe,
    new_topic: NewTopic,
    generator: Generator,
    protocol: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client refuses to unassign what it does not have: each later try failed with it."""
    topic = new_topic(2)
    generator.send(topic, 200, partitions=2)
    on_assign, clients = GroupConsumer._on_assign, []

    def refused(self: GroupConsumer, client: Any, partitions: list[TopicPartition]) -> None:
        if partitions and not clients:
            client = _RefusingClient(client)
            clients.append(client)
        on_assign(self, client, partitions)

    monkeypatch.setattr(GroupConsumer, "_on_assign", refused)
    a = probe([topic], properties=protocol)
    a.poll_until(lambda: a.consumer.held == parts(topic, 2))
    b = probe([topic], properties=protocol)
    a.poll_until(lambda: len(a.consumer.held) == len(b.consumer.held) == 1, others=[b])
    assert len(a.errors) == 1, a.errors
    (kept,) = a.consumer.held

    def read_from(offset: int) -> bool:
        if not a.consumer._flowing:  # or a last rebalance stopped it
            a.start_at(offset)
        return {offset, 99} <= set(a.offsets().get(kept, []))

    for again, offset in (a.consumer.seek, 40), (a.consumer._assign_again, 70):
        monkeypatch.setattr(a.consumer, "_consumer", _RefusingClient(a.consumer._consumer))
        with pytest.raises(KafkaUnavailable):
            again({kept: offset})
        a.consumer.flow([])
        a.polled.clear()
        a.poll_until(partial(read_from, offset), others=[b])


@BOTH_WAYS
def test_records_of_a_poll_that_ran_a_callback_are_dropped_and_it_says_so(
    probe: MakeProbe, new_topic: NewTopic, generator: Generator
) -> None:
    """SPEC M5, docs/clients.md C-K6: under load, no record comes in the same poll as a rebalance."""
    topic = new_topic(4)
    generator.send(topic, 200_000, partitions=4)
    a = probe([topic])
    a.start_at(0)
    b = probe([topic])
    while len(a.rebalances) < 3 or len(b.consumer.held) != 2:
        a.poll(200, 0.01)
        b.poll(10, 0.01)
    for polled in a.polled:
        if polled.rebalances:
            assert polled.batch is None
            assert polled.disturbed
    held = a.consumer.held
    a.polled.clear()
    a.consumer.seek(dict.fromkeys(held, 7))
    a.consumer.flow(held)
    a.poll_until(lambda: set(a.offsets()) == held)
    assert {found[0] for found in a.offsets().values()} == {7}


def test_more_members_than_partitions_leave_one_idle_with_an_empty_assignment(
    probe: MakeProbe, new_topic: NewTopic
) -> None:
    """SPEC G5, docs/clients.md C-R14."""
    topic = new_topic(1)
    a = probe([topic])
    a.settle()
    b = probe([topic])

    def told() -> bool:
        return any(kind == "assigned" for kind, _ in b.rebalances) and len(a.rebalances) == 3

    a.poll_until(told, others=[b])
    assert sorted([len(a.consumer.held), len(b.consumer.held)]) == [0, 1]
    idle = a if not a.consumer.held else b
    idle.consumer.seek({TP(topic, 0): 5})
    idle.consumer.flow([TP(topic, 0)])
    assert idle.consumer._flowing == set()


@pytest.mark.parametrize(
    ("protocol", "within"), [({}, 8), pytest.param(KIP_848, 20, marks=pytest.mark.soak)], ids=["classic", "kip848"]
)
def test_new_partitions_and_new_topics_of_a_pattern_come_within_seconds(
    kafka: KafkaCluster, probe: MakeProbe, new_topic: NewTopic, protocol: dict[str, str], within: float
) -> None:
    """SPEC M7. A broker looks for new topics of a pattern each ten seconds (docs/clients.md C-K30)."""
    topic = new_topic(1, name="shop.a")
    stem = topic.rsplit("-", 1)[1]
    member = probe(pattern=rf"^shop\.[ab].*{stem}$", properties=protocol)
    member.settle()
    kafka.topics.add_partitions(topic, 3)
    member.poll_until(lambda: member.consumer.held == parts(topic, 3), within=8)
    other = kafka.topics.create(f"shop.b-{stem}", 1)
    kafka.topics.create(f"shop.c-{stem}", 1)
    member.poll_until(lambda: member.consumer.held == parts(topic, 3) | parts(other, 1), within=within)


def test_a_pattern_finds_no_internal_topics(kafka: KafkaCluster, probe: MakeProbe, new_topic: NewTopic) -> None:
    """Else Kafka would give the group partitions that the region does not know, and it would never start (SPEC M7, G8)."""
    topic = new_topic(1)
    named = probe([topic])
    named.start_at()
    named.consumer.commit({TP(topic, 0): 0})
    named.consumer.close()
    member = probe(pattern=rf"^(__consumer_offsets|{topic})$")
    assert member.settle() == parts(topic, 1)


def test_the_assignor_is_range_for_one_topic_else_round_robin(
    kafka: KafkaCluster, probe: MakeProbe, new_topic: NewTopic, group_id: str
) -> None:
    """SPEC R1: a subscription may grow, since every member lists both."""
    one, two = new_topic(2), new_topic(2)
    admin = KafkaAdmin({"bootstrap.servers": kafka.bootstrap})
    a = probe([one])
    a.settle()
    assert report(admin, group_id).assignor == "range"
    b = probe([one, two])
    a.poll_until(lambda: len(b.consumer.held) + len(a.consumer.held) == 4, others=[b])
    assert report(admin, group_id).assignor in ("range", "roundrobin")
    a.consumer.close()
    b.poll_until(lambda: len(b.consumer.held) == 4)
    assert report(admin, group_id).assignor == "roundrobin"


def test_a_member_that_polled_too_late_is_told_lost_and_its_commit_is_refused_as_a_rebalance(
    probe: MakeProbe, new_topic: NewTopic, generator: Generator
) -> None:
    """SPEC D2, R2, docs/clients.md C-R4, C-K6: unknown member or old generation; then it joins again by itself."""
    topic = new_topic(2)
    late = probe([topic], properties={"session.timeout.ms": "6000", "max.poll.interval.ms": "6000"})
    generator.send(topic, 500, partitions=2)
    late.start_at(0)
    late.poll_until(lambda: late.rows() == 500)
    time.sleep(7.5)
    with pytest.raises(GroupRebalanced):
        late.consumer.commit({TP(topic, 0): 1})
    late.poll_until(lambda: ("lost", parts(topic, 2)) in late.rebalances)
    assert any(isinstance(error, PolledTooLate) for error in late.errors)
    late.poll_until(lambda: late.consumer.held == parts(topic, 2))
    assert late.consumer._flowing == set()


def test_93_a_commit_larger_than_a_batch_of_kafka_is_accepted(
    kafka: KafkaCluster, probe: MakeProbe, new_topic: NewTopic, group_id: str
) -> None:
    """SPEC D2, docs/clients.md C-R13, C-R16: 1.2 MB of metadata, where the broker takes batches of 1 MiB."""
    topic = new_topic(300)
    member = probe([topic])
    held = member.settle()
    said = {tp: f"{tp.partition:04d}" * 1_000 for tp in held}
    member.consumer.commit({tp: tp.partition + 1 for tp in held}, said, {TP(topic, 1): 0})
    committed = KafkaAdmin({"bootstrap.servers": kafka.bootstrap}).committed(group_id, held)
    epochs = {tp: 0 if tp.partition == 1 else -1 for tp in held}  # of the last record, where it is known (SPEC S4)
    assert committed == {tp: Committed(tp.partition + 1, said[tp], epochs[tp]) for tp in held}


def test_a_commit_without_a_broker_is_unreachable(kafka: KafkaCluster, probe: MakeProbe, new_topic: NewTopic) -> None:
    """SPEC D2, docs/clients.md C-K9: after the session, also when librdkafka itself would wait for ever."""
    topic = new_topic(1)
    member = probe([topic])
    member.settle()
    kafka.kill()
    began = time.monotonic()
    with pytest.raises(KafkaUnavailable):
        member.consumer.commit({TP(topic, 0): 1})
    assert time.monotonic() - began < 15
    kafka.start_node()


def test_a_commit_that_hangs_is_given_up_and_what_was_asked_meanwhile_is_done_later(
    probe: MakeProbe, new_topic: NewTopic, generator: Generator
) -> None:
    """SPEC D4, G3: the event thread goes on while librdkafka waits for the coordinator without a limit."""
    topic = new_topic(2)
    generator.send(topic, 2_000, partitions=2)
    member = probe([topic])
    member.start_at(0)
    member.poll_until(lambda: member.rows() == 2_000)
    consumer, held, generation = member.consumer, member.consumer.held, member.consumer.generation()
    back = threading.Event()

    class Hanging:
        def commit(self, **_: object) -> list[TopicPartition]:
            back.wait(30)
            return []

    consumer._commits = Commits(Hanging(), "g", patience=0.3)
    began = time.monotonic()
    for _ in range(2):
        with pytest.raises(KafkaUnavailable, match="did not answer"):
            consumer.commit(dict.fromkeys(held, 1))
    assert time.monotonic() - began < 10, "and not after the 30 s for which it hangs"
    member.polled.clear()
    consumer.flow([])
    consumer.seek(dict.fromkeys(held, 900))
    consumer.flow(held)
    for _ in range(10):
        assert member.poll() == Polled()
    assert consumer.generation() == generation
    back.set()
    member.poll_until(lambda: member.rows() == 200)
    assert member.offsets() == {tp: list(range(900, 1_000)) for tp in held}
    assert (member.errors, member.dropped) == ([], 0)


def test_static_the_older_of_two_with_one_id_is_fenced(probe: MakeProbe, new_topic: NewTopic) -> None:
    """SPEC R7, docs/clients.md C-R2: code −150."""
    topic = new_topic(2)
    older = probe([topic], instance_id="orders-0")
    older.settle()
    newer = probe([topic], instance_id="orders-0")
    older.poll_until(lambda: any(isinstance(error, Fenced) for error in older.errors), others=[newer])
    newer.poll_until(lambda: newer.consumer.held == parts(topic, 2))
    assert not any(isinstance(error, Fenced) for error in newer.errors)


def test_static_a_restart_within_the_session_costs_no_rebalance(probe: MakeProbe, new_topic: NewTopic) -> None:
    """SPEC R7, docs/clients.md C-R2."""
    topic = new_topic(4)
    a = probe([topic], instance_id="orders-0")
    b = probe([topic], instance_id="orders-1")
    a.poll_until(lambda: len(a.consumer.held) == len(b.consumer.held) == 2, others=[b])
    before, seen = b.consumer.held, len(a.rebalances)
    b.consumer.close()
    again = probe([topic], instance_id="orders-1")
    began = time.monotonic()
    again.poll_until(lambda: bool(again.consumer.held), others=[a])
    assert time.monotonic() - began < SHORT.session_timeout, "it does not wait for the end of the other's session"
    assert again.consumer.held == before
    for _ in range(30):
        a.poll()
    assert len(a.rebalances) == seen


def test_an_error_inside_a_callback_never_leaves_it(probe: MakeProbe, new_topic: NewTopic) -> None:
    """SPEC M5, docs/clients.md C-K3: the poll goes on, says that it was disturbed, and carries the error."""
    topic = new_topic(2)
    member = probe([topic])
    real = member.consumer._consumer

    class Broken:
        def assign(self, tps: object) -> None:
            raise KafkaException("broken")

        def unassign(self) -> None:
            raise RuntimeError("broken too")

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

    member.consumer._on_assign(Broken(), [])
    member.consumer._give_up(Kind.REVOKED, Broken(), [])
    polled = member.poll()
    assert polled.disturbed
    assert len(polled.errors) == 2
    member.settle()
    assert member.consumer.held == parts(topic, 2)


@pytest.mark.parametrize("answer", [b"", b"CGMDv1:\x01\x00\x00\x00", b"CGMDv2:\x01\x00", None, 5])
def test_an_unknown_format_of_the_generation_is_unknown(answer: object) -> None:
    """docs/clients.md C-K15: a private format is guarded."""

    class Consumer:
        def consumer_group_metadata(self) -> object:
            return answer

    assert generation_of(Consumer()) == -1


def test_G8_somebody_who_joins_for_a_moment_makes_a_static_group_rebalance(
    kafka: KafkaCluster, group_id: str, probe: MakeProbe, new_topic: NewTopic
) -> None:
    """SPEC G8, docs/clients.md C-R2: no static member could do it by leaving and coming back; afterwards each has what it had."""
    topic = new_topic(4)
    a, b = (probe([topic], instance_id=f"orders-{i}") for i in (0, 1))
    a.poll_until(lambda: len(a.consumer.held) == len(b.consumer.held) == 2, others=[b])
    before, generation = (a.consumer.held, b.consumer.held), a.consumer.generation()
    given = {"bootstrap.servers": kafka.bootstrap, "group.id": group_id}
    settings = client_properties(given, SHORT, client_id=unique("m"), instance_id="orders-0", single_topic=True)
    guest = threading.Thread(target=nudge, args=(settings, (topic,), None))
    guest.start()
    a.poll_until(
        lambda: (
            not guest.is_alive()
            and (a.consumer.held, b.consumer.held) == before
            and a.consumer.generation() == b.consumer.generation() >= generation + 2
        ),
        others=[b],
    )
    assert not a.errors + b.errors, "nobody is fenced"


@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        (KafkaError.ILLEGAL_GENERATION, GroupRebalanced),
        (KafkaError.UNKNOWN_MEMBER_ID, GroupRebalanced),
        (KafkaError.REBALANCE_IN_PROGRESS, GroupRebalanced),
        (KafkaError.FENCED_INSTANCE_ID, Fenced),
        (KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaUnavailable),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, NotAllowed),
        (KafkaError.INVALID_COMMIT_OFFSET_SIZE, KafkaUnavailable),
        (KafkaError.UNKNOWN, KafkaUnavailable),
    ],
)
def test_28_each_refusal_of_a_commit_by_a_broker_is_the_error_of_its_reaction(
    mock_broker: MockBroker, probe: MakeProbe, code: int, reaction: type[Exception]
) -> None:
    topic = mock_broker.create_topic("t", 2, replication=3)
    settings = {key: str(value) for key, value in CLIENT_SETTINGS.items()}
    member = probe([topic], bootstrap=mock_broker.bootstrap, properties=settings)
    held = member.settle()
    member.consumer.commit(dict.fromkeys(held, 1))
    mock_broker.push_request_errors(Api.OFFSET_COMMIT, *[code] * 200)
    with pytest.raises(reaction) as refused:
        member.consumer.commit(dict.fromkeys(held, 2))
    assert type(refused.value) is reaction
    mock_broker.clear_request_errors(Api.OFFSET_COMMIT)
    raw = member.consumer._consumer
    references = sys.getrefcount(raw)
    member.consumer.close()
    kept = sys.getrefcount(raw) - references
    assert kept == (reaction is Fenced), (
        "a fenced client is never freed: its end may never come (docs/clients.md C-K27)"
    )


def test_an_assignment_that_waits_while_the_client_closes_is_answered_after_the_group_has_ended(
    mock_broker: MockBroker, probe: MakeProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/clients.md C-K28: before that it can hang for ever, and with it the whole process, since Python waits too."""
    topic = mock_broker.create_topic("t", 4, replication=3)
    member = probe([topic], bootstrap=mock_broker.bootstrap, properties={k: str(v) for k, v in CLIENT_SETTINGS.items()})
    raw = member.consumer._consumer
    while generation_of(raw) < 1:
        time.sleep(0.01)
    time.sleep(0.5)
    ended: list[bool] = []

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        ended.append(bool(librdkafka().rd_kafka_consumer_closed(ctypes.c_void_p(handle(raw)))))

    monkeypatch.setattr(membership, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    member.consumer.close()
    assert ended == [True]
