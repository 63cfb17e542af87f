"""librdkafka's log lines, each kind at most every ten seconds: an absent broker writes many a second (docs/clients.md C-R12).

Lines that repeat a message of ours are DEBUG: `CRKAFKA_LOG=DEBUG` shows them.
"""

from __future__ import annotations

import logging
import re
import threading
import time

EVERY = 10.0
_SLOW = ("REQTMOUT", "SESSTMOUT")
"""A request timed out, some on purpose: its caller reports that, or asks again. Or a session did: we report that Kafka does not answer, and
the reset that follows. Neither is news for a person."""
_AWAY = re.compile(
    r"FAIL .*: (Connect to \S+ failed: |Connection setup timed out|Disconnected( \(|$)|\d+ request\(s\) timed out: disconnect)"
)
"""A connection that was refused, cut or not answered. Each comes as an error too, which names the broker: a member logs it, and a call
of ours fails with it. librdkafka's lines about names, TLS and logins say more than ours, and stay."""
_NUMBERS = re.compile(r"\d+")
_BROKER = re.compile(r", at broker \S+(?=\))")
"""The same outage is reported with the broker's name, and again without it."""


class Throttle(logging.Filter):
    """Lets a line pass if no line of its kind (equal but for numbers) passed within `EVERY` seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, float] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = _NUMBERS.sub("0", _BROKER.sub("", record.getMessage()))[:200], time.monotonic()
        with self._lock:
            if now - self._seen.get(kind, -EVERY) < EVERY:
                return False
            if len(self._seen) > 200:
                self._seen.clear()
            self._seen[kind] = now
        return True


def _as_it_matters(record: logging.LogRecord) -> bool:
    """Give a line the level that it deserves, and say whether that level is shown."""
    line = record.getMessage()
    level = logging.INFO if line.startswith(_SLOW) else logging.DEBUG if _AWAY.match(line) else record.levelno
    record.levelno, record.levelname = level, logging.getLevelName(level)
    return client_log.isEnabledFor(level)


client_log = logging.getLogger("crkafka_core.kafka.client")
client_log.addFilter(_as_it_matters)
client_log.addFilter(Throttle())
