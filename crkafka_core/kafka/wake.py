"""Wakes librdkafka's broker threads after a resume: else the first record takes a second (docs/clients.md C-K18)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from crkafka_core.model.offsets import TP

_PATIENCE = 0.5
"""Seconds for one small request; a broker that is slower is not woken."""
_FRESH = 30.0
"""Seconds for which known leaders are used; a wrong one only delays the first record by a second."""


class Waker:
    """Sends a small request to each leader of a resumed partition; belongs to the consumer's thread."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._leaders: dict[str, tuple[float, dict[int, int]]] = {}

    def wake(self, tps: Iterable[TP]) -> None:
        """Wake the leaders of `tps`. Never raises: without it the records only come later."""
        by_leader: dict[int, TP] = {}
        try:
            for tp in tps:
                by_leader.setdefault(self._leader(tp), tp)
            for tp in by_leader.values():
                self._consumer.get_watermark_offsets(TopicPartition(tp.topic, tp.partition), timeout=_PATIENCE)
        except (KafkaException, RuntimeError):
            return

    def forget(self) -> None:
        """Drop the known leaders, since they may have moved."""
        self._leaders.clear()

    def _leader(self, tp: TP) -> int:
        now = time.monotonic()
        leaders = self._leaders.get(tp.topic)
        if leaders is None or now - leaders[0] > _FRESH:
            topic = self._consumer.list_topics(tp.topic, timeout=_PATIENCE).topics.get(tp.topic)
            leaders = (now, {p.id: p.leader for p in topic.partitions.values()} if topic is not None else {})
            self._leaders[tp.topic] = leaders
        return leaders[1].get(tp.partition, -1)
