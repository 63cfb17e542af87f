"""Detects logs that were cut below an offset that was read, also if they have grown again (SPEC S4).

An election of a leader that lacks records (`unclean.leader.election.enable`) cuts the log; the end offset does not show it once other
records have been written. librdkafka compares an offset's leader epoch with the broker's (OffsetsForLeaderEpoch) at an assignment, and
has no call for it: so a consumer without a group is assigned there for a moment (docs/clients.md C-K25).
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from crkafka_core.kafka import clients
from crkafka_core.kafka.errors import UNREADABLE, VANISHED, KafkaUnavailable, error_of
from crkafka_core.kafka.properties import FORCED
from crkafka_core.model.offsets import TP

_log = logging.getLogger(__name__)
_UNCUT = {KafkaError._PARTITION_EOF, *UNREADABLE}
_CUT_AT = re.compile(r"truncation detected at offset \d+ .*broker end offset is (\d+)")
"""librdkafka's text is the only source of the end of the older leader's log."""


def compare(
    properties: Mapping[str, str], offsets: Mapping[TP, tuple[int, int]], *, group_id: str, patience: float
) -> dict[TP, int | None]:
    """Where the log was cut below each of `offsets` (next offset, leader epoch of the record before it); None if it was not. `properties`
    connect to Kafka; this user may read the group, which is not joined. A partition without an answer in time is left out."""
    name = f"crkafka-epochs-{uuid.uuid4().hex[:12]}"
    settings = {
        **properties,
        **FORCED,
        "client.id": name,
        "group.id": group_id or name,
        "isolation.level": "read_uncommitted",
        "fetch.message.max.bytes": "4096",
        "fetch.max.bytes": "1000000",
        "queued.min.messages": "1",
        "fetch.wait.max.ms": "100",
    }
    consumer = clients.consumer(settings)
    try:
        consumer.assign([TopicPartition(tp.topic, tp.partition, o, leader_epoch=e) for tp, (o, e) in offsets.items()])
        return _answers(consumer, offsets, time.monotonic() + patience)
    except KafkaException as error:
        raise error_of(error, "comparing leader epochs") from error
    finally:
        consumer.close()


def _answers(consumer: Consumer, offsets: Mapping[TP, tuple[int, int]], until: float) -> dict[TP, int | None]:
    """A record, readable or not, or the partition's end shows an uncut log; then the partition is paused to let others answer."""
    cut_at: dict[TP, int | None] = {}
    while len(cut_at) < len(offsets) and time.monotonic() <= until:
        for message in consumer.consume(500, 0.02):
            tp, error = TP(message.topic() or "", message.partition() or 0), message.error()
            if tp in cut_at:
                continue
            if error is None or error.code() in _UNCUT:
                cut_at[tp] = None
                consumer.pause([TopicPartition(tp.topic, tp.partition)])
            elif error.code() in VANISHED:
                end = _CUT_AT.search(error.str())
                cut_at[tp] = int(end[1]) if end is not None and int(end[1]) < offsets[tp][0] else None
                if cut_at[tp] is None:
                    _log.warning("leader epoch %d of %s@%d: %s", offsets[tp][1], tp, offsets[tp][0], error.str())
            else:
                typed = error_of(
                    error, f"comparing the leader epoch of {tp}" if tp.topic else "comparing leader epochs"
                )
                if not isinstance(typed, KafkaUnavailable):
                    raise typed
    return cut_at
