"""Finds logs that were cut below what was read of them, and may have grown again (SPEC S4).

An election of a leader that lacks records (`unclean.leader.election.enable`) cuts the log; the ends alone do not show it once others
have been written. librdkafka compares the leader epoch of an offset with the broker's (OffsetsForLeaderEpoch) when a consumer is
assigned there, and has no call for it: so a consumer that joins no group is, for a moment (docs/clients.md C-K25).
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
from crkafka_core.model.offsets import TP

_log = logging.getLogger(__name__)
_THERE = {KafkaError._PARTITION_EOF, *UNREADABLE}
_CUT_AT = re.compile(r"truncation detected at offset \d+ .*broker end offset is (\d+)")
"""librdkafka gives the end of the older leader's log in this text only."""


def compare(
    properties: Mapping[str, str], offsets: Mapping[TP, tuple[int, int]], *, group_id: str, patience: float
) -> dict[TP, int | None]:
    """Of these (next offset, leader epoch of the record before it) where the log was cut below; None: it was not.

    `properties` connect to Kafka; the group is one that this user may read, and is not joined. A partition that does not answer in time
    is left out, so that only that one need be asked for again.
    """
    name = f"crkafka-epochs-{uuid.uuid4().hex[:12]}"
    settings = {
        **properties,
        "client.id": name,
        "group.id": group_id or name,
        "enable.auto.commit": "false",
        "auto.offset.reset": "error",
        "enable.partition.eof": "true",
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
    """A record, readable or not, or the partition's end means that the log goes on there; it is asked for no more, so that others come."""
    cut_at: dict[TP, int | None] = {}
    while len(cut_at) < len(offsets) and time.monotonic() <= until:
        for message in consumer.consume(500, 0.02):
            tp, error = TP(message.topic() or "", message.partition() or 0), message.error()
            if tp in cut_at:
                continue
            if error is None or error.code() in _THERE:
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
