"""What a partition answers when its leader epoch is compared (SPEC S4)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from crkafka_core.kafka import clients, leader_epochs
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.errors import UNREADABLE
from crkafka_core.model.offsets import TP

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
