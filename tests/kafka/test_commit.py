"""A commit that fails otherwise for one partition than for another: the worst decides (SPEC D2)."""

from __future__ import annotations

import threading
import time
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from crkafka_core.kafka.commits import Commits, chunks
from crkafka_core.kafka.consumer import GroupConsumer
from crkafka_core.kafka.errors import Fenced, GroupRebalanced, KafkaUnavailable, NotAllowed, OffsetGone
from crkafka_core.kafka.messages import Failure, Taken
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP

UNREACHABLE, REBALANCED = KafkaError.REQUEST_TIMED_OUT, KafkaError.ILLEGAL_GENERATION
FATAL, FENCED = KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.FENCED_INSTANCE_ID
CODE: dict[type[CrkafkaError], int] = {
    KafkaUnavailable: UNREACHABLE,
    GroupRebalanced: REBALANCED,
    NotAllowed: FATAL,
    Fenced: FENCED,
}


def answering(codes: tuple[int, ...]) -> Commits:
    """Each partition is answered with an error of its own."""

    def commit(offsets: list[Any], asynchronous: bool) -> list[Any]:
        return [
            SimpleNamespace(topic=p.topic, partition=p.partition, error=KafkaError(code) if code else None)
            for p, code in zip(offsets, codes, strict=True)
        ]

    return Commits(SimpleNamespace(commit=commit), "g", 10.0)


@pytest.mark.parametrize(
    ("codes", "reaction"),
    [
        ((0, UNREACHABLE, UNREACHABLE), KafkaUnavailable),
        ((0, UNREACHABLE, FATAL), NotAllowed),
        ((REBALANCED, UNREACHABLE, 0), GroupRebalanced),
        ((REBALANCED, UNREACHABLE, FATAL), NotAllowed),
        ((FATAL, FENCED, UNREACHABLE), Fenced),
    ],
)
def test_72_the_worst_failure_of_a_commit_decides_in_whatever_order(
    codes: tuple[int, ...], reaction: type[CrkafkaError]
) -> None:
    tps = [TP(topic, 0) for topic in "abc"]
    for order in permutations(codes):
        commits = answering(order)
        with pytest.raises(reaction) as failed:
            commits.commit(dict.fromkeys(tps, 5), {}, {})
        assert type(failed.value) is reaction and commits.fenced == (reaction is Fenced)
        assert f"at {tps[order.index(CODE[reaction])]}" in str(failed.value), "the partition is named"


def test_d2_a_commit_on_which_nothing_depends_is_waited_for_a_moment() -> None:
    """The event thread stood still for a session after each reset while the coordinator did not answer."""
    back = threading.Event()
    commits = Commits(SimpleNamespace(commit=lambda **_: back.wait(30)), "g", patience=20.0)
    began = time.monotonic()
    with pytest.raises(KafkaUnavailable, match="did not answer"):
        commits.commit({TP("a", 0): 1}, {}, {}, 0.1)
    assert time.monotonic() - began < 10
    assert commits.stuck and not commits.hopeless(0.0), "it may still end by itself within the patience"
    back.set()
    assert commits.wait(10)


class Pieces:
    """A client that takes one piece after another, and refuses the second."""

    def __init__(self) -> None:
        self.pieces: list[list[Any]] = []

    def commit(self, offsets: list[Any], asynchronous: bool) -> list[Any]:
        self.pieces.append(offsets)
        code = KafkaError.UNKNOWN if len(self.pieces) == 2 else None
        return [SimpleNamespace(topic=p.topic, partition=p.partition, error=code and KafkaError(code)) for p in offsets]


def test_93_a_commit_goes_in_pieces_one_after_another_and_the_first_that_fails_ends_it() -> None:
    """Each piece is one batch of `__consumer_offsets`, which Kafka bounds (docs/clients.md C-R16)."""
    client = Pieces()
    offsets = {TP("orders", p): p for p in range(10_000)}
    with pytest.raises(KafkaUnavailable, match="UNKNOWN"):
        Commits(client, "g", 10.0).commit(offsets, dict.fromkeys(offsets, "x" * 120), dict.fromkeys(offsets, 7))
    first, second = client.pieces
    assert [(p.partition, p.offset, p.metadata, p.leader_epoch) for p in first[:2]] == [
        (0, 0, "x" * 120, 7),
        (1, 1, "x" * 120, 7),
    ]
    assert second[0].partition == first[-1].partition + 1
    assert 2_000 < len(first) < 4_600, "far below what Kafka takes by its defaults"


class Narrow:
    """A broker that takes so many partitions in one commit; it refuses each of a larger one, or the request as a whole."""

    def __init__(self, takes: int, code: int, *, whole: bool) -> None:
        self.takes, self.error, self.whole = takes, KafkaError(code), whole
        self.refused = 0
        self.committed: list[TP] = []

    def commit(self, offsets: list[Any], asynchronous: bool) -> list[Any]:
        error = self.error if len(offsets) > self.takes else None
        self.refused += error is not None
        if error and self.whole:
            raise KafkaException(error)
        if not error:
            self.committed += [TP(p.topic, p.partition) for p in offsets]
        return [SimpleNamespace(topic=p.topic, partition=p.partition, error=error) for p in offsets]


@pytest.mark.parametrize("code", [KafkaError.INVALID_COMMIT_OFFSET_SIZE, KafkaError.MSG_SIZE_TOO_LARGE])
@pytest.mark.parametrize("whole", [False, True])
def test_93_a_commit_that_is_too_large_for_the_broker_is_halved_until_it_is_taken(code: int, whole: bool) -> None:
    """A broker with a small `message.max.bytes` aborted each cut."""
    broker = Narrow(90, code, whole=whole)
    commits, offsets = Commits(broker, "g", 10.0), {TP("orders", p): p for p in range(1_000)}
    for _ in range(2):
        broker.committed.clear()
        commits.commit(offsets, {}, {})
        assert broker.committed == sorted(offsets), "each partition once, in order"
    assert broker.refused == 4, "1000, 500, 250 and 125 partitions; later commits begin with what was taken"


def test_93_one_partition_that_is_too_large_for_the_broker_names_the_setting() -> None:
    broker = Narrow(0, KafkaError.INVALID_COMMIT_OFFSET_SIZE, whole=False)
    with pytest.raises(KafkaUnavailable, match=r"committing 1 partition of group g as too large.*`message.max.bytes`"):
        Commits(broker, "g", 10.0).commit({TP("orders", p): p for p in range(5)}, {}, {})


@pytest.mark.parametrize("most", [1, 200, 1_000, 10**9])
def test_93_pieces_hold_every_partition_once_in_order(most: int) -> None:
    offsets = {TP(topic, p): p for p in range(20) for topic in ("a", "ü" * 40)}
    metadata = {tp: "m" * tp.partition for tp in offsets}
    pieces = list(chunks(offsets, metadata, group_id="g", most=most))
    assert [tp for piece in pieces for tp in piece] == sorted(offsets)
    assert {tp: at for piece in pieces for tp, at in piece.items()} == offsets
    assert len(pieces) == {1: 40, 200: 30, 1_000: 6, 10**9: 1}[most]


@pytest.mark.parametrize(
    ("sought", "flows", "offset", "told"),
    [
        (True, True, -1001, 160),
        (True, False, -1001, 160),
        (False, False, -1001, None),
        (True, True, 170, 170),
        (True, False, 170, None),
        (True, True, 0, None),
    ],
    ids=[
        "cut while it flows",
        "cut while it is paused",
        "cut before the seek",
        "gone",
        "gone before anything flows",
        "of the placeholder",
    ],
)
def test_71_a_log_that_was_cut_below_where_a_partition_stands_is_told_also_while_it_is_paused(
    sought: bool, flows: bool, offset: int, told: int | None
) -> None:
    """librdkafka says it once, and gives nothing of the partition any more (docs/clients.md C-K25)."""
    consumer, tp = GroupConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}), TP("t", 0)
    consumer.held, consumer._next, consumer._flowing = (
        frozenset({tp}),
        {tp: 160} if sought else {},
        {tp} if flows else set(),
    )
    error = KafkaError(KafkaError._AUTO_OFFSET_RESET, "Partition log truncation detected")
    consumer._records = SimpleNamespace(
        serve=lambda: Taken(), take=lambda *_: Taken(failures=(Failure(tp, offset, error),))
    )  # type: ignore[assignment]
    errors = consumer.poll(10, 0.0).errors
    assert [(type(e), e.offset) for e in errors if isinstance(e, OffsetGone)] == (
        [(OffsetGone, told)] if told is not None else []
    )


def test_71_a_broker_that_knows_nothing_of_an_epoch_is_asked_for_it_once() -> None:
    """That says nothing of the log. The client gives nothing of the partition until it is sought again, and then without an epoch."""
    consumer, tp, seeks = GroupConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}), TP("t", 0), []
    consumer.held = frozenset({tp})
    consumer._consumer = SimpleNamespace(seek=seeks.append)
    said = (
        "No epoch found less or equal to offset 160 (leader epoch 3): broker end offset is -1 (offset leader epoch -1)."
    )
    error = KafkaError(KafkaError._AUTO_OFFSET_RESET, said)
    told = Taken(failures=(Failure(tp, 160, error),))
    consumer._records = SimpleNamespace(serve=lambda: Taken(), take=lambda *_: told)  # type: ignore[assignment]
    consumer.seek({tp: 160}, {tp: 3})
    polled = consumer.poll(10, 0.0)
    assert polled.disturbed and polled.errors == (), "what follows is a seek, and no reset"
    consumer.seek({tp: 160}, {tp: 3})
    assert [p.leader_epoch for p in seeks] == [3, None]
