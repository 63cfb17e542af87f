"""How a static member leaves for good: it does not leave on close, so it comes back for a moment with a short session (SPEC R7)."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from crkafka_core.kafka.consumer import GroupConsumer
from crkafka_core.kafka.events import Kind

_log = logging.getLogger(__name__)
SHORT_SESSION = "6000"
"""Usually the broker's minimum, in milliseconds; the group rebalances 6.4 s after the close (docs/clients.md C-R2)."""
PATIENCE = 10.0


def depart(properties: Mapping[str, str], topics: tuple[str, ...], pattern: str | None) -> None:
    """Rejoin under the same `group.instance.id` with a short session, and close: the broker forgets the member soon."""
    if "group.instance.id" not in properties or int(properties["session.timeout.ms"]) <= int(SHORT_SESSION):
        return
    consumer = GroupConsumer({**properties, "session.timeout.ms": SHORT_SESSION})
    try:
        consumer.subscribe(topics, pattern=pattern)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            polled = consumer.poll(1, 0.1)
            if any(r.kind is Kind.ASSIGNED for r in polled.rebalances):
                return
            if polled.errors:
                _log.warning("leaving the group for good: %s", polled.errors[0])
                return
    finally:
        consumer.close()
