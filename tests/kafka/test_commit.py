"""A commit that fails otherwise for one partition than for another: the worst decides (SPEC D2)."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from crkafka_core.kafka.consumer import GroupConsumer
from crkafka_core.kafka.errors import CommitFailed, Fenced, GroupRebalanced, KafkaUnavailable
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP

UNREACHABLE, REBALANCED = KafkaError.REQUEST_TIMED_OUT, KafkaError.ILLEGAL_GENERATION
FATAL, FENCED = KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.FENCED_INSTANCE_ID
CODE: dict[type[CrkafkaError], int] = {
    KafkaUnavailable: UNREACHABLE,
    GroupRebalanced: REBALANCED,
    CommitFailed: FATAL,
    Fenced: FENCED,
}


class Answering:
    """A committer that answers each partition with an error of its own."""

    patience, stuck = 1.0, False

    def __init__(self, codes: tuple[int, ...]) -> None:
        self.codes = codes

    def commit(self, request: list[Any]) -> list[Any]:
        return [
            SimpleNamespace(topic=p.topic, partition=p.partition, error=KafkaError(code) if code else None)
            for p, code in zip(request, self.codes, strict=True)
        ]


@pytest.mark.parametrize(
    ("codes", "reaction"),
    [
        ((0, UNREACHABLE, UNREACHABLE), KafkaUnavailable),
        ((0, UNREACHABLE, FATAL), CommitFailed),
        ((REBALANCED, UNREACHABLE, 0), GroupRebalanced),
        ((REBALANCED, UNREACHABLE, FATAL), CommitFailed),
        ((FATAL, FENCED, UNREACHABLE), Fenced),
    ],
)
def test_72_the_worst_failure_of_a_commit_decides_in_whatever_order(
    codes: tuple[int, ...], reaction: type[CrkafkaError]
) -> None:
    consumer = GroupConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})
    tps = [TP(topic, 0) for topic in "abc"]
    for order in permutations(codes):
        consumer._committer = Answering(order)  # type: ignore[assignment]
        with pytest.raises(reaction) as failed:
            consumer.commit(dict.fromkeys(tps, 5))
        assert type(failed.value) is reaction
        assert f"at {tps[order.index(CODE[reaction])]}" in str(failed.value), "the partition is named"
