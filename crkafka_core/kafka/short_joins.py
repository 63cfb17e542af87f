"""Short joins of a group: for a static member to leave for good (SPEC R7), and to make a group rebalance (SPEC G8)."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from crkafka_core.kafka.consumer import GroupConsumer
from crkafka_core.kafka.edge import Kind
from crkafka_core.kafka.errors import KafkaUnavailable
from crkafka_core.model.errors import CrkafkaError

_log = logging.getLogger(__name__)
SHORT_SESSION = "6000"
"""Milliseconds, usually the broker's minimum; the group rebalances 6.4 s after the close (docs/clients.md C-R2)."""


def depart(properties: Mapping[str, str], topics: tuple[str, ...], pattern: str | None) -> None:
    """Rejoin under the same `group.instance.id` with a short session, and close: the broker drops the member soon after."""
    if "group.instance.id" not in properties or int(properties["session.timeout.ms"]) <= int(SHORT_SESSION):
        return
    error = _join({**properties, "session.timeout.ms": SHORT_SESSION}, topics, pattern, 10.0, end_on_error=True)
    if error is not None:
        _log.warning("leaving the group for good: %s", error)


def nudge(properties: Mapping[str, str], topics: tuple[str, ...], pattern: str | None) -> None:
    """Join as a dynamic member beside the owner of these properties, get an assignment, close. Runs on a thread of its own.

    A static member that leaves and returns gets its old partitions back, without a rebalance (docs/clients.md C-R2). The partitions
    assigned here stay paused, and return to the others with the second rebalance.
    """
    own = {key: value for key, value in properties.items() if key != "group.instance.id"}
    try:
        # Every member has to poll before the group admits another one: hence the longer patience.
        error = _join({**own, "client.id": f"{properties['client.id']}-nudge"}, topics, pattern, 30.0)
    except CrkafkaError as failed:
        error = failed
    if error is not None:
        _log.warning("making the group rebalance: %s", error)


def _join(
    properties: Mapping[str, str],
    topics: tuple[str, ...],
    pattern: str | None,
    patience: float,
    *,
    end_on_error: bool = False,
) -> CrkafkaError | None:
    """Join until the first assignment; the last error if none came."""
    consumer = GroupConsumer(properties)
    last: CrkafkaError | None = KafkaUnavailable(f"Group {consumer.group_id} admitted no member in {patience:.0f} s.")
    try:
        consumer.subscribe(topics, pattern=pattern)
        end = time.monotonic() + patience
        while time.monotonic() < end:
            polled = consumer.poll(1, 0.1)
            if any(r.kind is Kind.ASSIGNED for r in polled.rebalances):
                return None
            if polled.errors:
                last = polled.errors[0]
                if end_on_error:
                    break
        return last
    finally:
        consumer.close()
