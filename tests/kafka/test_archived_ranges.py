"""A range is of one topic id in one cluster: what has the same name now may be something else (SPEC K3, T2; fault 69)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from crkafka_core.kafka import clients, leader_epochs
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.edge import TopicInfo
from crkafka_core.kafka.errors import UNREADABLE
from crkafka_core.kafka.range_reader import check_same, check_uncut
from crkafka_core.model.errors import DataLoss
from crkafka_core.model.offsets import TP
from crkafka_core.plane.reading import KafkaRange


class Kafka:
    def __init__(self, cluster: str = "here", **ids: str) -> None:
        self._cluster, self._ids = cluster, ids

    def cluster_id(self) -> str:
        return self._cluster

    def topics(self, names: Iterable[str] = (), **_: Any) -> dict[str, TopicInfo]:
        return {n: TopicInfo(self._ids[n], (0,)) for n in names if n in self._ids}

    def cut_below(self, offsets: Mapping[TP, tuple[int, int]]) -> dict[TP, int]:
        assert offsets == {TP("orders", 0): (30, 4)}, "the last range speaks for all before it"
        return dict.fromkeys(offsets, self.cut) if self.cut else {}

    cut = 0


def archived(topic_id: str | None, cluster: str = "here") -> KafkaRange:
    return KafkaRange(7, "orders", 0, 0, 10, 10, topic_id, cluster)


@pytest.mark.parametrize(
    ("item", "kafka", "words"),
    [
        (archived("old"), Kafka(orders="new"), "Checkpoint 7 .*topic orders with id old; .* has the id new now"),
        (archived("old", "there"), Kafka(orders="old"), "the Kafka cluster there; .* leads to the cluster here"),
        (archived("old"), Kafka(), "no longer has topic orders with id old"),
        (
            archived(None),
            Kafka(orders="new"),
            "without the id of topic orders, .* it is unknown whether .* with id new",
        ),
    ],
)
def test_69_another_topic_or_cluster_is_a_data_loss_error_that_names_both_ids(
    item: KafkaRange, kafka: Any, words: str
) -> None:
    with pytest.raises(DataLoss, match=words):
        check_same(kafka, [item])


def test_k3_the_same_topic_in_the_same_cluster_is_read_again_also_where_brokers_have_no_ids() -> None:
    check_same(Kafka(orders="old"), [archived("old"), archived("old")])  # type: ignore[arg-type]
    check_same(Kafka(orders=""), [archived("old")])  # type: ignore[arg-type]
    check_same(Kafka(orders="new"), [archived("")])  # type: ignore[arg-type]


def ranges(*stops: int) -> list[KafkaRange]:
    return [KafkaRange(n, "orders", 0, stop - 10, stop, 10, "id", "here", 2 + n) for n, stop in enumerate(stops)]


def test_71_an_archived_range_of_a_log_that_was_cut_and_has_grown_again_is_a_data_loss_error() -> None:
    """The ends say nothing, and the rows may even be as many as they were."""
    kafka: Any = Kafka()
    check_uncut(kafka, ranges(10, 20, 30))
    kafka.cut = 15
    with pytest.raises(DataLoss, match=r"Checkpoint 1 is archived: orders\[0\] \[10, 20\) .* log ends at 15 now"):
        check_uncut(kafka, ranges(10, 20, 30))
    kafka.cut = 25
    with pytest.raises(DataLoss, match="Checkpoint 2 is archived"):
        check_uncut(kafka, ranges(10, 20, 30))


def test_s4_ranges_without_a_leader_epoch_are_asked_of_nobody() -> None:
    check_uncut(None, [archived("id")])  # type: ignore[arg-type]


HERE = TP("orders", 3)


class Answering:
    """A consumer to which one partition answers with one error."""

    def __init__(self, code: int) -> None:
        error = KafkaError(code)
        self.message = SimpleNamespace(topic=lambda: "orders", partition=lambda: 3, error=lambda: error)

    def assign(self, partitions: list[Any]) -> None: ...
    def pause(self, partitions: list[Any]) -> None: ...
    def close(self) -> None: ...

    def consume(self, *_: Any) -> list[Any]:
        return [self.message]


@pytest.mark.parametrize("code", sorted(UNREADABLE))
def test_a_record_that_cannot_be_read_is_there(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else no member of the region could start where it lies: one record stopped it for ever (SPEC X9)."""
    monkeypatch.setattr(clients, "consumer", lambda _: Answering(code))
    assert leader_epochs.compare({}, {HERE: (7, 1)}, group_id="g", patience=1) == {HERE: None}


@pytest.mark.parametrize("most", [2_000_000, 150_000_512])
def test_an_answer_may_be_as_large_as_a_members(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a log with a record larger than the client's default would never answer; a smaller bound is taken, too."""
    made = []

    def consumer(properties: dict[str, str]) -> Answering:
        made.append(properties)
        real(properties).close()
        return Answering(KafkaError._PARTITION_EOF)

    real = clients.consumer
    monkeypatch.setattr(clients, "consumer", consumer)
    admin = KafkaAdmin({"bootstrap.servers": "localhost:1", "group.id": "g", "receive.message.max.bytes": str(most)})
    monkeypatch.setattr(admin, "_list_offsets", lambda *_: {})
    assert admin.cut_below({HERE: (7, 1)}) == {}
    assert made[0]["receive.message.max.bytes"] == str(most)
