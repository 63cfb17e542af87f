"""Makes a group rebalance: a dynamic member joins for a moment and leaves (SPEC G8).

A static member cannot do it by leaving and coming back: within its session it gets its old partitions back, without a rebalance
(docs/clients.md C-R2).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from crkafka_core.kafka.consumer import GroupConsumer
from crkafka_core.kafka.events import Kind
from crkafka_core.model.errors import CrkafkaError

_log = logging.getLogger(__name__)
PATIENCE = 30.0
"""Seconds until the group has let it in; every member has to poll for that."""


def nudge(properties: Mapping[str, str], topics: tuple[str, ...], pattern: str | None) -> None:
    """Join beside the member whose properties these are, get an assignment, close. For a thread of its own, since that member polls too.

    It fetches nothing: what it is given for that moment stays paused, and goes back to the others with the second rebalance.
    """
    own = {key: value for key, value in properties.items() if key != "group.instance.id"}
    try:
        consumer = GroupConsumer({**own, "client.id": f"{properties['client.id']}-nudge"})
        try:
            consumer.subscribe(topics, pattern=pattern)
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end:
                if any(r.kind is Kind.ASSIGNED for r in consumer.poll(1, 0.1).rebalances):
                    return
            _log.warning("the group did not let anybody in for %.0f s", PATIENCE)
        finally:
            consumer.close()
    except CrkafkaError as error:
        _log.warning("making the group rebalance: %s", error)
