"""Every answer that Kafka can give to a member, once and for five minutes, for one partition and for all (SPEC X11, fault 92)."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from crkafka_core.kafka import consumer as consumer_module
from crkafka_core.kafka import membership
from crkafka_core.kafka.commits import Commits
from crkafka_core.kafka.consumer import GroupConsumer
from crkafka_core.kafka.edge import Kind
from crkafka_core.kafka.errors import (
    REACTIONS,
    UNREADABLE,
    VANISHED,
    Fenced,
    GroupRebalanced,
    KafkaFailed,
    NotAllowed,
    PolledTooLate,
)
from crkafka_core.kafka.messages import Failure, Taken
from crkafka_core.loop import Threads
from crkafka_core.member.event_loop import EventLoop
from crkafka_core.member.message_queue import MessageQueue
from crkafka_core.member.submitter import Submitter
from crkafka_core.member.submitter import Taken as TakenOffsets
from crkafka_core.model.desired import Desired
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.protocol import signals as sg
from tests.member.test_event_loop import Asked, Segments
from tests.rigs.landing import records

TPS = tuple(TP("t", p) for p in range(3))
ROWS, STEP = 20, 10
MINUTE = consumer_module._READ_AGAIN
CODES = sorted(
    code
    for name, code in vars(KafkaError).items()
    if name.isupper() and code not in (KafkaError.NO_ERROR, KafkaError._PARTITION_EOF)
)
FATAL = {code for code, reaction in REACTIONS.items() if reaction is KafkaFailed}
REFUSED = {code for code, reaction in REACTIONS.items() if reaction is NotAllowed}
GROUP = TP("", -1)


class Clock(Threads):
    def __init__(self) -> None:
        self.time = 1_000.0

    def now(self) -> float:
        return self.time


class Member:
    """The real consumer of a group and the real event thread, over a scripted client."""

    def __init__(self, consumer: GroupConsumer) -> None:
        self.clock, self.position, self.failures = Clock(), dict.fromkeys(TPS, 0), dict[TP, int]()
        self.text = "as the test wants it"
        self.consumer, self.segments, self.asked = consumer, Segments(), Asked()
        consumer._consumer = SimpleNamespace(
            seek=lambda p: self.position.update({TP(p.topic, p.partition): p.offset}),
            pause=lambda _: None,
            resume=lambda _: None,
            get_watermark_offsets=lambda *_, **__: None,
        )
        consumer._waker = SimpleNamespace(wake=lambda _: None, forget=lambda: None)  # type: ignore[assignment]
        consumer._records = SimpleNamespace(serve=Taken, take=lambda *_: self.take())  # type: ignore[assignment]
        consumer._reported, consumer._errors, consumer._last_generation = {}, [], 1
        self.loop = EventLoop(
            chunk=500, poll_interval=300, commit_at_drain=True, uid="u", name="r/0", runtime=self.clock
        )
        self.submitter = Submitter(MessageQueue(10_000, 1 << 30), self.segments, self.loop.post)  # type: ignore[arg-type]
        parts: Any = (consumer, self.submitter, self.asked, self.asked, self.asked)
        self.loop.begin(*parts, lambda consumer: None, lambda: None)
        known = Desired("u", 1, epoch=1, phase=Phase.RUNNING, head=0, registered=True, superseded=False, wanted=True)
        running = replace(known, filling=1, fills=frozenset(TPS))
        self.loop.post(sg.Observed(running))
        self.loop.post(sg.Lease(True))

    def assign(self) -> None:
        self.consumer._note(self.consumer._rebalance(Kind.ASSIGNED, frozenset(TPS)), held=frozenset(TPS))

    def lose(self) -> None:
        self.consumer._note(self.consumer._rebalance(Kind.LOST, frozenset(TPS)), held=frozenset())

    def take(self) -> Taken:
        """What fails gives an error, all else its next records."""
        failures = tuple(
            Failure(tp, self.position.get(tp, -1001), KafkaError(code, self.text))
            for tp, code in self.failures.items()
            if tp is GROUP or tp in self.consumer._flowing
        )
        for tp in sorted(self.consumer._flowing - self.failures.keys()):
            start = self.position[tp]
            if start < ROWS:
                self.position[tp] = start + STEP
                return Taken(records(tp, start, start + STEP), failures)
        return Taken(None, failures)

    def run(self, seconds: float) -> None:
        end = self.clock.time + seconds
        while self.clock.time < end and self.loop.exit is None:
            self.clock.time += 10.0
            self.loop.turn(0.0)
            while self.asked.effects and isinstance(self.asked.effects[-1], sg.Resolve):
                asked = self.asked.effects.pop()
                self.loop.post(sg.Started(asked.stamp, dict.fromkeys(asked.held, 0), {"t": "id"}, {}))
            for _ in range(3):
                self.submitter.turn(0.0)

    def asked_for(self, kind: type[sg.Effect]) -> list[sg.Effect]:
        return [effect for effect in self.asked.effects if isinstance(effect, kind)]


@pytest.fixture(scope="module")
def client() -> GroupConsumer:
    return GroupConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(consumer_module, "_READ_AGAIN", 0.0)
    monkeypatch.setattr(membership, "generation_of", lambda _: 1)
    logging.disable()  # fifty thousand warnings
    yield
    logging.disable(logging.NOTSET)


def flowing(client: GroupConsumer) -> Member:
    member = Member(client)
    member.assign()
    member.run(20.0)
    return member


LASTS = pytest.mark.parametrize("lasts", [5.0, 300.0], ids=["once", "for five minutes"])


@LASTS
@pytest.mark.parametrize("failing", [TPS[:1], TPS], ids=["one partition", "all"])
def test_92_whatever_a_partition_answers_the_others_flow_and_it_goes_on_by_itself(
    client: GroupConsumer, failing: tuple[TP, ...], lasts: float
) -> None:
    for code in CODES:
        if code in FATAL or code in VANISHED:
            continue
        member = flowing(client)
        member.failures = dict.fromkeys(failing, code)
        member.run(lasts)
        told = f"{KafkaError(code).name()}: {member.loop.exit} {member.asked.effects}"
        assert member.loop.exit is None and not member.asked_for(sg.Halt) + member.asked_for(sg.AskReset), told
        fenced = KafkaError(code).code() in (KafkaError.FENCED_INSTANCE_ID, KafkaError._FENCED)
        if lasts > 60.0 and not fenced:
            assert all(member.segments.offsets[tp] == list(range(ROWS)) for tp in set(TPS) - set(failing)), told
            rebalances = REACTIONS.get(code) in (GroupRebalanced, PolledTooLate)
            assert member.loop.troubles.partitions.keys() == (set() if rebalances else set(failing)), told
        member.failures = {}
        member.run(100.0)
        if not fenced:  # SQL decides
            assert member.segments.offsets == {tp: list(range(ROWS)) for tp in TPS}, told
            assert member.loop.troubles.partitions == {}, told


@LASTS
def test_92_whatever_the_group_answers_a_member_without_partitions_it_waits_and_only_rights_stop_the_region(
    client: GroupConsumer, lasts: float
) -> None:
    for code in CODES:
        member = flowing(client)
        member.lose()
        member.run(5.0)
        member.failures = {GROUP: code}
        member.run(lasts)
        told = f"{KafkaError(code).name()}: {member.loop.exit} {member.asked.effects}"
        assert (member.loop.exit is not None) is (code in FATAL), told
        assert bool(member.asked_for(sg.Halt)) is (lasts > 60.0 and code in REFUSED), told
        if code in FATAL:
            continue
        member.failures = {}
        member.assign()
        assert not member.asked_for(sg.AskReset), told
        member.run(5.0)
        assert member.loop.state.held == frozenset(TPS) and member.loop.troubles.away() == "", told


@pytest.mark.parametrize(
    ("code", "text", "stops"),
    [
        (KafkaError.SASL_AUTHENTICATION_FAILED, "", False),
        (KafkaError._AUTHENTICATION, "", False),
        (KafkaError._SSL, "", False),
        (KafkaError._TRANSPORT, "certificate verify failed", False),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "JoinGroup failed: Broker: Group authorization failed", False),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "FindCoordinator response error: Group authorization failed", True),
    ],
)
def test_x11_a_refusal_that_the_client_would_repeat_and_does_not_is_over(
    client: GroupConsumer, code: int, text: str, stops: bool
) -> None:
    """A member that was refused once waits for its assignment, as long as another member takes for its drain."""
    member = flowing(client)
    member.lose()
    member.run(5.0)
    member.failures, member.text = {GROUP: code}, text
    member.run(5.0)
    member.failures = {}
    assert member.loop.troubles.away()
    member.run(120.0)
    assert bool(member.asked_for(sg.Halt)) is stops, member.asked.effects


def test_x11_an_outage_between_two_refusals_is_no_refusal(client: GroupConsumer) -> None:
    """That no broker is reachable is said of a refused login too, and ends no refusal."""
    for between, stops in ((KafkaError._TRANSPORT, False), (KafkaError._ALL_BROKERS_DOWN, True)):
        member = Member(client)
        member.run(5.0)
        for code in (KafkaError.GROUP_AUTHORIZATION_FAILED, between, KafkaError.GROUP_AUTHORIZATION_FAILED):
            member.failures = {GROUP: code}
            member.run(30.0)
        assert bool(member.asked_for(sg.Halt)) is stops


def test_x11_a_refusal_that_is_reported_once_stands_until_partitions_come(client: GroupConsumer) -> None:
    """So librdkafka reports that it may not find the coordinator (docs/clients.md C-K33)."""
    member = Member(client)
    member.run(5.0)
    member.failures = {GROUP: KafkaError.GROUP_AUTHORIZATION_FAILED}
    member.run(5.0)
    member.failures = {}
    member.run(50.0)
    assert "GROUP_AUTHORIZATION_FAILED" in member.loop.troubles.away() and not member.asked_for(sg.Halt)
    member.run(20.0)
    assert len(member.asked_for(sg.Halt)) == 1
    member.assign()
    member.run(5.0)
    assert member.loop.troubles.away() == ""


@pytest.mark.parametrize("code", sorted(UNREADABLE))
def test_94_what_could_not_be_read_is_asked_for_again_and_told_once(client: GroupConsumer, code: int) -> None:
    member = flowing(client)
    member.failures = {TPS[0]: code}
    member.run(200.0)
    assert len(member.asked_for(sg.Tell)) == 1, "it has been asked for twenty times"
    member.failures = {}
    member.run(50.0)
    assert member.segments.offsets[TPS[0]] == list(range(ROWS))


def test_94_a_partition_that_was_corrupt_is_sought_again_each_minute_and_flows_once_its_broker_is_well(
    client: GroupConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker was well again, and the partition stood still; the alarm of it ends with its records."""
    member, sought = Member(client), list[float]()
    monkeypatch.setattr(consumer_module, "_READ_AGAIN", MINUTE)
    monkeypatch.setattr(consumer_module, "time", SimpleNamespace(monotonic=member.clock.now, sleep=time.sleep))
    member.assign()
    member.run(20.0)
    member.failures = {TPS[0]: KafkaError.INVALID_MSG}
    member.run(10.0)
    seek = client._consumer.seek
    client._consumer.seek = lambda p: (sought.append(member.clock.time), seek(p))
    member.run(200.0)
    assert len(sought) == 3 and all(60.0 <= b - a <= 70.0 for a, b in pairwise(sought)), "a turn takes ten seconds"
    assert list(member.loop.troubles.partitions) == [TPS[0]]
    assert all(member.segments.offsets[tp] == list(range(ROWS)) for tp in TPS[1:]), "the others flow"
    member.failures = {}
    member.run(80.0)
    assert member.segments.offsets[TPS[0]] == list(range(ROWS)) and not member.loop.troubles.partitions


class Committer:
    code = 0

    def commit(self, offsets: list[Any], asynchronous: bool) -> list[Any]:
        error = KafkaError(self.code) if self.code else None
        return [SimpleNamespace(topic=p.topic, partition=p.partition, error=error) for p in offsets]


def committing(client: GroupConsumer) -> tuple[Member, Committer]:
    """In the middle of a cut."""
    member, committer = flowing(client), Committer()
    member.submitter.taken = TakenOffsets(1, 1, dict.fromkeys(TPS, (0, 5, 5)), {})
    client._commits = Commits(committer, "g", 10.0)
    return member, committer


def test_92_whatever_a_commit_is_answered_it_aborts_the_cut_and_only_rights_stop_the_region(
    client: GroupConsumer,
) -> None:
    """SPEC D2, X11: unless the client is broken, or another consumer has taken the name."""
    for code in CODES:
        member, committer = committing(client)
        answers = []
        for code_now, seconds in ((code, 50.0), (code, 20.0), (0, 0.0), (code, 0.0)):
            committer.code = code_now
            member.loop._commit_cut(1, merged=False)
            answers.append(member.loop.inbox.get_nowait())
            member.clock.time += seconds
        told = f"{KafkaError(code).name()}: {answers}"
        reaction = REACTIONS.get(code)
        if reaction is Fenced:
            assert isinstance(answers[0], sg.Fenced), told
            continue
        outcomes = [answer.outcome for answer in answers if isinstance(answer, sg.Committed)]
        rebalanced = reaction in (GroupRebalanced, PolledTooLate)
        first = sg.Outcome.REBALANCED if rebalanced else sg.Outcome.RESTART if code in FATAL else sg.Outcome.ABORT
        assert outcomes == [first, first, sg.Outcome.DONE, first], told
        assert not member.asked_for(sg.Halt), "a commit that was accepted ends the minute"
        for seconds in (50.0, 20.0):
            member.clock.time += seconds
            member.loop._commit_cut(1, merged=False)
        assert bool(member.asked_for(sg.Halt)) is (code in REFUSED), told


def test_x11_a_commit_of_the_head_that_is_accepted_between_two_refusals_ends_the_minute(client: GroupConsumer) -> None:
    member, committer = committing(client)
    committer.code = KafkaError.GROUP_AUTHORIZATION_FAILED
    member.loop._commit_cut(1, merged=False)
    committer.code = 0
    member.loop._commit_starts(sg.CommitStarts(dict.fromkeys(TPS, 0), 0))
    committer.code = KafkaError.GROUP_AUTHORIZATION_FAILED
    member.clock.time += 3600.0
    member.loop._commit_cut(1, merged=False)
    assert not member.asked_for(sg.Halt)
